//! Federation: slices of records that other stores take in, and what becomes of theirs here.
//!
//! A slice is headed by `(origin_id, origin_epoch, seq)` and holds one origin's own records. Memory is last writer
//! wins by `(entity_rev, origin_id)`, without a clock; what was written at the same time in two places becomes a
//! conflict candidate with both images, never a silent loss. Claims and runs belong to their origin and are shown
//! here under its name, read-only. The envelope knows no origins: a `federation_apply` record, the first of its
//! batch, says which of the records behind it came from where.

mod candidate;
mod export;
mod history;
mod import;
mod judge;
mod origin;
mod plan;
mod privacy;
mod provenance;
mod slice;

pub use export::{ExportAsk, Exported};
pub use import::Imported;
pub use origin::{Origin, Renew};
pub use provenance::{Federated, Lineage, Mark, Provenance, Source, Taken, is_origin_id};
pub use slice::{Header, SLICE_BYTES_MAX, SliceRecord};

pub(crate) use candidate::{CANDIDATE, is_one as is_conflict, prefix_of};

use serde_json::value::RawValue;

use crate::action::Action;
use crate::lines::Counted;
use crate::notes::{AppliedHead, FederationApply, MetaPayload};
use crate::record::Record;

/// The slice whose records stand in a batch.
#[derive(Debug)]
pub(crate) struct Applied {
    /// Of the `federation_apply` record; the records follow it one by one.
    seq: u64,
    pub(crate) apply: FederationApply,
}

impl Applied {
    /// Where a record of this batch came from; None: it is this store's own.
    pub(crate) fn head_of(&self, record: &Record<'_>) -> Option<&AppliedHead> {
        let index = record.seq.checked_sub(self.seq + 1)?;
        let head = self.apply.heads.get(usize::try_from(index).ok()?)?;
        let is_it = record.item_type.as_str() == head.item_type
            && record.entity_rev == Some(head.entity_rev)
            && record
                .item_id
                .as_ref()
                .is_some_and(|id| id.as_str() == head.item_id);
        is_it.then_some(head)
    }
}

/// A batch that took a slice in begins with the record that says so.
pub(crate) fn applied_in(batch: &[Counted<'_>]) -> Option<Applied> {
    let record = &batch.first()?.record;
    if record.action != Action::FederationApply {
        return None;
    }
    let payload = record.payload.map(RawValue::get)?;
    match MetaPayload::parse(record.action, payload) {
        Some(MetaPayload::FederationApply(apply)) => Some(Applied {
            seq: record.seq,
            apply,
        }),
        _ => None,
    }
}

pub(crate) fn provenance_of(apply: &FederationApply, head: &AppliedHead) -> Provenance {
    Provenance {
        from: Some(Source {
            origin_id: apply.origin_id.clone(),
            origin_epoch: apply.origin_epoch,
            seq: head.seq,
        }),
        lineage: head.lineage.clone(),
    }
}

/// An entity of another origin's execution, as it is called here; None where the id would be too long.
pub(crate) fn foreign_id(origin_id: &str, item_id: &str) -> Option<String> {
    let id = format!("{origin_id}.{item_id}");
    crate::format::is_item_id(&id).then_some(id)
}

/// Whose an entity of execution is, where it is not ours.
pub(crate) fn owner_of(item_id: &str) -> Option<&str> {
    let (origin_id, _) = item_id.split_once('.')?;
    is_origin_id(origin_id).then_some(origin_id)
}
