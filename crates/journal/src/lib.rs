//! The repository journal: an ordered history of whole documents, from which the state is derived.
//!
//! Lives in `.heddle/` of a repository and works without daemon and broker. `docs/FORMAT.md` is the
//! format in bytes. The way of a mutation: [`mutate`] plans, [`session`] holds the kernel lock, puts
//! right what a crash left ([`recovery`] is the table), appends one batch in one write and syncs it;
//! only then [`projection`] writes files, revision index and cache. Reading back is [`replay`] over
//! [`lines`], with [`reduce`] as the one decision for live and replay.

pub mod action;
mod ahead;
mod back;
mod base;
mod batch;
mod begin;
mod below;
mod blobs;
pub mod checkpoint;
mod contents;
mod counters;
mod cursor;
pub mod disk;
mod doctor;
mod encode;
mod erased;
mod error;
pub mod federation;
pub mod format;
mod gaps;
mod gc;
mod group;
mod heal;
mod journal;
pub mod layout;
mod level;
pub mod lines;
mod loss;
pub mod meta;
mod migrate;
mod misnamed;
mod mutate;
pub mod notes;
mod page;
pub mod phases;
mod projection;
mod pulled;
mod quarantine;
mod read;
mod reconcile;
pub mod record;
mod recorded;
pub mod recovery;
mod redact;
pub mod reduce;
pub mod registry;
pub mod replay;
mod requests;
mod reserve;
mod restore;
mod revisions;
mod room;
mod rules;
pub mod seen;
pub mod segments;
mod session;
mod snapshot;
mod stamp;
mod stray;
mod text;
mod unbroken;
mod unsynced;
mod verify;

pub use begin::{Begins, Earlier};
pub use cursor::Reading;
pub use doctor::{Examined, Times};
pub use error::JournalError;
pub use gaps::{AcceptedGaps, Gaps};
pub use gc::Collected;
pub use journal::{Journal, Settings, Who, World};
pub use loss::Lost;
pub use migrate::{Migrated, RolledBack};
pub use mutate::{Change, Committed, Receipt};
pub use page::{Page, Summary};
pub use quarantine::Quarantined;
pub use read::{Freshness, Shown};
pub use redact::{Redacted, Target};
pub use reserve::{Glob, Reservation, Reserved};
pub use restore::Restored;
pub use verify::{Cause, Divergence, Verified};
