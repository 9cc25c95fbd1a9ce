//! The frames themselves.

use heddle_core::envelope::DestinationKind;
use heddle_core::ids::{
    BrokerId, BrokerMessageId, ClientMessageId, HistoryId, MemberId, MeshId, OpId, Party,
};
use heddle_core::membership::{PublicKey, Signature};
use heddle_core::names::{AgentName, MemberName, MeshName, QueueName, TopicName};
use heddle_core::sync::LogHole;
use heddle_core::witness::Witness;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::blob::{BlobPlace, PartBytes, op_id};
use super::effects::{EffectAnswer, EffectCall};
use super::explain::{Explained, ReceiptLevel};
use super::held::{HeldCursor, HeldItem};
use super::log::LogItem;
use super::members::{GrantAsk, GrantEntry, MemberEntry};
use super::queue::{LeasedItem, QueueCount, QueueVerdict, TakenItem};
use super::upload::UploadItem;
use super::verdict::Verdict;
use crate::problem::Problem;

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
        /// The newest place that this side has seen. It acknowledges nothing: deliveries come by
        /// priority, so places before it may still be missing. A broker whose history has not come
        /// so far was replaced by an older one.
        #[serde(alias = "resume_after")]
        seen: HistoryId,
        /// Some places that this side has seen, each with the id of the message that stood there: the newest ones, and
        /// fewer of the older ones. A history in which another one stands there has given places out twice.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        witnesses: Vec<Witness>,
        /// Over broker, mesh, member and the challenge's nonce, by the member's key. A mesh whose
        /// members have keys asks for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Signature>,
    },
    /// In place of a hello: takes up an invitation. The answer is `claimed` or `refused`, and the end.
    Claim {
        protocol: u32,
        link: String,
        name: MemberName,
        key: PublicKey,
        /// Over broker, mesh, invitation, nonce, key and name, by that key.
        signature: Signature,
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
    /// The answer to a `blob_asked`; without bytes where this home does not have them.
    BlobPart {
        ask: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<PartBytes>,
    },
}

