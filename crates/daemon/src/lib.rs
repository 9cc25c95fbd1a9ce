//! The daemon of a home: takes requests over IPC, keeps them durably, drains them to the mesh's
//! broker, and keeps what the broker delivers.
//!
//! It knows a broker only through a [`link::Connector`], works without one, and decides nothing
//! itself: decisions are functions of `heddle-core`, rows are in `heddle-store`.

mod broker_config;
pub mod config;
mod effects;
mod events;
mod files;
mod held;
pub mod home;
mod hooks;
mod inbox;
mod ipc;
pub mod link;
mod lock;
mod membership;
mod mentions;
mod mesh;
mod meshes;
mod metrics;
mod open_store;
mod outbox;
mod refusals;
mod roster;
mod run;
mod share;
mod shared;
mod standing;
mod start_error;
mod sync;
mod tasks;
mod token;
pub mod upkeep;
mod vector_config;
mod vectors;

pub use effects::{
    Desk, END, EffectsError, HomeDesk, HomeDesks, PROCESS, PolicyFile, RUNNER, TeamCaller,
    TeamDesk, end_text, process_mark,
};
pub use heddle_registrar::storage::Storage as EffectStorage;
pub use heddle_store::is_out_of_place;
pub use heddle_store::{BackupError, Durability, OpenError, StoreError};
pub use home::{Claim, Home, HomeError};
pub use hooks::PolicyError;
pub use lock::Holder;
pub use metrics::MetricsPage;
pub use open_store::is_damage;
pub use run::{Daemon, Ending, Prepared, Ready, StartOptions};
pub use start_error::{Fatal, StartError};
pub use token::LocalToken;
pub use vectors::VectorKey;
