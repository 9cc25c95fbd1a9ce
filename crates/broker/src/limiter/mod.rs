//! The budget of a mesh: a contract and the limiter of one process.

mod contract;
mod local;
#[cfg(test)]
mod suite;

pub use contract::{Decision, Limiter, LimiterError};
pub use local::{Budget, LocalLimiter};
