//! One mesh as ordered maps, with the operations that are more than a look-up.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MemberId, Party};
use heddle_core::limits::RECIPIENTS_MAX;
use heddle_core::membership::Capabilities;
use heddle_core::names::{AgentName, MemberName, MeshName, QueueName, TopicName};

use super::super::error::StorageError;
use super::super::left_out::LeftOut;
use super::super::presence::LeaseMs;
use super::super::rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, Destination, HistoryRow, Look, NewMessage,
    PageLimit, Roster, RosterTopic, SendId,
};
use super::super::snapshots::Kept;
use super::super::story::{Levels, LimiterNote};
use super::super::uploads::Upload;
use super::queues::Queue;
use crate::accept::b2_resolve::{Resolution, barred, resolve};

pub(super) struct Member {
    pub(super) name: MemberName,
    pub(super) generation: u64,
    /// When its last session ended.
    pub(super) seen_at: Option<WallMs>,
    pub(super) sessions: BTreeMap<u64, Session>,
}

pub(super) struct Session {
    pub(super) since: WallMs,
    pub(super) until: LeaseMs,
}

/// A consumed id.
pub(super) struct DedupeRow {
    pub(super) consumed: Consumed,
    pub(super) destination: Destination,
    pub(super) expires_at: Option<WallMs>,
    pub(super) limiter: Option<LimiterNote>,
}

/// A place of history.
pub(super) struct Place {
    pub(super) broker_message_id: BrokerMessageId,
    /// The id that led here was forgotten.
    pub(super) is_expired: bool,
}

/// One message for one mailbox.
pub(super) struct DeliveryRow {
    pub(super) priority: Priority,
    pub(super) levels: Levels,
}

pub(super) struct Tables {
    pub(super) name: MeshName,
    pub(super) epoch: u64,
    pub(super) next_seq: u64,
    pub(super) members: BTreeMap<MemberId, Member>,
    pub(super) agents: BTreeSet<Party>,
    pub(super) topics: BTreeMap<TopicName, BTreeSet<Party>>,
    pub(super) queues: BTreeMap<QueueName, Queue>,
    /// Consumed ids, under the text of sender and id: no digest takes part here.
    pub(super) dedupe: BTreeMap<(Party, ClientMessageId), DedupeRow>,
    pub(super) messages: BTreeMap<BrokerMessageId, NewMessage>,
    pub(super) history: BTreeMap<HistoryId, Place>,
    /// Places of ops, each with the op before it.
    pub(super) log: BTreeMap<HistoryId, HistoryId>,
    pub(super) deliveries: BTreeMap<MemberId, BTreeMap<Ack, DeliveryRow>>,
    pub(super) mentions: BTreeSet<(Party, HistoryId)>,
    /// What senders were granted by whom, where that is not everything.
    pub(super) grants: BTreeMap<(MemberId, MemberId), Capabilities>,
    /// Who got no delivery for want of a grant.
    pub(super) withheld: BTreeSet<(HistoryId, MemberId)>,
    /// The newest lease time that was handed in.
    pub(super) lease_time: LeaseMs,
    pub(super) upkeep: super::upkeep::Notes,
    pub(super) book: super::members::Book,
    pub(super) snapshot: Option<Kept>,
    /// Of each member: how far it is, and its staged rows.
    pub(super) uploads: BTreeMap<MemberId, (Upload, Vec<NewMessage>)>,
    /// What the commits of these have passed over.
    pub(super) left_out: BTreeMap<MemberId, LeftOut>,
}

impl Tables {
    pub(super) fn new(name: MeshName) -> Self {
        Self {
            name,
            epoch: 1,
            next_seq: 1,
            members: BTreeMap::new(),
            agents: BTreeSet::new(),
            topics: BTreeMap::new(),
            queues: BTreeMap::new(),
            dedupe: BTreeMap::new(),
            messages: BTreeMap::new(),
            history: BTreeMap::new(),
            log: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            mentions: BTreeSet::new(),
            grants: BTreeMap::new(),
            withheld: BTreeSet::new(),
            lease_time: LeaseMs::default(),
            upkeep: super::upkeep::Notes::default(),
            book: super::members::Book::default(),
            snapshot: None,
            uploads: BTreeMap::new(),
            left_out: BTreeMap::new(),
        }
    }

    pub(super) fn ensure_member(&mut self, member: MemberId, name: &MemberName) -> bool {
        match self.members.entry(member) {
            Entry::Vacant(entry) => {
                entry.insert(Member {
                    name: name.clone(),
                    generation: 0,
                    seen_at: None,
                    sessions: BTreeMap::new(),
                });
                true
            }
            Entry::Occupied(mut entry) => {
                let changed = entry.get().name != *name;
                entry.get_mut().name = name.clone();
                changed
            }
        }
    }

