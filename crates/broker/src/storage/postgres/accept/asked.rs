//! What a set asks about its mesh, each thing once, and what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_core::ids::{MemberId, Party};
use heddle_core::membership::{Bar, Capabilities};
use heddle_core::names::{QueueName, TopicName};

use super::super::super::rows::{Destination, NewMessage};

/// What a set asks about.
pub(super) struct Asked<'m> {
    pub(super) topics: BTreeSet<&'m TopicName>,
    pub(super) queues: BTreeSet<&'m QueueName>,
    /// Mailboxes that are meant or mentioned.
    pub(super) mailboxes: BTreeSet<&'m Party>,
    pub(super) senders: BTreeSet<MemberId>,
    pub(super) has_ops: bool,
}

impl<'m> Asked<'m> {
    pub(super) fn by(messages: &[&'m NewMessage]) -> Self {
        let mut asked = Self {
            topics: BTreeSet::new(),
            queues: BTreeSet::new(),
            mailboxes: BTreeSet::new(),
            senders: BTreeSet::new(),
            has_ops: false,
        };
        for new in messages {
            match &new.destination {
                Destination::Topic(topic) => drop(asked.topics.insert(topic)),
                Destination::Queue(queue) => drop(asked.queues.insert(queue)),
                Destination::Dm(party) => drop(asked.mailboxes.insert(party)),
                Destination::Log => asked.has_ops = true,
            }
            asked.mailboxes.extend(&new.mentions);
            asked.senders.insert(new.id.sender.member);
        }
        asked
    }
}

/// What was found, of all that was asked so far: what is not there has its entry too.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) topics: BTreeMap<TopicName, Option<Subscribers>>,
    /// Whether they exist.
    pub(super) mailboxes: BTreeMap<Party, bool>,
    pub(super) senders: BTreeMap<MemberId, Sender>,
}

/// Who has subscribed to a topic.
#[derive(Debug, Clone)]
pub(super) struct Subscribers {
    /// Each once.
    pub(super) members: Arc<[MemberId]>,
    pub(super) mailboxes: Arc<[Party]>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Sender {
    /// The number of its latest session; `None`: it is no member.
    pub(super) generation: Option<u64>,
    /// What keeps it from being heard.
    pub(super) bar: Option<Bar>,
    /// Members that let it send less than everything.
    pub(super) refusing: BTreeMap<MemberId, Capabilities>,
}

impl Found {
    /// Whether everything that is asked was looked for.
    pub(super) fn answers(&self, asked: &Asked<'_>) -> bool {
        asked
            .topics
            .iter()
            .all(|one| self.topics.contains_key(*one))
            && asked
                .mailboxes
                .iter()
                .all(|one| self.mailboxes.contains_key(*one))
            && asked
                .senders
                .iter()
                .all(|one| self.senders.contains_key(one))
    }

    pub(super) fn add(&mut self, more: Self) {
        self.topics.extend(more.topics);
        self.mailboxes.extend(more.mailboxes);
        self.senders.extend(more.senders);
    }

    /// Names and mailboxes in it.
    pub(super) fn size(&self) -> usize {
        let subscribers = self.topics.values().flatten();
        let subscribed: usize = subscribers.map(|one| one.mailboxes.len()).sum();
        let refused: usize = self.senders.values().map(|one| one.refusing.len()).sum();
        self.topics.len() + subscribed + self.mailboxes.len() + self.senders.len() + refused
    }

    pub(super) fn subscribers(&self, topic: &TopicName) -> Option<&Subscribers> {
        self.topics.get(topic)?.as_ref()
    }

    pub(super) fn is_mailbox(&self, party: &Party) -> bool {
        self.mailboxes.get(party).is_some_and(|exists| *exists)
    }
}
