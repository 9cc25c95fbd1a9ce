//! The broker as a process of its own, and its jobs by hand.
//!
//! It listens on this machine only. Whoever presents the token of its data folder may speak for every
//! member of a mesh whose members have no keys. A mesh that has keys is entered by signature alone.

pub mod door;
mod jobs;
mod members;
mod serve;
mod settings;

pub use jobs::{cannot_open, epoch, orphan_check, sweep};
pub use members::members;
pub use serve::{ServeOptions, poisoned, serve, takes_nothing};
pub use settings::{broker_config, budget, options};
