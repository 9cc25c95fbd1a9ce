//! The way out: accept from a caller, drain to the broker, requeue by an operator.

pub(crate) mod accept;
pub(crate) mod drain;
pub(crate) mod requeue;
