//! Reads frames until the connection ends, and hands them to the lane.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use heddle_wire::broker::{AckItem, ClientFrame, PartBytes, Request, SendItem};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, Message};

use super::config::IDLE_WORDS_MAX;
use super::decode;
use super::ending::Ending;
use super::hub::Session;

/// What a connection asks for, in the order in which it asked.
pub(super) enum Work {
    Send { batch: u64, items: Vec<SendItem> },
    Ack(Vec<AckItem>),
    Request { request: u64, body: Request },
    Part { ask: u64, data: Option<PartBytes> },
}

/// Returns why no more is read. The deadline is for the peer alone: time that the lane takes is ours.
pub(super) async fn run<R>(
    frames: &mut R,
    lane: &mpsc::Sender<Work>,
    session: &Session,
    ping_deadline: Duration,
) -> Ending
where
    R: Stream<Item = tungstenite::Result<Message>> + Unpin,
{
    loop {
        let Ok(heard) = timeout(ping_deadline, frames.next()).await else {
            return Ending::PeerSilent;
        };
        session.hear();
        let work = match frame(heard) {
            Ok(None) if session.idle_word() > IDLE_WORDS_MAX => {
                return malformed(Ending::Malformed("too_many_pings"));
            }
            Ok(None) => continue,
            Ok(Some(ClientFrame::Send { batch, items })) => Work::Send { batch, items },
            Ok(Some(ClientFrame::Ack { items })) => Work::Ack(items),
            Ok(Some(ClientFrame::Request { request, body })) => Work::Request { request, body },
            Ok(Some(ClientFrame::BlobPart { ask, data })) => Work::Part { ask, data },
            Ok(Some(ClientFrame::Hello { .. } | ClientFrame::Claim { .. })) => {
                return Ending::Malformed("second_hello");
            }
            Err(ending) => return ending,
        };
        if lane.send(work).await.is_err() {
            return Ending::Internal;
        }
    }
}

/// What was heard, as a frame; `None` for what only shows that the peer lives.
pub(super) fn frame(
    heard: Option<tungstenite::Result<Message>>,
) -> Result<Option<ClientFrame>, Ending> {
    let message = match heard {
        None => return Err(Ending::PeerClosed),
        Some(message) => message.map_err(|error| ending_of(&error))?,
    };
    match message {
        Message::Text(text) => match decode::client_frame(&text) {
            Ok(frame) => Ok(Some(frame)),
            Err(reason) => Err(malformed(Ending::Malformed(reason))),
        },
        Message::Ping(_) | Message::Pong(_) => Ok(None),
        Message::Close(_) => Err(Ending::PeerClosed),
        Message::Binary(_) | Message::Frame(_) => Err(malformed(Ending::Unsupported)),
    }
}

fn ending_of(error: &tungstenite::Error) -> Ending {
    match error {
        tungstenite::Error::Capacity(_) => malformed(Ending::TooLarge),
        tungstenite::Error::Utf8(_) => malformed(Ending::Malformed("not_utf8")),
        tungstenite::Error::Protocol(
            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
        ) => Ending::PeerClosed,
        tungstenite::Error::Protocol(_) => malformed(Ending::NotWebSocket),
        _ => Ending::PeerClosed,
    }
}

/// Counted: nobody of ours speaks like that.
fn malformed(ending: Ending) -> Ending {
    metrics::counter!("heddle_broker_frames_malformed_total").increment(1);
    ending
}
