//! The home folder: what lies in it, with which modes, and the claim on it.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_core::clock::WallMs;

use crate::config::{Config, ConfigError};
use crate::lock::{Holder, HomeLock, LockError};

/// A Unix socket's path must fit `sockaddr_un`.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A claimed home. Dropping it, and the last claim taken from it, releases it.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    pub config: Config,
    claim: Claim,
}

/// The claim on a home: whoever has files open in it beside the daemon holds one until they are closed.
#[derive(Debug, Clone)]
pub struct Claim {
    _lock: Arc<HomeLock>,
}

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("{} is held by {holder}", path.display())]
    Held { path: PathBuf, holder: Holder },
    #[error("{}: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
    #[error("{}: {why}", path.display())]
    TooLong { path: PathBuf, why: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Home {
    /// Creates the folder if need be, repairs its mode, takes its lock, reads its config.
    pub fn claim(path: &Path, now: WallMs) -> Result<Self, HomeError> {
        let whole = own_folder(path)?;
        if socket_path(&whole).as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(HomeError::TooLong {
                path: path.to_owned(),
                why: format!(
                    "the path is too long for a Unix socket: it may have at most {} bytes, and has {}",
                    SOCKET_PATH_BYTES_MAX - "/daemon.sock".len(),
                    whole.as_os_str().len()
                ),
            });
        }
        Self::claim_data(path, now)
    }

    /// The same for a folder in which nobody listens on a socket: that of a broker. A home and a broker
    /// never share one, because it is the same lock.
    pub fn claim_data(path: &Path, now: WallMs) -> Result<Self, HomeError> {
        let unusable = |why: String| HomeError::Unusable {
            path: path.to_owned(),
            why,
        };
        let path = own_folder(path)?;
        let lock = match HomeLock::take(&lock_path(&path), &now.to_rfc3339()) {
            Ok(lock) => lock,
            Err(LockError::Held(holder)) => return Err(HomeError::Held { path, holder }),
            Err(LockError::Io(error)) => return Err(unusable(format!("heddle.lock: {error}"))),
        };
        let config = Config::load(&path.join("config.toml"))?;
        Ok(Self {
            path,
            config,
            claim: Claim {
                _lock: Arc::new(lock),
            },
        })
    }

    /// Keeps the home held for longer than the daemon.
    pub fn keep_claim(&self) -> Claim {
        self.claim.clone()
    }

    /// Who holds the home now, if anybody does.
    pub fn holder(path: &Path) -> Option<Holder> {
        crate::lock::holder(&lock_path(path))
    }

    /// The same, but not somebody who is just being killed.
    pub fn holder_for_good(path: &Path) -> Option<Holder> {
        crate::lock::holder_for_good(&lock_path(path))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        socket_path(&self.path)
    }

    pub fn data(&self) -> PathBuf {
        self.path.join("data.db")
    }

    /// The embedded broker's own file.
    pub fn broker_data(&self) -> PathBuf {
        self.path.join("broker.db")
    }

    /// The bytes of large shared files.
    pub fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }

    /// The registrar's own file.
    pub fn effects_data(&self) -> PathBuf {
        self.path.join("effects.db")
    }

    pub fn token(&self) -> PathBuf {
        self.path.join("local_token")
    }

    pub fn port_file(&self) -> PathBuf {
        self.path.join("http.port")
    }
}

/// The folder of a home, made if need be, under the name that it has without links.
fn own_folder(path: &Path) -> Result<PathBuf, HomeError> {
    let made = create_private_folder(path).and_then(|()| path.canonicalize());
    made.map_err(|error| unusable(path, &error))
}

/// What keeps a folder from being a home: what lies in its way, before what the system says of it.
pub fn unusable(path: &Path, error: &std::io::Error) -> HomeError {
    let (path, why) = (path.to_owned(), in_the_way(path));
    match why {
        Some(why) => HomeError::Unusable { path, why },
        None if error.kind() == std::io::ErrorKind::InvalidFilename => HomeError::TooLong {
            path,
            why: format!("the path is too long: {error}"),
        },
        None => HomeError::Unusable {
            path,
            why: error.to_string(),
        },
    }
}

/// The first part of the path that is there and no folder.
fn in_the_way(path: &Path) -> Option<String> {
    let there = |part: &&Path| part.symlink_metadata().is_ok();
    let part = path.ancestors().find(there).filter(|part| !part.is_dir())?;
    let what = match std::fs::read_link(part) {
        Ok(to) if !part.exists() => {
            format!("a symbolic link to {}, where nothing is", to.display())
        }
        _ if part.is_file() => "a file".to_owned(),
        _ => "no folder".to_owned(),
    };
    let which = if part == path {
        "it".to_owned()
    } else {
        part.display().to_string()
    };
    Some(format!("{which} is {what}, and a folder must lie there"))
}

/// Where the log of a home lies.
pub fn log_folder(home: &Path) -> PathBuf {
    home.join("logs")
}

/// Where the daemon of a home listens.
pub fn socket_path(home: &Path) -> PathBuf {
    home.join("daemon.sock")
}

fn lock_path(home: &Path) -> PathBuf {
    home.join("heddle.lock")
}

/// The folder, 0700 from its first moment on; an existing one is repaired.
pub fn create_private_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = std::fs::metadata(path)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(std::io::Error::other("the folder belongs to another user"));
    }
    if metadata.mode() & 0o777 != 0o700 {
        tracing::warn!(path = %path.display(), "mode was not 0700; repaired");
        std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The folder of a log: never through a link, whose target's mode would be ours to change (T-10).
pub fn create_log_folder(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(std::io::Error::other(
            "it is a symbolic link, and a folder must lie there",
        )),
        _ => create_private_folder(path),
    }
}

pub use heddle_store::open_plain;

/// The text of a file of the home, however it came there; what is no file is not waited for.
pub fn read_plain(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    open_plain(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file that only this user may touch, creating it if need be; never through a link (T-10).
pub fn open_private(path: &Path) -> std::io::Result<File> {
    let nofollow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nofollow)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    if file.metadata()?.mode() & 0o777 != 0o600 {
        tracing::warn!(path = %path.display(), "mode was not 0600; repaired");
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Replaces a small private file: temporary file, sync, rename, sync of the folder.
pub fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(std::io::Error::other(format!(
            "{} is not a regular file",
            path.display()
        )));
    }
    let temporary = path.with_extension("new");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lf_37_modes_are_private_and_drift_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("home");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let home = Home::claim(&path, WallMs(0)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        write_private(&home.token(), "secret").unwrap();
        assert_eq!(
            std::fs::metadata(home.token()).unwrap().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn t_10_a_link_in_place_of_a_private_file_is_refused_and_its_target_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "precious").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(open_private(&link).is_err());
        assert!(write_private(&link, "x").is_err());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let error = Home::claim(&folder.path().join("x".repeat(120)), WallMs(0)).unwrap_err();
        assert!(error.to_string().contains("too long for a Unix socket"));
    }
}
