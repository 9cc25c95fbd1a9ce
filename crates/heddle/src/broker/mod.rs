//! The broker as a process of its own, and its jobs by hand.
//!
//! It listens on this machine only. Whoever presents the token of its data folder may speak for every
//! member there; membership of a team comes with invitations.

mod door;
mod jobs;
mod serve;
mod settings;

pub use jobs::{cannot_open, orphan_check, sweep};
pub use serve::{ServeOptions, poisoned, serve, takes_nothing};
pub use settings::{broker_config, budget};
