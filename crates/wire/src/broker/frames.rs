//! The frames themselves.

use heddle_core::envelope::DestinationKind;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{AgentName, MemberName, TopicName};
use heddle_core::negotiate::Features;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a daemon sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientFrame {
    Hello {
        protocol: u32,
        mesh: MeshId,
        member: MemberId,
        member_name: MemberName,
        /// The mailboxes of this member that live here; registered before anything else happens.
        agents: Vec<AgentName>,
        /// Everything up to here is durable on this side: pushed again never, acknowledged hereby.
        resume_after: HistoryId,
    },
    Send {
        batch: u64,
        items: Vec<SendItem>,
    },
    Ack {
        items: Vec<AckItem>,
    },
    Request {
        request: u64,
        body: Request,
    },
}

/// One envelope under its sender's id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendItem {
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    /// The bytes that the daemon froze; never re-serialised on the way (DR-06).
    pub envelope: Box<RawValue>,
}

/// One delivery that the daemon holds durably.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckItem {
    pub history_id: HistoryId,
    pub agent: AgentName,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Request {
    RegisterAgent {
        agent: AgentName,
    },
    CreateTopic {
        topic: TopicName,
    },
    Subscribe {
        topic: TopicName,
        agent: AgentName,
    },
    Unsubscribe {
        topic: TopicName,
        agent: AgentName,
    },
    /// A read-only B0: does the broker hold this id of ours?
    MessageStatus {
        agent: AgentName,
        client_message_id: ClientMessageId,
    },
    Roster,
    /// How far deliveries have come on this side. Idempotent, and never a step back.
    Receipts {
        items: Vec<ReceiptItem>,
    },
}

/// One step of one delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptItem {
    pub history_id: HistoryId,
    /// The mailbox at this member.
    pub agent: AgentName,
    pub level: ReceiptLevel,
    pub at: i64,
}

/// How far a recipient's side says it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptLevel {
    Shown,
    Acked,
}

/// What a broker sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame {
    Challenge {
        protocol: u32,
        /// Single use; a network transport binds its proof of identity to it.
        nonce: String,
    },
    Welcome {
        epoch: u64,
        /// Rises with every connection of this member; an old one never touches a newer one.
        generation: u64,
        features: Features,
        roster: Roster,
    },
    Verdicts {
        batch: u64,
        items: Vec<Verdict>,
    },
    Deliver {
        items: Vec<Delivery>,
    },
    /// The roster changed.
    Roster {
        roster: Roster,
    },
    Reply {
        request: u64,
        #[serde(flatten)]
        result: ReplyResult,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum ReplyResult {
    /// Done; `changed` is false where it was so already.
    Ok {
        changed: bool,
    },
    /// The broker holds the id.
    Committed {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
        wire_fingerprint: String,
    },
    /// The broker does not hold the id.
    Absent,
    Roster {
        roster: Roster,
    },
    Refused(Refused),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub code: String,
    pub detail: String,
}

/// The broker's answer to one envelope of a batch, in the batch's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// 201.
    Created {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
    },
    /// 200.
    Duplicate {
        broker_message_id: BrokerMessageId,
        history_id: HistoryId,
        history_available: bool,
        first_seen_at: i64,
    },
    /// 409.
    Conflict {
        broker_fingerprint_prefix: String,
    },
    Refused(Refused),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    #[serde(flatten)]
    pub party: Party,
    pub member_name: MemberName,
}

/// A message for one mailbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delivery {
    pub history_id: HistoryId,
    /// The mailbox at the receiving member.
    pub agent: AgentName,
    pub from: Sender,
    pub client_message_id: ClientMessageId,
    pub broker_message_id: BrokerMessageId,
    pub destination_kind: DestinationKind,
    pub destination_ref: String,
    pub accepted_at: i64,
    pub envelope: Box<RawValue>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    pub members: Vec<RosterMember>,
    pub agents: Vec<RosterAgent>,
    pub topics: Vec<RosterTopic>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterMember {
    pub member: MemberId,
    pub name: MemberName,
    pub online: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterAgent {
    pub member: MemberId,
    pub agent: AgentName,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterTopic {
    pub topic: TopicName,
    pub subscribers: Vec<RosterAgent>,
}
