//! The gate: *consume a key and write the effect in one transaction.*
//!
//! Given a key and a fingerprint there are exactly three outcomes. IPC accept, broker accept,
//! sync ops and the registrar are four uses of it. Attempt numbers, retries, nonces and clocks
//! never take part in the key.

mod decide;
mod outcome;

pub use decide::{AcceptRow, FingerprintMatch, IPC_ACCEPT, IpcVerdict, ipc_accept};
pub use outcome::{Outcome, outcome};
