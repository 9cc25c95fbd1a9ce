//! The short lane of the Unix door: a plain `POST /v1/send` in one read, answered with one write.
//!
//! Only the one shape that a busy client sends stays in the lane (`plain`). Whatever else a connection
//! says, in part or in whole, is handed to hyper with every byte that was read, and so is the rest of
//! that connection. So hyper remains the judge of what HTTP is; the lane never refuses bytes, and the
//! answers are the same on both ways (docs/adr/0009).

mod date;
mod plain;
mod render;
mod rewound;
mod shuttle;
mod socket;

use std::future::{Future as _, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use heddle_core::clock::Clock;
use heddle_core::limits::HEADER_TIMEOUT;
use heddle_wire::from_wire;
use heddle_wire::ipc::SendBody;
use heddle_wire::problem::Problem;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFuture;

use self::date::DateCache;
use self::plain::{Plain, recognise};
use self::render::Page;
use super::{Ipc, door, routes};
use crate::outbox::accept::Answer;

pub(super) use self::rewound::Rewound;
pub(super) use self::shuttle::Shuttle;

/// A send that does not fit, head and body, goes to hyper.
const LANE_BYTES_MAX: usize = 8 << 10;

/// How a connection leaves the lane.
pub(super) enum Left<S> {
    /// It is over.
    Ended,
    /// It said something that is not for the lane: these bytes, and what follows them.
    Other(Rewound<S>),
    /// It has sent as often as it was asked to stay for: it is worth a place on the shuttle.
    Regular(Rewound<S>),
}

/// Answers plain sends until the connection ends, says something else or has sent `sends_max` times.
pub(super) async fn run<S>(ipc: &Ipc, stream: Rewound<S>, sends_max: usize) -> Left<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut buffer, mut stream) = stream.into_parts();
    let (mut start, mut end) = (0, buffer.len());
    // A connection that comes back to the lane may have said more than the lane takes.
    buffer.resize(LANE_BYTES_MAX.max(end), 0);
    let mut sends = 0;
    let mut page = Page::default();
    let mut dates = DateCache::default();
    let stop = pin!(ipc.shared.shutdown.cancelled());
    let silence = pin!(sleep(HEADER_TIMEOUT));
    let mut waits = Waits {
        clock: &*ipc.shared.clock,
        stop,
        silence,
    };
    loop {
        if sends == sends_max {
            return Left::Regular(Rewound::new(buffer, start, end, stream));
        }
        if start == end {
            match hear(&mut stream, &mut buffer, &mut waits).await {
                Some(count) => (start, end) = (0, count),
                None => return Left::Ended,
            }
        }
        let Some(plain) = recognise(&buffer[start..end]) else {
            return Left::Other(Rewound::new(buffer, start, end, stream));
        };
        let answered = guarded(ipc, &plain).await;
        let is_last = plain.is_last || ipc.shared.shutdown.is_cancelled();
        start += plain.bytes;
        sends += 1;
        let date = dates.at(ipc.shared.clock.wall());
        let text = match answered {
            Ok(Answer::Accepted(answer)) => page.accepted(&answer, is_last, date),
            Ok(Answer::Duplicate(answer)) => page.duplicate(&answer, is_last, date),
            Err(problem) => page.refused(&problem, is_last, date),
        };
        // Clients hang up all the time.
        if stream.write_all(text).await.is_err() || is_last {
            let _ = stream.shutdown().await;
            return Left::Ended;
        }
    }
}

/// What ends the wait for a client.
struct Waits<'a, 'token> {
    clock: &'a dyn Clock,
    stop: Pin<&'a mut WaitForCancellationFuture<'token>>,
    /// Armed once and put off only when it fires: a timer for each request would cost more than the
    /// request's parsing.
    silence: Pin<&'a mut Sleep>,
}

impl Waits<'_, '_> {
    /// Ready when the daemon stops or nothing has been said since `since` for too long.
    fn poll_over(&mut self, context: &mut Context<'_>, since: Duration) -> Poll<()> {
        if self.stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        while self.silence.as_mut().poll(context).is_ready() {
            let silent = self.clock.mono().saturating_sub(since);
            match HEADER_TIMEOUT.saturating_sub(silent) {
                Duration::ZERO => return Poll::Ready(()),
                left => self.silence.set(sleep(left)),
            }
        }
        Poll::Pending
    }
}

/// Waits for bytes. `None`: the client has gone or says nothing for too long, or the daemon stops.
async fn hear<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut [u8],
    waits: &mut Waits<'_, '_>,
) -> Option<usize> {
    let mut since = None;
    poll_fn(|context| {
        let mut buffer = ReadBuf::new(buffer);
        if let Poll::Ready(read) = Pin::new(&mut *stream).poll_read(context, &mut buffer) {
            let count = buffer.filled().len();
            return Poll::Ready(read.ok().map(|()| count).filter(|count| *count > 0));
        }
        let since = *since.get_or_insert_with(|| waits.clock.mono());
        waits.poll_over(context, since).map(|()| None)
    })
    .await
}

/// A panic is a bug of ours, but it takes only its own request along.
async fn guarded(ipc: &Ipc, plain: &Plain<'_>) -> Result<Answer, Problem> {
    match AssertUnwindSafe(answer(ipc, plain)).catch_unwind().await {
        Ok(answered) => answered,
        Err(_) => Err(door::stumbled()),
    }
}

async fn answer(ipc: &Ipc, plain: &Plain<'_>) -> Result<Answer, Problem> {
    let _permit = door::admit(ipc, routes::SEND)?;
    let body = match SendBody::plain(plain.body) {
        Some(body) => body,
        None => from_wire::body(plain.body)?,
    };
    routes::send::answer(ipc, plain.idempotency_key, body).await
}
