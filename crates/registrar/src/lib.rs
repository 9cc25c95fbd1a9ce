//! One-time effects: an agent may ask to deploy, migrate, publish or pay; a person approves; the effect
//! is registered at most once however often anyone retries (DESIGN §9, RS3B-05).
//!
//! Three identities are kept apart: the **logical request key** is single-use, the **nonce** authorises,
//! the **attempt** only names a try. Decisions are pure functions of rows ([`decide`], [`life`], `step`);
//! a store loads rows, asks them, and inserts what they say in one transaction.

pub mod authority;
pub mod binding;
pub mod carry;
pub mod chain;
pub mod code;
pub mod command;
pub mod decide;
pub mod expiry;
pub mod facts;
pub mod kept;
pub mod life;
mod look_alike;
pub mod policy;
pub mod refused;
pub mod registrar;
pub mod rows;
pub mod step;
pub mod storage;
pub mod surface_check;
mod tally;

pub use registrar::{Registrar, RegistrarError};
