//! The door of a broker: TCP, TLS where it has a certificate, the token if there is one, the WebSocket; and a
//! few pages for those who watch it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_broker::{AnyBroker, Claim, Transport};
use heddle_core::limits::{BROKER_PAGE_TIMEOUT, HELLO_TIMEOUT};
use heddle_core::names::MeshName;
use heddle_daemon::LocalToken;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderValue, ORIGIN, RETRY_AFTER, UPGRADE,
    WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api;
use super::orderly_end::OrderlyEnd;
use super::pages::Pages;
use super::places::{Arrival, Place, Places};

/// After an accept that failed (descriptors are short) the next one waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub type Page = Response<Full<Bytes>>;

/// Who is let as far as the hello.
pub enum Entry {
    /// Everybody on this machine; the hello must be signed by a member's key.
    Strangers,
    /// Whoever presents the token of the data folder, for whom a mesh that is new here gets this name; and
    /// whoever presents none, and must sign.
    Anybody {
        token: LocalToken,
        mesh_name: MeshName,
    },
}

/// What every connection needs.
pub struct Door {
    pub broker: AnyBroker,
    pub entry: Entry,
    pub tls: Option<TlsAcceptor>,
    /// Something in front of it does TLS, and is what others reach.
    pub is_behind_proxy: bool,
    /// For those who watch the broker; none where it is part of a daemon, which has its own.
    pub pages: Option<Arc<Pages>>,
    pub places: Places,
    pub connections: TaskTracker,
    pub stopping: CancellationToken,
}

