//! Frames between a daemon and a broker: JSON text messages over a WebSocket, protocol 1.
//!
//! The broker speaks first (`challenge`), the daemon answers (`hello`), the broker admits it
//! (`welcome`). After that both sides send at will: batches and their verdicts, deliveries and
//! their acks, requests and their replies.

mod blob;
mod decode;
mod effects;
mod envelope;
mod explain;
mod frames;
mod frozen;
mod held;
mod log;
mod members;
mod queue;
mod register;
mod upload;
mod verdict;

pub use blob::{BlobPlace, PartBytes};
pub use decode::NotAFrame;
pub use effects::{EffectAnswer, EffectCall};
pub use envelope::{DestinationFrame, Envelope};
pub use explain::{
    DeliveryReceipt, Explained, LimiterRecord, QueueState, QueueStatus, ReceiptLevel,
};
pub use frames::{
    AckItem, ClaimRefused, ClientFrame, Delivery, ReceiptItem, Refused, ReplyResult, Request,
    Roster, RosterAgent, RosterMember, RosterQueue, RosterTopic, SendItem, Sender, ServerFrame,
};
pub use frozen::{FrozenDestination, FrozenEnvelope};
pub use held::{HeldCursor, HeldItem};
pub use log::LogItem;
pub use members::{GrantAsk, GrantEntry, MemberEntry};
pub use queue::{LeasedItem, QueueCount, QueueVerdict, TakenItem};
pub use register::{
    BrokerInviteBody, RegisterMeshAnswer, RegisterMeshBody, RegisterOwner, RegisterTopic,
};
pub use upload::{
    EnvelopeBytes, LeftOutItem, SnapshotAnswer, SnapshotBeginBody, SnapshotChunkBody,
    SnapshotCommitBody, UploadItem,
};
pub use verdict::{CONFLICT_FINGERPRINT, Verdict};

/// The version of these frames.
pub const BROKER_PROTOCOL: u32 = 1;
