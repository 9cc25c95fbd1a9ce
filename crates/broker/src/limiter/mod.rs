//! The budget of a mesh: a contract, the limiter of one process, and one that brokers share.

mod contract;
mod link;
mod local;
mod redis;
#[cfg(test)]
mod suite;

pub use contract::{Decision, Limiter, LimiterError};
pub use local::{Budget, LocalLimiter};
pub use redis::{RedisAddressError, RedisLimiter};

use heddle_core::ids::{IdKey, MeshId};

/// Whichever a broker was told to use.
pub enum AnyLimiter {
    Local(LocalLimiter),
    Redis(Box<RedisLimiter>),
}

impl Limiter for AnyLimiter {
    async fn consume(&self, mesh: MeshId, keys: &[IdKey]) -> Result<Vec<Decision>, LimiterError> {
        match self {
            Self::Local(limiter) => limiter.consume(mesh, keys).await,
            Self::Redis(limiter) => limiter.consume(mesh, keys).await,
        }
    }
}
