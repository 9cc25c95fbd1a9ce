//! Where the broker keeps its tables: a contract, an oracle in memory, and SQLite.
//!
//! SQL stands in this folder only. Every implementation runs the one suite in `suite`.

mod contract;
mod error;
mod memory;
mod rows;
pub mod sqlite;
#[cfg(test)]
mod suite;

pub use contract::Storage;
pub use error::StorageError;
pub use memory::MemoryStorage;
pub use rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, Destination, HistoryRow, Look, NewMessage,
    Orphan, PageLimit, Roster, RosterTopic, SendId,
};
pub use sqlite::SqliteStorage;