    pub(super) fn register_agent(&mut self, agent: &Party) -> Result<bool, StorageError> {
        let is_member = self.members.contains_key(&agent.member);
        if !is_member || self.book.is_revoked(agent.member) {
            return Err(StorageError::UnknownMember(agent.member));
        }
        Ok(self.agents.insert(agent.clone()))
    }

    pub(super) fn create_topic(&mut self, topic: &TopicName) -> bool {
        let is_new = !self.topics.contains_key(topic);
        self.topics.entry(topic.clone()).or_default();
        is_new
    }

    pub(super) fn subscribe(
        &mut self,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        if !self.agents.contains(agent) {
            return Err(StorageError::UnknownAgent(agent.clone()));
        }
        let subscribers = self.topics.entry(topic.clone()).or_default();
        if subscribers.len() >= RECIPIENTS_MAX && !subscribers.contains(agent) {
            return Err(StorageError::TopicFull(topic.clone()));
        }
        Ok(subscribers.insert(agent.clone()))
    }

    pub(super) fn unsubscribe(&mut self, topic: &TopicName, agent: &Party) -> bool {
        self.topics
            .get_mut(topic)
            .is_some_and(|subscribers| subscribers.remove(agent))
    }

    pub(super) fn roster(&self) -> Roster {
        let topic = |(topic, subscribers): (&TopicName, &BTreeSet<Party>)| RosterTopic {
            topic: topic.clone(),
            subscribers: subscribers.iter().cloned().collect(),
        };
        Roster {
            members: self
                .members
                .iter()
                .filter(|(id, _)| !self.book.is_revoked(**id))
                .map(|(id, member)| (*id, member.name.clone()))
                .collect(),
            agents: self.agents.iter().cloned().collect(),
            topics: self.topics.iter().map(topic).collect(),
            queues: self.queues.keys().cloned().collect(),
        }
    }

    pub(super) fn look(&self, id: &SendId) -> Look {
        let key = (id.sender.clone(), id.client_message_id.clone());
        Look {
            consumed: self.dedupe.get(&key).map(|row| row.consumed),
            sender_registered: self.agents.contains(&id.sender),
        }
    }

    pub(super) fn accept(&mut self, new: NewMessage) -> Accepted {
        let consumed = self.look(&new.id).consumed;
        let recipients = self.recipients(&new.destination);
        let row = resolve(
            consumed.map(|consumed| consumed.wire_fingerprint),
            new.wire_fingerprint,
            recipients.is_some(),
        );
        let bar = self.book.bar(new.id.sender.member);
        if let Some(bar) = barred(row.resolution, bar, new.is_heard) {
            return Accepted::Barred(bar);
        }
        match (row.resolution, consumed, recipients) {
            (Resolution::Commit, None, Some(_)) if new.epoch.is_some_and(|e| e != self.epoch) => {
                Accepted::OtherEpoch(self.epoch)
            }
            (Resolution::Commit, None, Some(recipients)) => self.commit(new, recipients),
            (Resolution::Duplicate, Some(consumed), _) => Accepted::Duplicate(consumed),
            (Resolution::Conflict, Some(consumed), _) => Accepted::Conflict(consumed),
            _ => Accepted::UnknownRecipient,
        }
    }

    fn recipients(&self, destination: &Destination) -> Option<BTreeSet<Party>> {
        match destination {
            Destination::Topic(topic) => self.topics.get(topic).cloned(),
            Destination::Dm(party) => self
                .agents
                .contains(party)
                .then(|| BTreeSet::from([party.clone()])),
            Destination::Queue(_) | Destination::Log => Some(BTreeSet::new()),
        }
    }

