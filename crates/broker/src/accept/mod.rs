//! The gate of the broker: a batch of envelopes goes in, a verdict for each and the effects come out.
//!
//! IMPORTANT: the order of the phases is the contract (v10 §4.6.2). Nothing that can refuse for
//! load stands before B0, so a retry of a committed id is always answered, for free; and nothing is
//! written before the one transaction of B2 and B3, so a refusal leaves no trace.

mod b0_known;
mod b1_admit;
pub mod b2_resolve;
mod b3_commit;
mod batch;
mod effects;
mod reply;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use heddle_core::clock::{Clock, Ids, WallMs};
use heddle_core::retention::DedupeMode;
use heddle_wire::broker::{SendItem, Verdict};

pub use batch::Batch;
pub(crate) use batch::read_mentions;
pub use effects::Effects;
pub use reply::{Refusal, refused};
pub(crate) use stage::reused;
pub use stage::{Staged, Unfit};

use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::Storage;

/// The gate and what it stands on.
pub struct Accept<S, L> {
    pub storage: Arc<S>,
    pub limiter: Arc<L>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub dedupe: DedupeMode,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Decided {
    /// One for each item, in the batch's order.
    pub verdicts: Vec<Verdict>,
    /// Follows from committed rows; to be run now, never before (BR-11).
    pub effects: Effects,
}

impl<S: Storage, L: Limiter> Accept<S, L> {
    /// All four phases. The sender is authenticated already (C1).
    pub async fn accept(&self, sender: &Principal, items: Vec<SendItem>) -> Decided {
        let batch = self.admit(sender, items).await;
        self.commit(batch).await
    }

    /// B0 and B1: what can be said without a transaction.
    pub async fn admit(&self, sender: &Principal, items: Vec<SendItem>) -> Batch {
        let mut batch = Batch::read(sender, items);
        b0_known::answer(self.storage.as_ref(), &mut batch).await;
        b1_admit::admit(self.limiter.as_ref(), &mut batch).await;
        batch
    }

    /// B0 and B1 for ops of an upload: they become messages, and are committed later, all at once.
    pub async fn stage(&self, sender: &Principal, items: Vec<SendItem>, unfit: Unfit) -> Staged {
        let batch = self.admit(sender, items).await;
        stage::staged(self, batch, unfit)
    }

    /// When an id that is accepted now may be forgotten.
    pub fn expires_at(&self, from: WallMs) -> Option<WallMs> {
        b3_commit::expires_at(self.dedupe, from)
    }

    /// B2 and B3: one transaction for what is left of the batch. The store decides each message there
    /// with [`b2_resolve::resolve`]. It takes its place in line when it is first polled, so a caller
    /// keeps the order of its batches without waiting for each.
    pub async fn commit(&self, mut batch: Batch) -> Decided {
        let effects = b3_commit::commit(self, &mut batch).await;
        let verdicts = reply::verdicts(batch);
        Decided { verdicts, effects }
    }
}
