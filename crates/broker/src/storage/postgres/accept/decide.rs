//! The decision over a set: pure, in order, each message in sight of those before it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use heddle_core::ids::{HistoryId, IdKey, MemberId, Party};
use heddle_core::names::QueueName;

use super::super::super::rows::{Accepted, Consumed, Destination, NewMessage};
use super::asked::Sender;
use super::facts::Facts;
use crate::accept::b2_resolve::{Resolution, barred, resolve};

/// A message that stays, with its place.
pub(super) struct Placed<'m> {
    pub(super) new: &'m NewMessage,
    pub(super) at: HistoryId,
    /// Those of its mentions that exist.
    pub(super) mentions: Vec<&'m Party>,
    /// Of an op: the one before it.
    pub(super) previous: HistoryId,
    /// Those that get no delivery, because they have not granted as much to its sender.
    pub(super) withheld: Vec<MemberId>,
}

pub(super) struct Decided<'m> {
    pub(super) answers: Vec<Accepted>,
    pub(super) placed: Vec<Placed<'m>>,
    pub(super) new_queues: BTreeSet<QueueName>,
    /// Where the next message goes.
    pub(super) next: HistoryId,
}

pub(super) fn decide<'m>(messages: &[&'m NewMessage], facts: Facts) -> Decided<'m> {
    let decided = Decided {
        answers: Vec::with_capacity(messages.len()),
        placed: Vec::new(),
        new_queues: BTreeSet::new(),
        next: facts.next,
    };
    let mut set = Set {
        fresh: HashMap::new(),
        decided,
        facts,
    };
    for (index, new) in messages.iter().enumerate() {
        let answer = set.one(index, new);
        set.decided.answers.push(answer);
    }
    set.decided
}

struct Set<'m> {
    facts: Facts,
    /// Ids that this very set consumes.
    fresh: HashMap<IdKey, Consumed>,
    decided: Decided<'m>,
}

impl<'m> Set<'m> {
    fn one(&mut self, index: usize, new: &'m NewMessage) -> Accepted {
        let known = self.facts.consumed.get(index).copied().flatten();
        let consumed = known.or_else(|| self.fresh.get(&new.id.key).copied());
        let recipients = self.recipients(&new.destination);
        let row = resolve(
            consumed.map(|consumed| consumed.wire_fingerprint),
            new.wire_fingerprint,
            recipients.is_some(),
        );
        let bar = self.sender(new).and_then(|sender| sender.bar);
        if let Some(bar) = barred(row.resolution, bar, new.is_heard) {
            return Accepted::Barred(bar);
        }
        let epoch = self.decided.next.epoch;
        if row.resolution == Resolution::Commit && self.is_superseded(new) {
            return Accepted::Superseded;
        }
        match (row.resolution, consumed, recipients) {
            (Resolution::Commit, None, Some(_))
                if new.epoch.is_some_and(|named| named != epoch) =>
            {
                Accepted::OtherEpoch(epoch)
            }
            (Resolution::Commit, None, Some(recipients)) => self.place(new, recipients),
            (Resolution::Duplicate, Some(consumed), _) => Accepted::Duplicate(consumed),
            (Resolution::Conflict, Some(consumed), _) => Accepted::Conflict(consumed),
            _ => Accepted::UnknownRecipient,
        }
    }

    fn sender(&self, new: &NewMessage) -> Option<&Sender> {
        self.facts.found.senders.get(&new.id.sender.member)
    }

    fn is_superseded(&self, new: &NewMessage) -> bool {
        let latest = self.sender(new).and_then(|sender| sender.generation);
        new.session
            .zip(latest)
            .is_some_and(|(session, latest)| session < latest)
    }

    fn recipients(&self, destination: &Destination) -> Option<Arc<[MemberId]>> {
        match destination {
            Destination::Topic(topic) => {
                let subscribers = self.facts.found.subscribers(topic)?;
                Some(Arc::clone(&subscribers.members))
            }
            Destination::Dm(party) => {
                let exists = self.facts.found.is_mailbox(party);
                exists.then(|| Arc::from([party.member]))
            }
            // Made by the first message, in its own place: nobody is woken by it.
            Destination::Queue(_) | Destination::Log => Some(Arc::from([])),
        }
    }

    /// Who gets it, and who has not granted as much to its sender.
    fn allowed(
        &self,
        new: &NewMessage,
        recipients: Arc<[MemberId]>,
    ) -> (Arc<[MemberId]>, Vec<MemberId>) {
        let refusing = self.sender(new).map(|sender| &sender.refusing);
        let Some(refusing) = refusing.filter(|refusing| !refusing.is_empty()) else {
            return (recipients, Vec::new());
        };
        let kind = new.destination.kind();
        let granted = |member: &MemberId| {
            let row = refusing.get(member);
            row.is_none_or(|granted| granted.allow(kind))
        };
        let (allowed, withheld): (Vec<MemberId>, _) =
            recipients.iter().copied().partition(|one| granted(one));
        (allowed.into(), withheld)
    }

    /// What does not stay leaves its place to the next (C4).
    fn place(&mut self, new: &'m NewMessage, recipients: Arc<[MemberId]>) -> Accepted {
        let (recipients, withheld) = self.allowed(new, recipients);
        let withheld_count = withheld.len();
        if !self.facts.taken.insert(new.broker_message_id) {
            return Accepted::Failed(format!("{} is taken", new.broker_message_id));
        }
        let at = self.decided.next;
        self.decided.next.seq += 1;
        let is_new_queue = match &new.destination {
            Destination::Queue(queue) if !self.facts.queues.contains(queue) => {
                self.decided.new_queues.insert(queue.clone())
            }
            _ => false,
        };
        let previous = self.facts.last_op;
        if new.destination == Destination::Log {
            self.facts.last_op = at;
        }
        let consumed = Consumed {
            wire_fingerprint: new.wire_fingerprint,
            broker_message_id: new.broker_message_id,
            history_id: at,
            history_available: true,
            first_seen_at: new.accepted_at,
        };
        self.fresh.insert(new.id.key, consumed);
        let exists = |party: &&Party| self.facts.found.is_mailbox(party);
        self.decided.placed.push(Placed {
            new,
            at,
            mentions: new.mentions.iter().filter(exists).collect(),
            previous,
            withheld,
        });
        Accepted::Created {
            history_id: at,
            recipients,
            withheld: withheld_count,
            is_new_queue,
        }
    }
}
