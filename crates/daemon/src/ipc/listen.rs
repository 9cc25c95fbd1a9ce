//! The two listening sockets: a private Unix one, and a loopback TCP one.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

pub(crate) struct Listeners {
    pub(crate) unix: UnixListener,
    pub(crate) tcp: TcpListener,
    pub(crate) tcp_port: u16,
    socket: PathBuf,
}

impl Listeners {
    /// A socket that somebody has removed is bound anew: behind the old one nobody can come any more. What else lies in
    /// its place is not ours to touch (T-10).
    pub(crate) fn mend(&mut self) {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        if !std::fs::symlink_metadata(&self.socket).is_err_and(is_gone) {
            return;
        }
        match bind_unix(&self.socket) {
            Ok(unix) => {
                self.unix = unix;
                tracing::warn!("daemon.sock was removed; it is there again");
            }
            // The folder may be gone as well; the store tells of that.
            Err(error) => {
                tracing::debug!(%error, "daemon.sock was removed and cannot be bound anew");
            }
        }
    }
}

/// The loopback port that the settings name cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("127.0.0.1:{port}: {error}")]
pub(crate) struct PortRefused {
    pub(crate) port: u16,
    error: io::Error,
}

/// Binds both. The caller holds the home's lock, so a socket file found here is nobody's.
pub(crate) async fn listen(socket: &Path, port: u16) -> io::Result<Listeners> {
    let unix = bind_unix(socket)?;
    let tcp = TcpListener::bind(("127.0.0.1", port))
        .await
        .map_err(|error| io::Error::new(error.kind(), PortRefused { port, error }))?;
    let tcp_port = tcp.local_addr()?.port();
    Ok(Listeners {
        unix,
        tcp,
        tcp_port,
        socket: socket.to_owned(),
    })
}

fn bind_unix(socket: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(socket) {
        Ok(metadata) if metadata.file_type().is_socket() => std::fs::remove_file(socket)?,
        Ok(_) => {
            return Err(io::Error::other(format!(
                "{} is not a socket; move it away",
                socket.display()
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // The folder is 0700, so nobody else can connect between bind and chmod (T-09).
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
