//! Vocabulary and pure decisions of Heddle.
//!
//! Everything here is a value or a function of values: no I/O, no async, no
//! time source, no environment. Time and randomness are handed in through
//! [`clock::Clock`] and [`clock::Ids`]. The other crates are shells around
//! these decisions.

pub mod age;
pub mod approvers;
pub mod backoff;
pub mod canonical;
pub mod clock;
pub mod data;
pub mod drain;
pub mod envelope;
pub mod error_code;
pub mod file;
pub mod fingerprint;
pub mod gate;
pub mod ids;
pub mod inbox_retention;
pub mod lamport;
pub mod limits;
pub mod lww;
pub mod membership;
pub mod names;
pub mod negotiate;
pub mod op;
pub mod outbox_status;
pub mod pressure;
pub mod redact;
pub mod retention;
pub mod shell;
pub mod sync;
pub mod task;
pub mod thread;
pub mod vector;
pub mod witness;
pub mod work;
