//! The crash disk: an in-memory SQLite VFS that remembers what was synced and can fail on request.
//!
//! Every change of a file goes into a log with an index. From that log [`Replay`] builds what a disk
//! would hold had the power gone at any index, under each kind of [`Damage`]; one run of a workload so
//! gives thousands of crashes. Faults that the running code must notice by itself (a failing sync, no
//! space, a dead device) are switched on with the methods of [`CrashDisk`].
//!
//! What it promises to SQLite is what a plain disk promises: nothing. What it does on a sync is what
//! Linux does, with the unpleasant part: after a failed sync the written pages stay readable but are no
//! longer written by later syncs.

mod damage;
mod disk;
mod faults;
mod files;
mod inode;
mod locks;
mod op;
mod register;
mod replay;
mod rng;
mod shm;
mod vfs;

pub use damage::Damage;
pub use disk::{CrashDisk, Device};
pub use faults::Times;
pub use op::{Op, What};
pub use replay::Replay;