/// Takes connections until it is stopped.
pub async fn run(door: Arc<Door>, listener: TcpListener) {
    let clock = Arc::clone(&door.broker.accept().clock);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = door.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let arrival = tokio::select! {
                    arrival = door.places.arrive(|| clock.mono()) => arrival,
                    () = door.stopping.cancelled() => return,
                };
                let one = Arc::clone(&door);
                door.connections
                    .spawn(async move { one.take(stream, arrival).await });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection before it is a daemon's: the place that it holds, and an upgrade that was granted, with what is proven
/// about the peer.
struct Guest {
    place: Mutex<Place>,
    granted: Mutex<Option<(OnUpgrade, Claim)>>,
}

impl Guest {
    fn new(arrival: Arrival) -> Self {
        Self {
            place: Mutex::new(Place::Arriving(arrival)),
            granted: Mutex::default(),
        }
    }

    /// It has said what it wants: its place is another one from now on. False where there is none.
    fn moves_to(&self, place: Option<Place>) -> bool {
        let is_there = place.is_some();
        if let Some(place) = place {
            *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        }
        is_there
    }

    fn granted(&self) -> MutexGuard<'_, Option<(OnUpgrade, Claim)>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Door {
    async fn take(&self, stream: TcpStream, arrival: Arrival) {
        // A batch is one write; waiting to fill a packet only adds delay.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.serve(stream, arrival).await;
        };
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(HELLO_TIMEOUT, tls.accept(stream)) => shaken,
            () = arrival.cut.cancelled() => return,
            () = self.stopping.cancelled() => return,
        };
        match shaken {
            Ok(Ok(stream)) => self.serve(stream, arrival).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection without TLS, or with a bad one");
            }
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn serve<T>(&self, stream: T, arrival: Arrival)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let cut = arrival.cut.clone();
        let guest = Guest::new(arrival);
        let answer = service_fn(|request| {
            let guest = &guest;
            async move { Ok::<_, Infallible>(self.answer(request, guest).await) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        let connection = builder
            .timer(TokioTimer::new())
            .header_read_timeout(HELLO_TIMEOUT)
            .serve_connection(TokioIo::new(OrderlyEnd::new(stream)), answer)
            .with_upgrades();
        tokio::select! {
            // Not a request, or too slow: it has been told what there is to say.
            _ = tokio::time::timeout(BROKER_PAGE_TIMEOUT, connection) => {}
            () = cut.cancelled() => return,
            () = self.stopping.cancelled() => return,
        }
        let Some((upgrade, claim)) = guest.granted().take() else {
            return;
        };
        let Ok(Ok(stream)) = tokio::time::timeout(HELLO_TIMEOUT, upgrade).await else {
            return;
        };
        let config = Some(heddle_broker::ws_config());
        let stream: Box<dyn Transport> = Box::new(TokioIo::new(stream));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, config).await;
        self.broker
            .session(socket, claim, self.stopping.clone())
            .await;
    }

    async fn answer(&self, request: Request<Incoming>, guest: &Guest) -> Page {
        if request.headers().contains_key(UPGRADE) {
            return self.upgrade(request, guest);
        }
        let mut answer = match &self.pages {
            _ if !guest.moves_to(self.places.page()) => {
                full("this broker answers as many requests as it can; ask again in a moment\n")
            }
            Some(pages) if request.uri().path().starts_with(api::PREFIX) => {
                api::answer(self, pages, request).await
            }
            Some(pages) => pages.answer(&request).await,
            None => page(StatusCode::UPGRADE_REQUIRED, "this is a WebSocket\n"),
        };
        // One request, one connection: whoever has its answer holds no place.
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
        answer
    }

    fn upgrade(&self, mut request: Request<Incoming>, guest: &Guest) -> Page {
        let claim = match self.admit(&request) {
            Ok(claim) => claim,
            Err(refused) => return refused,
        };
        let Ok(response) = create_response_with_body(&request, Full::default) else {
            return page(StatusCode::BAD_REQUEST, "not a WebSocket request\n");
        };
        if !guest.moves_to(self.places.daemon()) {
            return full(
                "as many daemons are connected to this broker as it serves; ask again in a moment, or another broker\n",
            );
        }
        *guest.granted() = Some((hyper::upgrade::on(&mut request), claim));
        response
    }

    /// The token where one is asked for, and no page of a browser (T-24).
    fn admit(&self, request: &Request<Incoming>) -> Result<Claim, Page> {
        let headers = request.headers();
        if headers.contains_key(ORIGIN) {
            return Err(page(StatusCode::FORBIDDEN, "not for browsers\n"));
        }
        let presented = headers.get(AUTHORIZATION);
        let (token, mesh_name) = match &self.entry {
            Entry::Strangers => return Ok(Claim::Stranger),
            Entry::Anybody { .. } if presented.is_none() => return Ok(Claim::Stranger),
            Entry::Anybody { token, mesh_name } => (token, mesh_name),
        };
        if is_bearer(presented, token) {
            Ok(Claim::Bearer(mesh_name.clone()))
        } else {
            Err(refusing(
                page(
                    StatusCode::UNAUTHORIZED,
                    "send `Authorization: Bearer <token>` with the content of broker_token in the data folder",
                ),
                "GET",
            ))
        }
    }
}

/// Whether this header presents this token.
pub fn is_bearer(header: Option<&hyper::header::HeaderValue>, token: &LocalToken) -> bool {
    header
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .is_some_and(|presented| token.matches(presented))
}

fn full(words: &str) -> Page {
    let mut refused = page(StatusCode::SERVICE_UNAVAILABLE, words);
    let headers = refused.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    refused
}

/// Words, or JSON; whoever knows better says so.
pub fn page(status: StatusCode, words: &str) -> Page {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(words.as_bytes())));
    *response.status_mut() = status;
    let kind = if words.starts_with('{') {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// What a refusal must say beside its words: which method there is, and how one proves who one is.
pub fn refusing(mut refused: Page, allowed: &'static str) -> Page {
    let (name, value) = match refused.status() {
        StatusCode::METHOD_NOT_ALLOWED => (ALLOW, allowed),
        StatusCode::UNAUTHORIZED => (WWW_AUTHENTICATE, "Bearer"),
        _ => return refused,
    };
    let headers = refused.headers_mut();
    headers.insert(name, HeaderValue::from_static(value));
    refused
}
