//! The event stream: the inbox table read forward, with a hint to look again, and the daemon's own
//! events in between.
//!
//! Because every message comes from its row, a reader that resumes behind the last id it saw misses
//! none (IN-05), however long it was away. A slow reader costs one chunk of memory: nothing is read
//! from the table before the last chunk was taken (C16).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use heddle_core::error_code::ErrorCode;
use heddle_store::InboxFilter;
use heddle_wire::ipc::{EVENT_GAP, EVENT_MESSAGE};
use heddle_wire::problem::Problem;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, watch};

use super::Ipc;
use super::routes::inbox::item;
use crate::events::Event;

/// A comment after this much silence shows both sides that the other is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Rows read at once.
const ROWS_PER_LOOK: usize = 100;

struct Reader {
    ipc: Arc<Ipc>,
    filter: InboxFilter,
    hint: watch::Receiver<i64>,
    events: broadcast::Receiver<Event>,
    /// What to say first.
    greeting: Option<String>,
    _permit: OwnedSemaphorePermit,
}

/// Opens a stream behind `filter.after`. `gap`: retention took items up to there, which the reader may
/// have missed.
pub(super) fn open(
    ipc: Arc<Ipc>,
    filter: InboxFilter,
    gap: Option<i64>,
) -> Result<Response, Problem> {
    let permit = Arc::clone(&ipc.load.streams)
        .try_acquire_owned()
        .map_err(|_| {
            Problem::new(
                ErrorCode::TooManyStreams,
                "32 event streams are open already",
            )
        })?;
    let reader = Reader {
        hint: ipc.shared.arrivals.subscribe(),
        events: ipc.shared.events.subscribe(),
        filter: InboxFilter {
            limit: ROWS_PER_LOOK,
            ..filter
        },
        greeting: Some(greeting(gap)),
        ipc,
        _permit: permit,
    };
    let mut response = Response::new(Body::new(StreamBody::new(chunks(reader))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Goes out at once, so that the client knows that it is connected.
fn greeting(gap: Option<i64>) -> String {
    match gap {
        None => ": hello\n\n".to_owned(),
        Some(through) => {
            format!(": hello\n\nevent: {EVENT_GAP}\ndata: {{\"pruned_through\":\"{through}\"}}\n\n")
        }
    }
}

/// An event of the daemon as text. Without an id: it must not move the place to resume from.
fn told(event: Result<Event, RecvError>) -> Option<String> {
    match event {
        Ok(event) => {
            let data = serde_json::to_string(&event).unwrap_or_default();
            Some(format!("event: {}\ndata: {data}\n\n", event.name()))
        }
        Err(RecvError::Lagged(missed)) => Some(format!(": {missed} events were missed\n\n")),
        // The bus lives as long as the daemon.
        Err(RecvError::Closed) => None,
    }
}

fn chunks(reader: Reader) -> impl Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> {
    stream::unfold(reader, |mut reader| async move {
        let text = reader.next_chunk().await?;
        Some((Ok(Frame::data(Bytes::from(text))), reader))
    })
}

impl Reader {
    /// The next events as text; `None` ends the stream.
    async fn next_chunk(&mut self) -> Option<String> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        loop {
            self.hint.mark_unchanged();
            let rows = match self.ipc.shared.store.inbox_page(self.filter.clone()).await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%error, "an event stream ended");
                    return None;
                }
            };
            if let Some(last) = rows.last() {
                self.filter.after = Some(last.arrival);
                return Some(rows.iter().map(|row| self.event(row)).collect());
            }
            tokio::select! {
                _ = self.hint.changed() => {}
                event = self.events.recv() => return told(event),
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(": still here\n\n".to_owned()),
                () = self.ipc.shared.shutdown.cancelled() => return None,
            }
        }
    }

    fn event(&self, row: &heddle_store::InboxRow) -> String {
        let data = serde_json::to_string(&item(&self.ipc.shared, row)).unwrap_or_default();
        format!(
            "id: {}\nevent: {EVENT_MESSAGE}\ndata: {data}\n\n",
            row.arrival
        )
    }
}
