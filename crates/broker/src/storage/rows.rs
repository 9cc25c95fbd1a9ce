//! What goes into the tables and what comes out: plain values, never wire types.

use std::fmt;
use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_core::envelope::{DestinationKind, LOG_REF, Priority};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{
    BrokerMessageId, ClientMessageId, HistoryId, IdKey, MemberId, MeshId, Party,
};
use heddle_core::membership::Bar;
use heddle_core::names::{AgentName, MemberName, QueueName, TopicName};

use super::story::LimiterNote;

/// The key of the gate: who sends, and under which id (C1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendId {
    /// A digest over mesh, sender and id. Finds the row; the text beside it decides.
    pub key: IdKey,
    pub sender: Party,
    pub client_message_id: ClientMessageId,
}

impl SendId {
    pub fn new(mesh: MeshId, sender: Party, client_message_id: ClientMessageId) -> Self {
        Self {
            key: IdKey::of(mesh, &sender, &client_message_id),
            sender,
            client_message_id,
        }
    }
}

/// A dedupe row: an id that an accept has consumed, and the answer it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumed {
    pub wire_fingerprint: Fingerprint,
    pub broker_message_id: BrokerMessageId,
    pub history_id: HistoryId,
    /// False once the message itself was pruned.
    pub history_available: bool,
    pub first_seen_at: WallMs,
}

/// What B0 and B1 need to know about one send, from one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub consumed: Option<Consumed>,
    pub sender_registered: bool,
}

/// Where a message goes, resolved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    Topic(TopicName),
    Dm(Party),
    Queue(QueueName),
    Log,
}

impl Destination {
    pub fn kind(&self) -> DestinationKind {
        match self {
            Self::Topic(_) => DestinationKind::Topic,
            Self::Dm(_) => DestinationKind::Dm,
            Self::Queue(_) => DestinationKind::Queue,
            Self::Log => DestinationKind::Log,
        }
    }
}

/// The reference as rows and frames carry it: a topic's, queue's or log's name, or `MEMBER_ID/agent`.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => topic.fmt(f),
            Self::Dm(party) => party.fmt(f),
            Self::Queue(queue) => queue.fmt(f),
            Self::Log => f.write_str(LOG_REF),
        }
    }
}

/// A message that passed B1, with everything that its rows need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// It was decided before that its sender may speak; that is not asked again.
    pub is_heard: bool,
    pub id: SendId,
    /// The sender's name at this time; history does not change when a member is renamed.
    pub sender_name: MemberName,
    pub broker_message_id: BrokerMessageId,
    pub wire_fingerprint: Fingerprint,
    pub destination: Destination,
    pub priority: Priority,
    pub mentions: Vec<Party>,
    /// The bytes as they were sent.
    pub envelope: Box<str>,
    pub accepted_at: WallMs,
    /// When the id may be forgotten; never, if `None`.
    pub expires_at: Option<WallMs>,
    /// What the limiter said; kept for explanations, decides nothing.
    pub limiter: Option<LimiterNote>,
    /// The epoch that an op's sender takes the history to be in.
    pub epoch: Option<u64>,
    /// The generation of the session that sends it, if a newer one of the same member is to replace it. Many
    /// brokers may serve a shared store: the message is not accepted once a newer session has begun, so that
    /// what that one was told is absent stays so (C5). A process that is alone ends the older one by itself.
    pub session: Option<u64>,
}

/// What the transaction made of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// All five effects are committed.
    Created {
        history_id: HistoryId,
        /// The members that got a delivery row, each once.
        recipients: Arc<[MemberId]>,
        /// Members that would have got one, but have not granted the sender as much.
        withheld: usize,
        /// It made its queue.
        is_new_queue: bool,
    },
    /// The id was consumed by this very request; nothing was written.
    Duplicate(Consumed),
    /// The id was consumed by another request; nothing was written.
    Conflict(Consumed),
    /// The destination does not exist; nothing was written.
    UnknownRecipient,
    /// The sender was shut out, or is blocked; nothing was written.
    Barred(Bar),
    /// A newer session of the sender has begun, maybe at another broker; nothing was written.
    Superseded,
    /// The history is in another epoch, this one; nothing was written.
    OtherEpoch(u64),
    /// This message alone could not be written and was undone; the reason is ours, not the caller's.
    Failed(String),
}

/// One message for one mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub history_id: HistoryId,
    pub agent: AgentName,
    pub sender: Party,
    pub sender_name: MemberName,
    pub client_message_id: ClientMessageId,
    pub broker_message_id: BrokerMessageId,
    pub destination_kind: DestinationKind,
    pub destination_ref: String,
    pub priority: Priority,
    pub accepted_at: WallMs,
    pub envelope: Box<str>,
}

/// A place among a member's deliveries of one priority: several of its agents can share a history id,
/// so the id alone would skip or repeat some of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryPlace {
    pub history_id: HistoryId,
    /// As text, because the place before all agents has none.
    pub agent: String,
}

/// How far deliveries were read: a place for each priority, because a later message of a higher one
/// comes before an earlier one of a lower. One place for all of them would skip what was overtaken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryCursor {
    places: [DeliveryPlace; Priority::ALL.len()],
}

impl DeliveryCursor {
    /// Before everything.
    pub const START: Self = Self {
        places: [const { DeliveryPlace::START }; Priority::ALL.len()],
    };

    pub fn place(&self, priority: Priority) -> &DeliveryPlace {
        &self.places[usize::from(priority.rank())]
    }

    /// Moves past a delivery that was read.
    pub fn pass(&mut self, delivery: &Delivery) {
        self.places[usize::from(delivery.priority.rank())] = DeliveryPlace {
            history_id: delivery.history_id,
            agent: delivery.agent.to_string(),
        };
    }

    /// The cursor with another place for a priority.
    #[cfg(test)]
    pub(crate) fn at(mut self, priority: Priority, place: DeliveryPlace) -> Self {
        self.places[usize::from(priority.rank())] = place;
        self
    }
}

impl DeliveryPlace {
    pub const START: Self = Self {
        history_id: HistoryId::ZERO,
        agent: String::new(),
    };
}

/// How much one page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    pub rows_max: usize,
    /// Envelope bytes; the first row is given however large it is.
    pub bytes_max: usize,
}

/// One delivery that the receiving side holds durably.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ack {
    pub history_id: HistoryId,
    pub agent: AgentName,
}

/// One place of a mesh's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    pub history_id: HistoryId,
    pub broker_message_id: BrokerMessageId,
    /// The id that led here was forgotten.
    pub is_expired: bool,
    /// Who sent it, and under which id, as its message says; `None` once that was pruned.
    pub id: Option<(Party, ClientMessageId)>,
    /// `None` once the message was pruned.
    pub envelope: Option<Box<str>>,
}

/// Who and what exists in a mesh, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster {
    pub members: Vec<(MemberId, MemberName)>,
    pub agents: Vec<Party>,
    pub topics: Vec<RosterTopic>,
    pub queues: Vec<QueueName>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterTopic {
    pub topic: TopicName,
    pub subscribers: Vec<Party>,
}

/// A row without the rows that must stand beside it (BR-02, BR-14).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Orphan {
    /// The table and what it lacks, as in `message_without_history`.
    pub problem: &'static str,
    /// Which row.
    pub row: String,
}
