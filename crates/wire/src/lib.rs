//! What crosses a process boundary, versioned: the IPC bodies, the broker's frames, problems,
//! and the typed client that every door uses.
//!
//! Stored types are never wire types. [`from_wire`] turns what came in into values of
//! `heddle-core`, and refuses what cannot be one; the servers translate the other way.

pub mod broker;
pub mod client;
pub mod from_wire;
pub mod ipc;
pub mod problem;
pub mod schema;
