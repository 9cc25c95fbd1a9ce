//! Tasks: all ops of a task are kept, and its row, its record and its warnings are folded from them.
//!
//! An op whose task is not here yet is kept all the same, and counts when the create has come (C38).

mod anew;
mod backfill;
mod change;
mod damage;
mod fold;
mod heard;
mod lease;
mod losses;
mod page;
mod restate;
mod row;
mod seal;
mod unheard;

pub(crate) use anew::{Refolded, Salvaged, fold_anew, unfolded};
pub(crate) use backfill::backfill;
pub use change::{NewTask, TaskRefusal, TaskStop, TaskWish};
pub use damage::TaskDamage;
pub(crate) use damage::{bad_part, damage};
pub(crate) use fold::{take, take_own};
pub use lease::HeldTask;
pub(crate) use page::dump;
pub use page::{TaskFilter, TaskWhich};
pub use row::TaskRow;
pub(crate) use row::problems;
pub(crate) use seal::fill;

#[cfg(test)]
pub(crate) mod statements {
    pub(crate) use super::backfill::BACKFILL;
    pub(crate) use super::fold::{
        BLOCK, DROP_EVENTS, KEEP_OP, NOTE_EVENT, OPS, WAIT_BEHIND, WAIT_SELF,
    };
    pub(crate) use super::lease::{CLAIMS, FORGET, SEE, UNSEEN};
    pub(crate) use super::losses::KNOWN;
    pub(crate) use super::page::{BY_STATUS, EVENTS, EVERY, READY};
    pub(crate) use super::row::{BLOCKERS, ONE};
}
