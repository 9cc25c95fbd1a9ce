//! HTTP on a Unix socket, in a process of its own: with an empty handler, which is what the transport
//! alone costs, or with a bare group commit behind it, which is the least a durable server can do.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};

use super::group_commit::{Door, GroupCommit};
use crate::error::{BenchError, Outcome, While as _};

/// The hidden verb that runs the server.
pub const VERB: &str = "__http-floor";
/// Connections that it can serve without ever blocking on the writer's queue.
const CALLERS_MAX: usize = 4096;
const READY_WAIT_MAX: Duration = Duration::from_secs(10);
/// About as long as the product's own answer to a send.
const ANSWER: &str = "{\"client_message_id\":\"01JCX0000000000000000000000\",\"status\":\"queued\",\
    \"request_fingerprint\":\"0000000000000000000000000000000000000000000000000000000000000000\",\
    \"durability\":\"local\"}";

/// The server as seen by the run that measures it.
pub struct HttpFloor {
    child: Child,
    socket: PathBuf,
}

impl HttpFloor {
    /// With `commit`, each request is a row of that database file, of so many bytes.
    pub async fn start(socket: &Path, commit: Option<(&Path, usize)>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(VERB).arg(socket);
        if let Some((database, payload_bytes)) = commit {
            command.arg(database).arg(payload_bytes.to_string());
        }
        let child = command
            // It lives as long as this pipe is open, even if we are killed.
            .stdin(Stdio::piped())
            .spawn()?;
        let floor = Self {
            child,
            socket: socket.to_owned(),
        };
        let start = Instant::now();
        while UnixStream::connect(socket).await.is_err() {
            if start.elapsed() > READY_WAIT_MAX {
                return Err(BenchError::new("the empty HTTP server did not start"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(floor)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for HttpFloor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until standard input ends. The arguments are those that `start` gives.
pub fn serve(mut arguments: impl Iterator<Item = OsString>) -> Outcome<()> {
    let missing = || BenchError::new("the floor needs a socket, or socket, file and bytes");
    let socket = PathBuf::from(arguments.next().ok_or_else(missing)?);
    let door = match (arguments.next(), arguments.next()) {
        (None, _) => None,
        (Some(file), Some(bytes)) => {
            let bytes = bytes.to_string_lossy().parse().or_fail("payload bytes")?;
            let floor = GroupCommit::open(Path::new(&file), bytes)?;
            Some(floor.start(CALLERS_MAX).0)
        }
        (Some(_), None) => return Err(missing()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    runtime.block_on(async {
        let listener = UnixListener::bind(&socket).or_fail(&socket.display().to_string())?;
        tokio::select! {
            result = accept(listener, door) => result,
            _ = end => Ok(()),
        }
    })
}

async fn accept(listener: UnixListener, door: Option<Door>) -> Outcome<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let door = door.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, door.as_ref()));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // Clients hang up when their round ends.
            let _ = connection.await;
        });
    }
}

/// A failed commit breaks the connection off, and with it the run.
async fn answer(
    request: Request<Incoming>,
    door: Option<&Door>,
) -> Result<Response<Full<Bytes>>, BenchError> {
    let _ = request.into_body().collect().await;
    if let Some(door) = door {
        door.commit_one().await?;
    }
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER.as_bytes())));
    *response.status_mut() = hyper::StatusCode::ACCEPTED;
    Ok(response)
}
