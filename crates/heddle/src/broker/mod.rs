//! The broker as a process of its own, and its jobs by hand.
//!
//! Its tables are a file in its data folder, or a PostgreSQL that several brokers share. Whoever presents the
//! token of its data folder may speak for every member of a mesh whose members have no keys. A mesh that has
//! keys is entered by signature alone. Beyond this machine it listens with TLS, or behind something that has it.

mod api;
pub mod door;
mod effects;
mod engine;
mod greeting;
mod invite;
mod invites;
mod jobs;
mod jobs_place;
mod limiter;
pub mod marks;
mod members;
mod orderly_end;
mod pages;
mod places;
mod serve;
mod settings;
mod snapshot;
mod tls;

pub use invite::{invite, local_url};
pub use invites::InviteSpec;
pub use jobs::{cannot_open, epoch, migrate, orphan_check, sweep};
pub use jobs_place::Place;
pub use members::members;
pub use places::Places;
pub use serve::{ServeOptions, poisoned, serve, takes_nothing};
pub use settings::{broker_config, budget, options};
pub use tls::TlsFiles;
