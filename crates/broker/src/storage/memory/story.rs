//! Receipts and explanations of the oracle.

use std::ops::Bound;

use heddle_core::envelope::Priority;
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::MemberName;

use super::super::error::StorageError;
use super::super::rows::{Ack, DeliveryPlace, Destination, PageLimit, SendId};
use super::super::story::{
    Explanation, Held, HeldPage, Levels, Receipt, ReceiptLevel, Recipient, Story, WorkStory,
};
use super::MemoryStorage;
use super::tables::Tables;

/// The levels after a receipt: the first time of each stays.
fn raised(levels: Levels, receipt: &Receipt) -> Levels {
    let at = Some(receipt.at);
    Levels {
        delivered_at: levels.delivered_at.or(at),
        shown_at: levels.shown_at.or(at),
        acked_at: match receipt.level {
            ReceiptLevel::Shown => levels.acked_at,
            ReceiptLevel::Acked => levels.acked_at.or(at),
        },
    }
}

impl Tables {
    fn receipts(&mut self, member: MemberId, items: &[Receipt]) -> usize {
        let rows = self.deliveries.entry(member).or_default();
        let mut changed = 0;
        for receipt in items {
            let key = Ack {
                history_id: receipt.history_id,
                agent: receipt.agent.clone(),
            };
            if let Some(row) = rows.get_mut(&key) {
                let after = raised(row.levels, receipt);
                changed += usize::from(after != row.levels);
                row.levels = after;
            }
        }
        changed
    }

    fn name_of(&self, member: MemberId) -> Option<MemberName> {
        self.members.get(&member).map(|row| row.name.clone())
    }

    fn explain(&self, id: &SendId) -> Option<Explanation> {
        let key = (id.sender.clone(), id.client_message_id.clone());
        let row = self.dedupe.get(&key)?;
        let at = row.consumed.history_id;
        let mut recipients = Vec::new();
        for (member, rows) in &self.deliveries {
            for (ack, delivery) in rows.iter().filter(|(ack, _)| ack.history_id == at) {
                recipients.push(Recipient {
                    party: Party {
                        member: *member,
                        agent: ack.agent.clone(),
                    },
                    member_name: self.name_of(*member)?,
                    levels: delivery.levels,
                });
            }
        }
        recipients.sort_by(|a, b| a.party.cmp(&b.party));
        Some(Explanation {
            consumed: row.consumed,
            expires_at: row.expires_at,
            destination_kind: row.destination.kind(),
            destination_ref: row.destination.to_string(),
            limiter: row.limiter,
            recipients,
            work: self.work_story(&row.destination, at),
        })
    }

    fn work_story(&self, destination: &Destination, at: HistoryId) -> Option<WorkStory> {
        let Destination::Queue(queue) = destination else {
            return None;
        };
        let work = self.queues.get(queue)?.items.get(&at)?;
        let holder = work.holder.clone();
        Some(WorkStory {
            state: work.state(),
            fence: work.fence,
            delivery_count: work.delivery_count,
            holder: holder.and_then(|party| Some((party.clone(), self.name_of(party.member)?))),
            leased_until: work.leased_until,
            taken_at: work.taken_at,
            acked_at: work.acked_at,
        })
    }
}

impl Story for MemoryStorage {
    async fn receipts(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Receipt>,
    ) -> Result<usize, StorageError> {
        self.on(mesh, |tables| Ok(tables.receipts(member, &items)))
    }

    async fn explain(&self, mesh: MeshId, id: SendId) -> Result<Option<Explanation>, StorageError> {
        self.on(mesh, |tables| Ok(tables.explain(&id)))
    }

    async fn mentions_after(
        &self,
        mesh: MeshId,
        agent: &Party,
        after: HistoryId,
        rows_max: usize,
    ) -> Result<Vec<HistoryId>, StorageError> {
        self.on(mesh, |tables| {
            let from = Bound::Excluded((agent.clone(), after));
            let places = tables.mentions.range((from, Bound::Unbounded));
            Ok(places
                .take_while(|(party, _)| party == agent)
                .take(rows_max)
                .map(|(_, place)| *place)
                .collect())
        })
    }

    async fn deliveries_held(
        &self,
        mesh: MeshId,
        member: MemberId,
        (first, place): (Priority, DeliveryPlace),
        limit: PageLimit,
    ) -> Result<HeldPage, StorageError> {
        self.on(mesh, |tables| {
            let after = (first.rank(), place.history_id, place.agent.as_str());
            let rows = tables.deliveries.get(&member).into_iter().flatten();
            let mut held: Vec<_> = rows
                .filter(|(_, row)| row.levels.delivered_at.is_some())
                .map(|(ack, row)| {
                    (
                        (row.priority.rank(), ack.history_id, ack.agent.as_str()),
                        ack,
                        row,
                    )
                })
                .filter(|(at, ..)| *at > after)
                .collect();
            held.sort_by_key(|(at, ..)| *at);
            let mut page = HeldPage::default();
            let mut last = (first, place.clone());
            let mut bytes = 0;
            for (_, ack, row) in held {
                let found = tables.delivery(ack.history_id, &ack.agent);
                bytes += found.as_ref().map_or(0, |delivery| delivery.envelope.len());
                let is_too_much = bytes > limit.bytes_max && !page.items.is_empty();
                if page.items.len() >= limit.rows_max || is_too_much {
                    page.next = Some(last);
                    return Ok(page);
                }
                last = (
                    row.priority,
                    DeliveryPlace {
                        history_id: ack.history_id,
                        agent: ack.agent.to_string(),
                    },
                );
                match found {
                    None => page.gone += 1,
                    Some(delivery) => page.items.push(Held {
                        delivery,
                        levels: row.levels,
                    }),
                }
            }
            Ok(page)
        })
    }
}
