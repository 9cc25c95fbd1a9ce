//! SQLite as Heddle uses it: one group-commit writer per file, a pool of readers, forward-only migrations.
//!
//! This crate owns the mechanics and no tables but `_migrations`. Its one promise: a write is answered
//! `Ok` only after the `COMMIT` that carries it, with its sync, has returned; and once a sync or a page
//! has failed, no later write on that handle is ever answered `Ok` (DESIGN §3, OB-02, OB-14).

mod checkpoint;
mod condition;
mod connection;
mod counters;
mod database;
mod error;
mod fault;
mod files;
mod growth;
mod kept;
mod kind;
mod lead;
mod line;
mod log;
mod migrate;
mod mover;
mod options;
mod place;
mod poison;
mod queue;
mod readers;
mod reply;
mod threads;
mod ticket;
mod trial;
mod vectors;
mod writer;

pub use condition::{Condition, Depth, Look, Subject, examine};
pub use counters::Stats;
pub use database::Database;
pub use error::{IntegrityError, OpenError, ReadError, WriteError};
pub use growth::bound_growth;
pub use kept::copies_before_steps;
pub use kind::{Kind, Misplaced, misplaced, not_a_file, open_plain, refuse_misplaced};
pub use log::{GivenUp, give_up_lost_log, log_heals, lost_log, mend_log};
pub use migrate::{Migration, StepsTaken};
pub use options::{Durability, LogBounds, Options};
pub use place::is_out_of_place;
pub use trial::{Refused as RefusedStep, Trial, try_steps};
pub use vectors::link_vectors;