    fn commit(&mut self, new: NewMessage, recipients: BTreeSet<Party>) -> Accepted {
        if self.messages.contains_key(&new.broker_message_id) {
            return Accepted::Failed("the broker message id is taken".to_owned());
        }
        let history_id = HistoryId {
            epoch: self.epoch,
            seq: self.next_seq,
        };
        self.next_seq += 1;
        let consumed = Consumed {
            wire_fingerprint: new.wire_fingerprint,
            broker_message_id: new.broker_message_id,
            history_id,
            history_available: true,
            first_seen_at: new.accepted_at,
        };
        self.dedupe.insert(
            (new.id.sender.clone(), new.id.client_message_id.clone()),
            DedupeRow {
                consumed,
                destination: new.destination.clone(),
                expires_at: new.expires_at,
                limiter: new.limiter,
            },
        );
        self.history.insert(
            history_id,
            Place {
                broker_message_id: new.broker_message_id,
                is_expired: false,
            },
        );
        let (sender, kind) = (new.id.sender.member, new.destination.kind());
        let (recipients, refusing): (BTreeSet<Party>, BTreeSet<Party>) = recipients
            .into_iter()
            .partition(|party| self.granted(sender, party.member).allow(kind));
        let members: BTreeSet<MemberId> = recipients.iter().map(|party| party.member).collect();
        let withheld: BTreeSet<MemberId> = refusing.iter().map(|party| party.member).collect();
        let rows = withheld.iter().map(|member| (history_id, *member));
        self.withheld.extend(rows);
        for Party { member, agent } in recipients {
            let rows = self.deliveries.entry(member).or_default();
            let row = DeliveryRow {
                priority: new.priority,
                levels: Levels::default(),
            };
            rows.insert(Ack { history_id, agent }, row);
        }
        let mut is_new_queue = false;
        if let Destination::Queue(queue) = &new.destination {
            is_new_queue = self.create_queue(queue);
            let queue = self.queues.entry(queue.clone()).or_default();
            queue.push(history_id, new.priority);
        }
        if new.destination == Destination::Log {
            self.append_to_log(history_id);
        }
        for mention in &new.mentions {
            if self.agents.contains(mention) {
                self.mentions.insert((mention.clone(), history_id));
            }
        }
        self.messages.insert(new.broker_message_id, new);
        Accepted::Created {
            history_id,
            recipients: members.into_iter().collect(),
            withheld: withheld.len(),
            is_new_queue,
        }
    }

    pub(super) fn deliveries_after(
        &self,
        member: MemberId,
        after: &DeliveryCursor,
        limit: PageLimit,
    ) -> Vec<Delivery> {
        let rows = self.deliveries.get(&member).into_iter().flatten();
        let mut waiting: Vec<(Priority, &Ack)> = rows
            .filter(|(_, row)| row.levels.delivered_at.is_none())
            .map(|(ack, row)| (row.priority, ack))
            .filter(|(priority, ack)| {
                let place = after.place(*priority);
                (ack.history_id, ack.agent.as_str()) > (place.history_id, place.agent.as_str())
            })
            .collect();
        waiting.sort_by_key(|(priority, ack)| (priority.rank(), *ack));
        let deliveries = waiting
            .into_iter()
            .filter_map(|(_, ack)| self.delivery(ack.history_id, &ack.agent));
        page(deliveries, limit)
    }

    pub(super) fn delivery(&self, at: HistoryId, agent: &AgentName) -> Option<Delivery> {
        let place = self.history.get(&at)?;
        let message = self.messages.get(&place.broker_message_id)?;
        Some(Delivery {
            history_id: at,
            agent: agent.clone(),
            sender: message.id.sender.clone(),
            sender_name: message.sender_name.clone(),
            client_message_id: message.id.client_message_id.clone(),
            broker_message_id: message.broker_message_id,
            destination_kind: message.destination.kind(),
            destination_ref: message.destination.to_string(),
            priority: message.priority,
            accepted_at: message.accepted_at,
            envelope: message.envelope.clone(),
        })
    }

    pub(super) fn ack(&mut self, member: MemberId, items: &[Ack], at: WallMs) -> usize {
        let mut count = 0;
        for (ack, row) in self.deliveries.entry(member).or_default() {
            if row.levels.delivered_at.is_none() && items.contains(ack) {
                row.levels.delivered_at = Some(at);
                count += 1;
            }
        }
        count
    }

    pub(super) fn history_after(&self, after: HistoryId, rows_max: usize) -> Vec<HistoryRow> {
        self.history
            .range((Bound::Excluded(after), Bound::Unbounded))
            .take(rows_max)
            .map(|(history_id, place)| HistoryRow {
                history_id: *history_id,
                broker_message_id: place.broker_message_id,
                is_expired: place.is_expired,
                id: self.messages.get(&place.broker_message_id).map(|message| {
                    let SendId {
                        sender,
                        client_message_id,
                        ..
                    } = message.id.clone();
                    (sender, client_message_id)
                }),
                envelope: self
                    .messages
                    .get(&place.broker_message_id)
                    .map(|message| message.envelope.clone()),
            })
            .collect()
    }
}

/// As many as fit; the first one always does.
pub(super) fn page(deliveries: impl Iterator<Item = Delivery>, limit: PageLimit) -> Vec<Delivery> {
    let mut page: Vec<Delivery> = Vec::new();
    let mut bytes = 0;
    for delivery in deliveries {
        bytes += delivery.envelope.len();
        if page.len() >= limit.rows_max || (bytes > limit.bytes_max && !page.is_empty()) {
            break;
        }
        page.push(delivery);
    }
    page
}
