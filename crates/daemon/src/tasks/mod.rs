//! Leases of tasks: renewed by their holders' own activity, ended when they have run out.
//!
//! A clock only says when an op may be made; what it does is decided by the fold (`core::task`).

mod activity;
mod watch;

pub(crate) use activity::Activity;
pub(crate) use watch::{end, run};
