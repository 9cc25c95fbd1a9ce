//! One connection from welcome to its end: a reader, a writer, a receiver and the drain.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use heddle_core::ids::HistoryId;
use heddle_core::limits::{PING_DEADLINE, PING_INTERVAL, SEND_BUFFER_FRAMES_MAX};
use heddle_core::negotiate::CloseCode;
use heddle_store::StoreError;
use heddle_wire::broker::{Delivery, Roster, ServerFrame};
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_util::sync::CancellationToken;

use super::live::Live;
use super::{LinkStream, handshake};
use crate::events::Event;
use crate::files::serve::{self, Ask};
use crate::inbox::{receipts, receive, recover};
use crate::membership::{Barred, Unfit};
use crate::mesh::MeshState;
use crate::outbox::lost::Forgotten;
use crate::outbox::{drain, lost, second_look};
use crate::shared::Shared;

/// Delivery frames that wait for the store. Beyond it the reader waits, and the broker's window fills.
const DELIVER_FRAMES_MAX: usize = 16;

pub(crate) enum SessionEnd {
    /// The daemon stops.
    Stopped,
    /// The broker cannot be worked with; trying again soon would not help.
    Unfit(Unfit),
    /// Something of our own is broken, and only a start mends it.
    Broken(String),
    /// Another process connected under this identity. Coming back at once would throw it out again.
    Replaced(String),
    /// The broker does not know this home as a member, or not any more.
    NotLetIn(Barred),
    /// Another broker is where ours was. It may be there by mistake, and ours may come back.
    Stranger(Barred),
    Lost {
        why: String,
        was_live: bool,
    },
}

pub(super) async fn run(
    shared: &Arc<Shared>,
    mesh: &Arc<MeshState>,
    mut ws: LinkStream,
) -> SessionEnd {
    let welcomed = tokio::select! {
        result = handshake::handshake(shared, mesh, &mut ws) => match result {
            Ok(welcomed) => welcomed,
            Err(end) => return end,
        },
        () = shared.shutdown.cancelled() => return SessionEnd::Stopped,
    };
    let stock = take_stock(shared, mesh, (welcomed.roster, welcomed.epoch)).await;
    let (roster, forgotten, before) = match stock {
        Ok(stock) => stock,
        Err(error) => return handshake::lost(&error.to_string()),
    };
    mesh.set_roster(shared, roster).await;
    let (outgoing, outgoing_frames) = mpsc::channel(SEND_BUFFER_FRAMES_MAX);
    let (deliver, deliveries) = mpsc::channel(DELIVER_FRAMES_MAX);
    let live = Arc::new(Live::new(outgoing).with(welcomed.offers));
    let (ask, asks) = serve::questions();
    let (sink, stream) = ws.split();
    let lost = CancellationToken::new();
    // A task of its own: rows that it took must be settled whatever becomes of the connection.
    let ready = Arc::new(Notify::new());
    let draining = tokio::spawn(drain_when(
        Arc::clone(&ready),
        (Arc::clone(shared), Arc::clone(mesh)),
        Arc::clone(&live),
        lost.clone(),
    ));
    mesh.set_live(Some(Arc::clone(&live)));
    tracing::info!(mesh = %mesh.mesh.name, broker = %mesh.broker(), "connected");
    shared.events.publish(Event::Connected {
        mesh: mesh.mesh.name.to_string(),
        broker: mesh.broker(),
    });

    let mut draining = draining;
    let end = tokio::select! {
        end = read_frames(stream, shared, mesh, &live, (deliver, ask)) => end,
        why = write_frames(sink, outgoing_frames) => lost_live(why),
        why = receive::run(shared, mesh, &live, deliveries) => lost_live(why),
        why = serve::run(shared, mesh, &live, asks) => lost_live(why),
        () = mesh.cut.notified() => lost_live("this home makes the connection anew: the mesh was to be published elsewhere, or its history began anew".to_owned()),
        never = tell_and_ask(shared, mesh, &live, (&forgotten, &ready), before) => match never {},
        // The drain ends by itself only when the daemon stops and nothing is in flight any more.
        ended = &mut draining => match ended {
            Ok(()) => SessionEnd::Stopped,
            // Rows that it had taken are in flight with nobody to settle them: only a start mends that.
            Err(_) => SessionEnd::Broken("the drain ended unexpectedly".to_owned()),
        },
    };
    mesh.set_live(None);
    lost.cancel();
    live.hang_up();
    if let SessionEnd::Lost { why, .. } | SessionEnd::NotLetIn(Barred { why, .. }) = &end {
        shared.events.publish(Event::Disconnected {
            mesh: mesh.mesh.name.to_string(),
            why: why.clone(),
        });
    }
    mesh.note_lost(shared, live.heard()).await;
    if !draining.is_finished() {
        let _ = draining.await;
    }
    end
}

