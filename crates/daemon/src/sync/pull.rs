//! Reading the log by cursor: pages into the inbox of ops, applied as they come.

use heddle_core::envelope::EnvelopeKind;
use heddle_core::ids::HistoryId;
use heddle_core::limits::LOG_PAGE_MAX;
use heddle_store::{NewOp, ReceivedOps, StoreError};
use heddle_wire::broker::{Envelope, LogItem, ReplyResult, Request};

use super::{Exchange, apply};
use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;
use crate::upkeep::restored;

/// Pages of one tick; behind them our own ops have their turn.
const PAGES_MAX: usize = 16;

pub(super) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    has_reread: &mut bool,
) -> Result<Exchange, StoreError> {
    let id = mesh.mesh.mesh;
    let mut something = false;
    // A gap of an earlier run may have been mended since.
    if !*has_reread && shared.store.sync_head(id).await?.needs_resync {
        *has_reread = true;
        shared.store.reread_log(id).await?;
    }
    let mut asked = None;
    for number in 1..=PAGES_MAX {
        let head = shared.store.sync_head(id).await?;
        let page = match asked.take() {
            Some((after, page)) if after == head.log => page,
            _ => page(live, head.log).await,
        };
        let (epoch, items) = match page {
            Ok(page) => page,
            Err(why) => return Ok(Exchange::Later(why)),
        };
        if epoch > head.broker_epoch {
            // The history began anew under this connection: agents, topics and messages of this home may be lost there. A new
            // hello names them, and what was lost is looked for.
            shared.store.hear_epoch(id, epoch).await?;
            mesh.cut.notify_waiters();
        }
        let through = items.iter().map(|item| item.history_id).max();
        let taking = take(shared, mesh, epoch, items);
        let (received, is_applied) = match through {
            // The next page is on its way while this one is taken. IMPORTANT: asked for first, for whoever takes may commit
            // on this very task.
            Some(through) if number < PAGES_MAX => {
                let after = through.max(head.log);
                let (next, taken) = tokio::join!(self::page(live, after), taking);
                asked = Some((after, next));
                taken?
            }
            _ => taking.await?,
        };
        if received.gap {
            metrics::counter!("heddle_sync_gaps_total").increment(1);
            if !std::mem::replace(has_reread, true) {
                tracing::warn!(mesh = %mesh.mesh.name, "an op of the log was missed; the log is read from its beginning");
                shared.store.reread_log(id).await?;
                continue;
            }
            tracing::error!(mesh = %mesh.mesh.name, "the broker's log has a gap; the mesh needs a new copy of the data");
        }
        if head.needs_resync && epoch > head.broker_epoch {
            // A broker that has mended its log begins a new epoch.
            shared.store.reread_log(id).await?;
            continue;
        }
        if through.is_none() {
            return Ok(Exchange::Done(something));
        }
        something = true;
        if !is_applied {
            apply::run(shared, mesh).await?;
        }
    }
    Ok(Exchange::More)
}

/// One page behind a place, with the epoch of now; or why there is none.
async fn page(live: &Live, after: HistoryId) -> Result<(u64, Vec<LogItem>), String> {
    let limit = u32::try_from(LOG_PAGE_MAX).unwrap_or(u32::MAX);
    match live.request(Request::LogRead { after, limit }).await {
        Some(ReplyResult::Log { epoch, items }) => Ok((epoch, items)),
        Some(ReplyResult::Refused(refused)) => Err(format!("{}: {}", refused.code, refused.detail)),
        Some(_) => Err("the broker has no log".to_owned()),
        None => Err("no answer from the broker".to_owned()),
    }
}

/// Also whether its ops were applied, or wait for that.
async fn take(
    shared: &Shared,
    mesh: &MeshState,
    epoch: u64,
    items: Vec<LogItem>,
) -> Result<(ReceivedOps, bool), StoreError> {
    let ops: Vec<NewOp> = items.into_iter().map(new_op).collect();
    let (id, member) = (mesh.mesh.mesh, mesh.mesh.member);
    let now = shared.clock.wall();
    let (received, applied) = shared.store.take_page(id, member, epoch, ops, now).await?;
    for (outcome, count) in [
        ("stored", received.stored),
        ("duplicate", received.duplicates),
        ("confirmed", received.confirmed),
    ] {
        metrics::counter!("heddle_sync_received_total", "outcome" => outcome).increment(count);
    }
    if let Some(incarnation) = received.incarnation {
        tracing::warn!(incarnation, mesh = %mesh.mesh.name, "a new incarnation begins: this data.db does not know every stamp that this home has issued");
    }
    if received.forgotten > 0 {
        restored::notice(&shared.home, now);
    }
    if let Some(report) = &applied {
        apply::count(mesh, report);
    }
    Ok((received, applied.is_some()))
}

/// What cannot be an op is kept with its reason, in its place.
fn new_op(item: LogItem) -> NewOp {
    let op = match Envelope::parse(item.envelope.get().as_bytes()) {
        Err(error) => Err(error.to_string()),
        Ok(envelope) if envelope.kind != EnvelopeKind::Op => {
            Err("a message stands in the log".to_owned())
        }
        Ok(envelope) => Ok(envelope.body.into_bytes()),
    };
    NewOp {
        history_id: item.history_id,
        previous: item.previous,
        sender: item.from,
        client_message_id: item.client_message_id,
        op,
    }
}
