//! The way out: accept from a caller, drain to the broker, requeue by an operator; age, disk and prune.

pub(crate) mod accept;
pub(crate) mod age;
mod count;
pub(crate) mod disk;
pub(crate) mod drain;
mod full;
mod growth;
pub(crate) mod lost;
mod moved;
mod owed;
mod pause;
pub(crate) mod prune;
pub(crate) mod relief;
pub(crate) mod requeue;
pub(crate) mod second_look;
mod shares;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod window;
