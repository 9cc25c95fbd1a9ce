//! The accept loops, and the way of one request: guard, load, route.
//!
//! Own loops on hyper's HTTP/1 builder, because only there the header timer runs from the first
//! byte on: a silent client is cut off, too.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::{
    CONNECTIONS_MAX, HEADER_TIMEOUT, REQUEST_HEAD_BYTES_MAX, REQUESTS_IN_FLIGHT_MAX,
};
use heddle_wire::problem::Problem;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::lane::{self, Left, Rewound, Shuttle};
use super::own_words::OwnWords;
use super::reply::Refuse;
use super::{Ipc, Listeners, guard, hook_caller, routes};
use crate::hooks::Grant;

/// After an accept error (out of descriptors, say): do not spin.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// Between two looks whether the socket is still in its place.
const SOCKET_LOOK: Duration = Duration::from_secs(1);

/// Descriptors that are not for callers: databases with their logs, sockets, the log.
const DESCRIPTORS_KEPT: usize = 58;

/// A connection that has sent so often will send more. Commands send once.
const SENDS_BEFORE_SHUTTLE: usize = 2;

/// Through which socket a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Unix,
    Tcp,
}

/// What every connection needs.
#[derive(Clone)]
struct House {
    ipc: Arc<Ipc>,
    router: Arc<Router>,
    /// For those who send again and again; without it they stay where they are.
    shuttle: Option<Arc<Shuttle>>,
}

/// Accepts until the daemon stops, then waits for the connections' last answers.
pub(crate) async fn serve(ipc: Arc<Ipc>, mut listeners: Listeners) {
    let router = Arc::new(routes::router(Arc::clone(&ipc)));
    let tasks = TaskTracker::new();
    let (shuttle, is_over) = start_shuttle(&ipc, &router, &tasks);
    let house = House {
        ipc: Arc::clone(&ipc),
        router: Arc::clone(&router),
        shuttle,
    };
    let room = Arc::new(Semaphore::new(connections_max()));
    let own_uid = rustix::process::geteuid().as_raw();
    let shutdown = ipc.shared.shutdown.clone();
    let mut look = tokio::time::interval(SOCKET_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&room).acquire_owned() => permit,
            () = shutdown.cancelled() => break,
        };
        let Ok(permit) = permit else { break };
        tokio::select! {
            accepted = listeners.unix.accept() => match accepted {
                Ok((stream, _)) => {
                    let is_own = stream.peer_cred().is_ok_and(|peer| peer.uid() == own_uid);
                    if is_own {
                        tasks.spawn(unix_connection(house.clone(), stream, permit));
                    } else {
                        metrics::counter!("heddle_ipc_foreign_peers_total").increment(1);
                    }
                }
                Err(error) => accept_failed(&error).await,
            },
            accepted = listeners.tcp.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let stream = Rewound::fresh(stream);
                    tasks.spawn(connection(Arc::clone(&ipc), Arc::clone(&router), Door::Tcp, stream, permit));
                }
                Err(error) => accept_failed(&error).await,
            },
            _ = look.tick() => listeners.mend(),
            () = shutdown.cancelled() => break,
        }
    }
    drop(listeners);
    tasks.close();
    tasks.wait().await;
    // By now nobody boards; who leaves the shuttle becomes a task once more.
    if let (Some(shuttle), Some(is_over)) = (house.shuttle, is_over) {
        shuttle.close();
        let _ = is_over.await;
        tasks.wait().await;
    }
}

/// A machine that gives no thread still takes every send, one by one.
fn start_shuttle(
    ipc: &Arc<Ipc>,
    router: &Arc<Router>,
    tasks: &TaskTracker,
) -> (Option<Arc<Shuttle>>, Option<oneshot::Receiver<()>>) {
    let (leaving_ipc, router, tasks) = (Arc::clone(ipc), Arc::clone(router), tasks.clone());
    let runtime = Handle::current();
    let leave = Box::new(move |stream, permit| {
        let (ipc, router) = (Arc::clone(&leaving_ipc), Arc::clone(&router));
        let going_on = connection(ipc, router, Door::Unix, stream, permit);
        drop(tasks.spawn_on(going_on, &runtime));
    });
    match Shuttle::start(Arc::clone(ipc), leave) {
        Ok((shuttle, is_over)) => (Some(Arc::new(shuttle)), Some(is_over)),
        Err(error) => {
            tracing::warn!(%error, "no thread for busy senders");
            (None, None)
        }
    }
}

/// As many as the named bound, but never so many that the store and the link find no descriptor.
fn connections_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    CONNECTIONS_MAX
        .min(limit.saturating_sub(DESCRIPTORS_KEPT))
        .max(4)
}

async fn accept_failed(error: &std::io::Error) {
    metrics::counter!("heddle_ipc_accept_errors_total").increment(1);
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_WAIT).await;
}

