//! The story of a message after its accept: receipts per recipient, and what can be told of an id.
//!
//! **Receipts rise.** `acked` implies `shown`, `shown` implies `delivered`. The first time of a level
//! stays; a repeated or late receipt changes nothing.
//!
//! **Telling decides nothing.** The limiter's note is kept for explanations only (RL-10).

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::envelope::{DestinationKind, Priority};
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{AgentName, MemberName};
use heddle_core::work::WorkState;

use super::contract::Answer;
use super::presence::LeaseMs;
use super::rows::{Consumed, Delivery, DeliveryPlace, PageLimit, SendId};

/// How far a recipient's side has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiptLevel {
    Shown,
    Acked,
}

/// One step of one delivery, as the receiving side tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub history_id: HistoryId,
    pub agent: AgentName,
    pub level: ReceiptLevel,
    pub at: WallMs,
}

/// What the limiter said when a message was let in. Telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterNote {
    pub window: u64,
    pub counted: bool,
}

/// When a delivery reached each level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels {
    pub delivered_at: Option<WallMs>,
    pub shown_at: Option<WallMs>,
    pub acked_at: Option<WallMs>,
}

impl Levels {
    /// As they must have been reached: an ack that was lost comes later than what was shown in the meantime, and the
    /// clocks of two homes differ.
    #[must_use]
    pub fn in_order(self) -> Self {
        let earlier = |level: Option<WallMs>, next: Option<WallMs>| level.min(next.or(level));
        let shown_at = earlier(self.shown_at, self.acked_at);
        Self {
            delivered_at: earlier(self.delivered_at, shown_at),
            shown_at,
            acked_at: self.acked_at,
        }
    }
}

/// A delivery that its recipient's home acknowledged once, with how far it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub delivery: Delivery,
    pub levels: Levels,
}

/// A page of them, by priority and then in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldPage {
    pub items: Vec<Held>,
    /// Deliveries that this page has passed because their bodies were pruned.
    pub gone: u64,
    /// Where the next one begins; `None` behind the last.
    pub next: Option<(Priority, DeliveryPlace)>,
}

/// Rows that one page may pass whose bodies are gone: a read has its end.
const GONE_MAX: u64 = 10_000;

/// A page that is being filled, row by row.
pub(super) struct HeldFilling {
    page: HeldPage,
    limit: PageLimit,
    bytes: usize,
}

impl HeldFilling {
    pub(super) fn new(limit: PageLimit) -> Self {
        Self {
            page: HeldPage::default(),
            limit,
            bytes: 0,
        }
    }

    /// `None` for a row whose message is gone. False if the page is full: then the row is the next one's.
    pub(super) fn take(&mut self, held: Option<Held>) -> bool {
        self.bytes += held.as_ref().map_or(0, |held| held.delivery.envelope.len());
        let is_full = self.page.items.len() >= self.limit.rows_max || self.page.gone >= GONE_MAX;
        if is_full || (self.bytes > self.limit.bytes_max && !self.page.items.is_empty()) {
            return false;
        }
        match held {
            Some(held) => self.page.items.push(held),
            None => self.page.gone += 1,
        }
        true
    }

    pub(super) fn end(mut self, next: Option<(Priority, DeliveryPlace)>) -> HeldPage {
        self.page.next = next;
        self.page
    }
}

/// One recipient of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    pub party: Party,
    /// Its name now.
    pub member_name: MemberName,
    pub levels: Levels,
}

/// Where a message to a queue stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkStory {
    pub state: WorkState,
    pub fence: u64,
    pub delivery_count: u64,
    /// Of the latest lease, with its name now.
    pub holder: Option<(Party, MemberName)>,
    pub leased_until: Option<LeaseMs>,
    /// When the latest lease began.
    pub taken_at: Option<WallMs>,
    pub acked_at: Option<WallMs>,
}

/// Everything that the tables hold of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub consumed: Consumed,
    pub expires_at: Option<WallMs>,
    pub destination_kind: DestinationKind,
    pub destination_ref: String,
    pub limiter: Option<LimiterNote>,
    /// Sorted by member and agent.
    pub recipients: Vec<Recipient>,
    pub work: Option<WorkStory>,
}

pub trait Story: Send + Sync + 'static {
    /// Takes receipts of this member; returns how many changed something. Those of deliveries that do
    /// not exist are passed over.
    fn receipts(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Receipt>,
    ) -> impl Future<Output = Answer<usize>> + Send;

    /// What the store holds of an id; `None` if nothing. Writes nothing.
    fn explain(
        &self,
        mesh: MeshId,
        id: SendId,
    ) -> impl Future<Output = Answer<Option<Explanation>>> + Send;

    /// Places at which this agent was mentioned, in order.
    fn mentions_after(
        &self,
        mesh: MeshId,
        agent: &Party,
        after: HistoryId,
        rows_max: usize,
    ) -> impl Future<Output = Answer<Vec<HistoryId>>> + Send;

    /// What this member has acknowledged, behind `after`: for a home that lost it. Writes nothing. A store
    /// that cannot tell gives an empty last page.
    fn deliveries_held(
        &self,
        _mesh: MeshId,
        _member: MemberId,
        _after: (Priority, DeliveryPlace),
        _limit: PageLimit,
    ) -> impl Future<Output = Answer<HeldPage>> + Send {
        std::future::ready(Ok(HeldPage::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_level_is_told_as_reached_after_the_next_one() {
        let levels = |[delivered, shown, acked]: [Option<i64>; 3]| Levels {
            delivered_at: delivered.map(WallMs),
            shown_at: shown.map(WallMs),
            acked_at: acked.map(WallMs),
        };
        for (found, told) in [
            ([Some(1), Some(2), Some(3)], [Some(1), Some(2), Some(3)]),
            ([Some(9), Some(2), Some(3)], [Some(2), Some(2), Some(3)]),
            ([Some(9), Some(8), Some(3)], [Some(3), Some(3), Some(3)]),
            ([Some(9), Some(2), None], [Some(2), Some(2), None]),
            ([Some(9), None, None], [Some(9), None, None]),
            ([None, None, None], [None, None, None]),
        ] {
            assert_eq!(levels(found).in_order(), levels(told), "{found:?}");
        }
    }
}