/// One envelope under its sender's id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SendItem {
    pub agent: AgentName,
    pub client_message_id: ClientMessageId,
    /// For ops: the epoch that the sender takes the history to be in. Another one refuses what is new
    /// (`epoch_mismatch`), so that the sender hears of the change first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
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
    /// Everything that the broker holds of an id of ours.
    Explain {
        agent: AgentName,
        client_message_id: ClientMessageId,
    },
    /// How far deliveries have come on this side. Idempotent, and never a step back.
    Receipts {
        items: Vec<ReceiptItem>,
    },
    CreateQueue {
        queue: QueueName,
    },
    /// Takes waiting messages under a lease; none if nothing waits, or if there is no such queue.
    QueueTake {
        queue: QueueName,
        agent: AgentName,
        max: u32,
        lease_ms: u64,
        /// Where there is none: say `work` once, as soon as there may be some.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wake: bool,
    },
    QueueAck {
        queue: QueueName,
        agent: AgentName,
        items: Vec<LeasedItem>,
    },
    QueueRelease {
        queue: QueueName,
        agent: AgentName,
        items: Vec<LeasedItem>,
    },
    /// The same leases, for longer.
    QueueRenew {
        queue: QueueName,
        agent: AgentName,
        items: Vec<LeasedItem>,
        lease_ms: u64,
    },
    /// How much work the queues of the mesh hold.
    QueueCounts,
    /// What this member acknowledged earlier, behind this place: its home has lost it. Changes nothing.
    Held {
        after: HeldCursor,
        limit: u32,
    },
    /// The ops of the mesh behind this place, in order, at most so many.
    LogRead {
        after: HistoryId,
        limit: u32,
    },
    /// Where the epochs of the history ended.
    Epochs,
    /// Keeps an invitation that this member signed. For owners.
    CreateInvite {
        link: String,
    },
    /// Shuts a member out. For owners.
    RevokeMember {
        member: MemberId,
    },
    /// A member is heard no more until it is granted a role again. For owners.
    BlockMember {
        member: MemberId,
    },
    /// Gives a member a role, and lifts a block. For owners.
    GrantMember {
        member: MemberId,
        /// `owner` or `member`.
        role: String,
    },
    /// Who is enrolled in the mesh.
    Members,
    /// This member lets another one send it more, or less.
    ChangeGrant(GrantAsk),
    /// From whom this member withholds something.
    Grants,
    /// A call to whoever decides about the effects of the mesh.
    Effect {
        /// The mailbox of this member that speaks.
        agent: AgentName,
        /// The caller's own id of the call: the same once more is the same call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// What the authority has proven to this home last: one that does not know it any more is not the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<String>,
        call: Box<EffectCall>,
    },
    /// From now on others read nothing of the log behind this moment, until it is committed. For owners,
    /// at a broker with the feature `log_snapshot`.
    SnapshotBegin {
        #[serde(with = "op_id")]
        snapshot: OpId,
    },
    /// Everything is there: others may read it.
    SnapshotCommit {
        #[serde(with = "op_id")]
        snapshot: OpId,
    },
    /// Begins the upload of a snapshot, or goes on with it. For owners, at a broker with the feature
    /// `snapshot_upload`; the answer is `upload`, as for the next two.
    UploadBegin {
        #[serde(with = "op_id")]
        snapshot: OpId,
    },
    /// Some more ops, in order, behind the cursor of the last answer.
    UploadChunk {
        #[serde(with = "op_id")]
        snapshot: OpId,
        after: u64,
        items: Vec<UploadItem>,
    },
    /// Everything up to this cursor becomes ops of the log at once.
    UploadCommit {
        #[serde(with = "op_id")]
        snapshot: OpId,
        through: u64,
    },
    /// Some bytes of a large file, from a member that is connected and may have them. To a broker with
    /// the feature `blob_relay` only; the answer is `blob_part`, or `absent`.
    BlobRead {
        member: MemberId,
        #[serde(flatten)]
        part: BlobPlace,
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

/// What a broker sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame {
    Challenge {
        protocol: u32,
        /// Single use: a hello's signature is bound to it.
        nonce: String,
        /// Which broker asks; absent from one that knows no keys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        broker: Option<BrokerId>,
    },
    Welcome {
        epoch: u64,
        /// Rises with every connection of this member; an old one never touches a newer one.
        generation: u64,
        /// As it came: what cannot be read of it decides who is refused, and how (`core::negotiate`).
        #[serde(default)]
        features: serde_json::Value,
        roster: Roster,
    },
    /// The invitation was taken up, now or before; the answer to a claim.
    Claimed {
        member: MemberId,
        name: MemberName,
        duplicate: bool,
    },
    /// A claim was refused.
    Refused(ClaimRefused),
    Verdicts {
        batch: u64,
        items: Vec<Verdict>,
        /// The epoch that the history is in now; said where the batch held an op.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
    },
    Deliver {
        items: Vec<Delivery>,
    },
    /// The roster changed.
    Roster {
        roster: Roster,
    },
    /// There may be work in a queue that a `queue_take` with `wake` found empty. A hint, said once.
    Work {
        queue: QueueName,
    },
    /// There are new ops to read. A hint, to connections that have read the log.
    LogGrew {},
    /// Another member of the mesh asks for bytes of a file. Answered by a `blob_part` with this number.
    BlobAsked {
        ask: u64,
        #[serde(flatten)]
        part: BlobPlace,
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
    Explained(Box<Explained>),
    Taken {
        items: Vec<TakenItem>,
    },
    /// One for each item of a `queue_ack` or `queue_release`, in order.
    QueueVerdicts {
        items: Vec<QueueVerdict>,
    },
    /// One for each queue of the mesh.
    QueueCounts {
        queues: Vec<QueueCount>,
    },
    /// A page of what the member held. Without `next` it is the last one.
    Held {
        items: Vec<HeldItem>,
        /// Deliveries of this page whose bodies were pruned here, too.
        gone: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<HeldCursor>,
    },
    /// A page of the log; an empty one is its end.
    Log {
        /// The epoch that the history is in now.
        epoch: u64,
        items: Vec<LogItem>,
    },
    /// The last place of every epoch that has one, in order.
    Epochs {
        epoch: u64,
        ends: Vec<HistoryId>,
        /// Stretches of the log whose ops are lost. Brokers of before name none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holes: Vec<LogHole>,
    },
    Members {
        /// What the broker calls the mesh; absent at one that does not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mesh: Option<MeshName>,
        members: Vec<MemberEntry>,
    },
    /// What the peer of a `change_grant` has now.
    Granted(GrantEntry),
    Grants {
        grants: Vec<GrantEntry>,
    },
    Effect {
        answer: Box<EffectAnswer>,
        /// How far the authority has come, for whoever asks next to show.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<String>,
    },
    /// The authority says no, in its own words.
    EffectRefused {
        problem: Box<Problem>,
    },
    /// How far an upload is.
    Upload {
        /// Everything up to here is with the broker; absent once it is shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<u64>,
        /// The place of its first op, once everybody sees it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<HistoryId>,
    },
    /// What a `blob_read` asked for, as a member gave it. Whether it is true, the hash of the whole says.
    BlobPart {
        data: PartBytes,
    },
    Refused(Refused),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub code: String,
    pub detail: String,
    /// When it may be worth another try, where that is known: the end of a rate window. Brokers of before do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRefused {
    pub code: String,
    pub detail: String,
    /// A name that is free, where the one that was asked for is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<MemberName>,
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
    /// What was accepted, in 64 hex digits, kept apart from the envelope: whoever receives it can tell whether the
    /// envelope is still that. A broker that has forgotten the id gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_fingerprint: Option<String>,
    pub envelope: Box<RawValue>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    pub members: Vec<RosterMember>,
    pub agents: Vec<RosterAgent>,
    pub topics: Vec<RosterTopic>,
    #[serde(default)]
    pub queues: Vec<RosterQueue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterMember {
    pub member: MemberId,
    pub name: MemberName,
    pub online: bool,
    /// Since when it has been so; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// When the broker looked.
    #[serde(default)]
    pub as_of: i64,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterQueue {
    pub queue: QueueName,
}
