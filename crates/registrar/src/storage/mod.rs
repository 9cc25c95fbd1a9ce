//! Where the rows live: one contract, three stores.

mod contract;
mod error;
mod expected;
pub mod memory;
pub mod postgres;
pub mod sqlite;
mod stored;

pub use contract::{ListPage, ListPlace, ListedEffect, LoggedLine, Reached, Seen, Storage};
pub use error::StorageError;
