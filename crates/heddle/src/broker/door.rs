//! The door of a broker on loopback: TCP, the token if there is one, the WebSocket.

use std::sync::Arc;
use std::time::Duration;

use heddle_broker::limiter::LocalLimiter;
use heddle_broker::storage::SqliteStorage;
use heddle_broker::{Broker, Claim};
use heddle_core::limits::{CONNECTIONS_MAX, HELLO_TIMEOUT};
use heddle_core::names::MeshName;
use heddle_daemon::LocalToken;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_tungstenite::accept_hdr_async_with_config;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, ORIGIN};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// After an accept that failed (descriptors are short) the next one waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub type LocalBroker = Broker<SqliteStorage, LocalLimiter>;

/// Who is let as far as the hello.
pub enum Entry {
    /// Whoever presents the token of the data folder; a mesh that is new here gets this name.
    Bearers {
        token: LocalToken,
        mesh_name: MeshName,
    },
    /// Everybody on this machine; the hello must be signed by a member's key.
    Strangers,
}

/// What every connection needs.
pub struct Door {
    pub broker: LocalBroker,
    pub entry: Entry,
    pub connections: TaskTracker,
    pub stopping: CancellationToken,
}

/// Takes connections until it is stopped.
pub async fn run(door: Arc<Door>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let one = Arc::clone(&door);
                door.connections.spawn(async move {
                    one.serve(stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Door {
    async fn serve(&self, stream: TcpStream) {
        // A batch is one write; waiting to fill a packet only adds delay.
        let _ = stream.set_nodelay(true);
        let check = |request: &Request, response: Response| self.admit(request, response);
        let config = Some(heddle_broker::ws_config());
        let upgrade = accept_hdr_async_with_config(stream, check, config);
        let socket = tokio::select! {
            upgraded = tokio::time::timeout(HELLO_TIMEOUT, upgrade) => match upgraded {
                Ok(Ok(socket)) => socket,
                // Not a WebSocket, not admitted, or too slow: it has been told what there is to say.
                Ok(Err(_)) | Err(_) => return,
            },
            () = self.stopping.cancelled() => return,
        };
        let claim = match &self.entry {
            Entry::Bearers { mesh_name, .. } => Claim::Bearer(mesh_name.clone()),
            Entry::Strangers => Claim::Stranger,
        };
        self.broker
            .serve(socket, claim, self.stopping.clone())
            .await;
    }

    /// The token where one is asked for, and no page of a browser (T-24).
    #[allow(
        clippy::result_large_err,
        reason = "the shape of the library's callback"
    )]
    fn admit(&self, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
        let headers = request.headers();
        if headers.contains_key(ORIGIN) {
            return Err(refusal(StatusCode::FORBIDDEN, "not for browsers"));
        }
        let Entry::Bearers { token, .. } = &self.entry else {
            return Ok(response);
        };
        let presented = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        if presented.is_some_and(|presented| token.matches(presented)) {
            Ok(response)
        } else {
            Err(refusal(
                StatusCode::UNAUTHORIZED,
                "send `Authorization: Bearer <token>` with the content of broker_token in the data folder",
            ))
        }
    }
}

fn refusal(status: StatusCode, words: &str) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(words.to_owned()));
    *response.status_mut() = status;
    response
}
