//! Reading the log by cursor: pages into the inbox of ops, applied as they come.

use heddle_core::envelope::EnvelopeKind;
use heddle_core::limits::LOG_PAGE_MAX;
use heddle_store::{NewOp, StoreError};
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
    for _ in 0..PAGES_MAX {
        let head = shared.store.sync_head(id).await?;
        let ask = Request::LogRead {
            after: head.log,
            limit: u32::try_from(LOG_PAGE_MAX).unwrap_or(u32::MAX),
        };
        let (epoch, items) = match live.request(ask).await {
            Some(ReplyResult::Log { epoch, items }) => (epoch, items),
            Some(ReplyResult::Refused(refused)) => {
                return Ok(Exchange::Later(format!(
                    "{}: {}",
                    refused.code, refused.detail
                )));
            }
            Some(_) => return Ok(Exchange::Later("the broker has no log".to_owned())),
            None => return Ok(Exchange::Later("no answer from the broker".to_owned())),
        };
        let is_end = items.is_empty();
        let ops: Vec<NewOp> = items.into_iter().map(new_op).collect();
        let member = mesh.mesh.member;
        let now = shared.clock.wall();
        let received = shared
            .store
            .receive_ops(id, member, epoch, ops, now)
            .await?;
        for (outcome, count) in [
            ("stored", received.stored),
            ("duplicate", received.duplicates),
            ("confirmed", received.confirmed),
        ] {
            metrics::counter!("heddle_sync_received_total", "outcome" => outcome).increment(count);
        }
        if received.forgotten > 0 {
            restored::notice(&shared.home, now);
        }
        if received.gap {
            metrics::counter!("heddle_sync_gaps_total").increment(1);
            if !std::mem::replace(has_reread, true) {
                tracing::warn!(mesh = %mesh.mesh.name, "an op of the log was missed; the log is read from its beginning");
                shared.store.reread_log(id).await?;
                continue;
            }
            tracing::error!(mesh = %mesh.mesh.name, "the broker's log has a gap; the mesh needs a new copy of the data");
        }
        if is_end {
            return Ok(Exchange::Done(something));
        }
        something = true;
        apply::run(shared, mesh).await?;
    }
    Ok(Exchange::More)
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
