//! Where the rows live: one contract, three stores.

mod contract;
mod error;
pub mod memory;
pub mod postgres;
pub mod sqlite;
mod stored;

pub use contract::{ListedEffect, LoggedLine, Reached, Storage};
pub use error::StorageError;
