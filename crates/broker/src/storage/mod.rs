//! Where the broker keeps its tables: a contract, an oracle in memory, SQLite and PostgreSQL.
//!
//! SQL stands in this folder only. Every implementation runs the one suite in `suite`.

mod any;
mod births;
mod contract;
mod error;
mod job_locks;
mod left_out;
mod log;
mod memory;
mod mesh_names;
mod parting;
mod parts;
pub mod postgres;
mod presence;
mod queues;
mod rows;
mod seen;
mod snapshots;
pub mod sqlite;
mod story;
#[cfg(test)]
mod suite;
mod upkeep;
mod uploads;
mod wakes;

pub use any::AnyStorage;
pub use contract::Storage;
pub use error::StorageError;
pub use left_out::{LeftOut, LeftOutRow};
pub use log::{Epochs, Log, LogPage, LogRow, MendedLog};
pub use memory::MemoryStorage;
pub use parting::Parted;
pub use parts::{PartAsk, PartOutcome, PartPlace, Parts};
pub use postgres::{PostgresOptions, PostgresStorage};
pub use presence::{LeaseMs, Presence, Present};
pub use queues::{Leased, QueueCount, Queues, Taken, Taker, fence_floor};
pub use rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, DeliveryPlace, Destination, HistoryRow,
    Look, NewMessage, Orphan, PageLimit, Roster, RosterTopic, SendId,
};
pub use seen::Seen;
pub use snapshots::{OpenSnapshot, SnapshotVerdict, Snapshots};
pub use sqlite::SqliteStorage;
pub use story::{
    Explanation, Held, HeldPage, Levels, LimiterNote, Receipt, ReceiptLevel, Recipient, Story,
    WorkStory,
};
pub use upkeep::{Checked, Job, JobClaim, Upkeep};
pub use uploads::{Shown, UploadEnd, UploadPart, UploadVerdict, Uploads};
pub use wakes::{Hint, Look as HintLook, Wakes};