/// The short lane first, then the shuttle; boxed, because most connections never need more.
async fn unix_connection(house: House, stream: UnixStream, permit: OwnedSemaphorePermit) {
    let mut stream = Rewound::fresh(stream);
    let mut sends_max = house
        .shuttle
        .as_ref()
        .map_or(usize::MAX, |_| SENDS_BEFORE_SHUTTLE);
    loop {
        match lane::run(&house.ipc, stream, sends_max).await {
            Left::Ended => return,
            Left::Regular(regular) => match &house.shuttle {
                Some(shuttle) => return shuttle.board(regular, permit),
                None => (stream, sends_max) = (regular, usize::MAX),
            },
            Left::Other(stream) => {
                let House { ipc, router, .. } = house;
                return Box::pin(connection(ipc, router, Door::Unix, stream, permit)).await;
            }
        }
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    ipc: Arc<Ipc>,
    router: Arc<Router>,
    door: Door,
    stream: Rewound<S>,
    _permit: OwnedSemaphorePermit,
) {
    let shutdown = ipc.shared.shutdown.clone();
    let service = service_fn(|request| {
        let (ipc, router) = (Arc::clone(&ipc), Arc::clone(&router));
        async move { Ok::<_, Infallible>(answer(ipc, router, door, request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            // What it holds of a head that does not end, with room for a target to be called too long; `check_head` is the
            // exact bound.
            .max_buf_size(4 * REQUEST_HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(OwnWords::new(stream)), service)
    );
    tokio::select! {
        result = connection.as_mut() => return log_end(result),
        () = shutdown.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    log_end(connection.await);
}

/// Clients hang up all the time; only a closer look wants to know.
fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(
    ipc: Arc<Ipc>,
    router: Arc<Router>,
    door: Door,
    mut request: Request<Incoming>,
) -> Response {
    if let Err(problem) = check_head(&request) {
        return Refuse(problem).into_response();
    }
    let passed = match door {
        Door::Unix => at_unix_door(&ipc, &request),
        Door::Tcp => at_tcp_door(&ipc, &request),
    };
    match passed {
        Ok(None) => {}
        // From here on it may do what its grant says, and no more.
        Ok(Some(grant)) => drop(request.extensions_mut().insert(grant)),
        Err(problem) => return Refuse(problem).into_response(),
    }
    let _permit = match admit(&ipc, request.uri().path()) {
        Ok(permit) => permit,
        Err(problem) => return Refuse(problem).into_response(),
    };
    let routed = async {
        if request.method() == Method::POST && request.uri().path() == routes::SEND {
            let answered = routes::send::accept_one(&ipc, request).await;
            return answered.unwrap_or_else(Refuse::into_response);
        }
        match Router::clone(&router).oneshot(request.map(Body::new)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    // A panic is a bug of ours, but it takes only its own request along.
    match AssertUnwindSafe(routed).catch_unwind().await {
        Ok(response) => response,
        Err(_) => Refuse(stumbled()).into_response(),
    }
}

/// The same bound on both doors, before anybody looks at what the head says.
fn check_head<B>(request: &Request<B>) -> Result<(), Problem> {
    let headers = request.headers().iter();
    // With the colon, the space and the end of each line.
    let lines = headers.map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let bytes = target + lines.sum::<usize>();
    if bytes > REQUEST_HEAD_BYTES_MAX {
        let detail = format!(
            "the request head has {bytes} bytes, and {REQUEST_HEAD_BYTES_MAX} is the most that is taken"
        );
        return Err(Problem::new(ErrorCode::HeadersTooLarge, detail));
    }
    Ok(())
}

/// What a request is told that panicked.
pub(super) fn stumbled() -> Problem {
    metrics::counter!("heddle_ipc_panics_total").increment(1);
    Problem::new(ErrorCode::Internal, "the daemon stumbled over this request")
}

/// Whoever reaches the socket is its owner, unless he says that he is a hook.
fn at_unix_door(ipc: &Ipc, request: &Request<Incoming>) -> Result<Option<Arc<Grant>>, Problem> {
    guard::check_url(request.uri(), &ipc.token)?;
    hook_caller::grant(ipc, request)
}

fn at_tcp_door(ipc: &Ipc, request: &Request<Incoming>) -> Result<Option<Arc<Grant>>, Problem> {
    guard::check_place(request, &ipc.token, ipc.tcp_port)?;
    let grant = hook_caller::grant(ipc, request)?;
    if grant.is_none() {
        guard::check_token(request, &ipc.token)?;
    }
    let is_json = request.headers().get(CONTENT_TYPE).is_none_or(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.to_ascii_lowercase().starts_with("application/json"))
    });
    if !is_json {
        return Err(Problem::new(
            ErrorCode::UnsupportedMediaType,
            "the Content-Type is not application/json",
        ));
    }
    if !routes::is_stream(request.uri().path()) && !ipc.load.bucket.take(ipc.shared.clock.mono()) {
        return Err(Problem::new(
            ErrorCode::RateLimited,
            "this token asks too often",
        ));
    }
    Ok(grant)
}

/// A place among the requests in flight. Streams have places of their own, taken by their route.
pub(super) fn admit(ipc: &Ipc, path: &str) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    if ipc.shared.shutdown.is_cancelled() {
        return Err(Problem::new(
            ErrorCode::ShuttingDown,
            "the daemon is stopping",
        ));
    }
    if routes::is_stream(path) {
        return Ok(None);
    }
    let mut permit = Arc::clone(&ipc.load.requests).try_acquire_owned();
    if permit.is_err() && routes::is_house(path) {
        permit = Arc::clone(&ipc.load.house).try_acquire_owned();
    }
    permit.map(Some).map_err(|_| {
        metrics::counter!("heddle_ipc_busy_total").increment(1);
        Problem::new(
            ErrorCode::DaemonBusy,
            format!("{REQUESTS_IN_FLIGHT_MAX} requests are in flight already"),
        )
    })
}