/// The drain, as soon as everything is there that it may send to.
async fn drain_when(
    ready: Arc<Notify>,
    (shared, mesh): (Arc<Shared>, Arc<MeshState>),
    live: Arc<Live>,
    lost: CancellationToken,
) {
    tokio::select! {
        () = ready.notified() => {}
        () = lost.cancelled() => return,
        () = shared.shutdown.cancelled() => return,
    }
    drain::run(shared, mesh, live, lost).await;
}

/// What is known before anything of this connection can come in: the roster, what the broker has lost of it, and how far
/// this home had heard.
async fn take_stock(
    shared: &Shared,
    mesh: &MeshState,
    (roster, epoch): (Roster, u64),
) -> Result<(Roster, Forgotten, HistoryId), StoreError> {
    let (roster, forgotten) = lost_topics(shared, mesh, roster, epoch).await?;
    let before = shared.store.delivery_cursor(mesh.mesh.mesh).await?;
    Ok((roster, forgotten, before))
}

/// In a new epoch: what the broker has lost of the topics that this home knew, and the roster with them, which is what is
/// remembered until they are there again.
async fn lost_topics(
    shared: &Shared,
    mesh: &MeshState,
    mut roster: Roster,
    epoch: u64,
) -> Result<(Roster, Forgotten), StoreError> {
    if epoch <= shared.store.lost_looked(mesh.mesh.mesh).await? {
        return Ok((roster, Forgotten::default()));
    }
    let forgotten = mesh.forgotten_by(&roster);
    forgotten.add_to(&mut roster, mesh.mesh.member);
    Ok((roster, forgotten))
}

/// Reports what was read here, asks for what was lost here, and sends again what was lost there.
async fn tell_and_ask(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    again: (&Forgotten, &Notify),
    before: HistoryId,
) -> Infallible {
    let (never, (), (), ()) = tokio::join!(
        receipts::run(shared, mesh, live),
        recover::run(shared, mesh, live, before),
        lost::run(shared, mesh, live, again),
        second_look::run(shared, mesh),
    );
    never
}

fn lost_live(why: String) -> SessionEnd {
    SessionEnd::Lost {
        why,
        was_live: true,
    }
}

async fn read_frames(
    mut stream: SplitStream<LinkStream>,
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    (deliver, ask_for): (mpsc::Sender<Vec<Delivery>>, mpsc::Sender<Ask>),
) -> SessionEnd {
    let lost = |why: &str| lost_live(why.to_owned());
    loop {
        let message = match tokio::time::timeout(PING_DEADLINE, stream.next()).await {
            Err(_) => return lost("the broker fell silent"),
            Ok(None) => return lost("the broker closed the connection"),
            Ok(Some(Err(error))) => return lost(&handshake::broken(&error)),
            Ok(Some(Ok(message))) => message,
        };
        live.hear(shared.clock.wall());
        let text = match message {
            Message::Text(text) => text,
            Message::Close(frame) => {
                let why = close_reason(frame.as_ref());
                let code = frame.as_ref().map_or(0, |frame| u16::from(frame.code));
                if code == CloseCode::ReplacedByNewer.number() {
                    return SessionEnd::Replaced(why);
                }
                return not_let_in(code, &why).unwrap_or_else(|| lost_live(why));
            }
            _ => continue,
        };
        match ServerFrame::parse(&text) {
            Ok(ServerFrame::Verdicts {
                batch,
                items,
                epoch,
            }) => live.settle_verdicts(batch, items, epoch),
            // Beyond its bound nobody asks; then the asker's time runs out.
            Ok(ServerFrame::BlobAsked { ask, part }) => {
                let _ = ask_for.try_send(Ask { ask, part });
            }
            Ok(ServerFrame::LogGrew {}) => mesh.sync.wake(),
            Ok(ServerFrame::Reply { request, result }) => live.settle_reply(request, result),
            Ok(ServerFrame::Roster { roster }) => mesh.set_roster(shared, roster).await,
            // Whoever waits looks again; which queue it is, the look finds out.
            Ok(ServerFrame::Work { .. }) => mesh.work.notify_waiters(),
            Ok(ServerFrame::Deliver { items }) => {
                if deliver.send(items).await.is_err() {
                    return lost("the inbox stopped");
                }
            }
            Ok(
                ServerFrame::Challenge { .. }
                | ServerFrame::Welcome { .. }
                | ServerFrame::Claimed { .. }
                | ServerFrame::Refused(_),
            ) => {
                return lost("the broker greeted twice");
            }
            Err(error) => {
                // IN-06: counted and refused; the loop goes on.
                metrics::counter!("heddle_link_malformed_frames_total").increment(1);
                tracing::warn!(%error, "a frame from the broker was not understood");
            }
        }
    }
}

async fn write_frames(
    mut sink: SplitSink<LinkStream, Message>,
    mut frames: mpsc::Receiver<String>,
) -> String {
    loop {
        let message = match tokio::time::timeout(PING_INTERVAL, frames.recv()).await {
            Ok(Some(text)) => Message::text(text),
            Ok(None) => return "the session ended".to_owned(),
            Err(_) => Message::Ping(Vec::new().into()),
        };
        match tokio::time::timeout(PING_DEADLINE, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "the broker takes no bytes".to_owned(),
        }
    }
}

/// Why a broker closed: the close codes that no retry can heal stop the mesh.
pub(super) fn closed(frame: Option<&CloseFrame>) -> SessionEnd {
    let why = close_reason(frame);
    match frame.map(|frame| u16::from(frame.code)) {
        Some(4010..=4012) => SessionEnd::Unfit(Unfit::broker(why)),
        // Tried again soon: the other may be an earlier connection of ours that the broker takes for alive.
        Some(code) if code == CloseCode::RefusedForOlder.number() => handshake::lost(&format!(
            "another process uses this home's identity and was there first ({why}); stop one of the two"
        )),
        // Tried again like a broker that is away: an owner may lift it at any moment.
        Some(code) if code == CloseCode::MemberBlocked.number() => handshake::lost(&format!(
            "this home is blocked in the mesh; ask its owner to grant it a role again ({why})"
        )),
        code => not_let_in(code.unwrap_or(0), &why).unwrap_or_else(|| handshake::lost(&why)),
    }
}

/// The close codes that say that this home is no member (any more).
fn not_let_in(code: u16, why: &str) -> Option<SessionEnd> {
    let barred = if code == CloseCode::MemberRevoked.number() {
        Barred::revoked(why)
    } else if code == CloseCode::Unauthenticated.number() {
        Barred::unknown(why)
    } else {
        return None;
    };
    Some(SessionEnd::NotLetIn(barred))
}

fn close_reason(frame: Option<&CloseFrame>) -> String {
    match frame {
        Some(frame) => format!(
            "closed by the broker: {} {}",
            u16::from(frame.code),
            frame.reason
        ),
        None => "closed by the broker".to_owned(),
    }
}
