//! What the gate needs from a limiter, and what every limiter promises.
//!
//! **A budget per mesh and window.** In one window at most `limit` distinct ids of a mesh are
//! granted (RL-01). The limiter's own clock names the window.
//!
//! **Idempotent.** An id counts once in a window, however often and from however many callers it
//! comes (RL-02). A denied call counts nothing and is not remembered (RL-04), and is told when the next window begins.
//!
//! **Bounded.** What it remembers is bounded by the traffic of two windows.
//!
//! **Never unmetered.** If it cannot count it answers an error, and the caller refuses for now (RL-06).
//! It is no authority on ids: the dedupe table is. All its memory may be lost at any time.

use std::future::Future;
use std::time::Duration;

use heddle_core::ids::{IdKey, MeshId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Granted {
        /// The limiter's own number of the window.
        window: u64,
        /// False: the id had been counted in this window, and this call was free.
        counted: bool,
    },
    Denied {
        /// What is left of the window.
        retry_after: Duration,
    },
}

/// The limiter cannot count now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the limiter does not answer: {0}")]
pub struct LimiterError(pub String);

pub trait Limiter: Send + Sync + 'static {
    /// Asks for one unit for each key, in order, in one round. A key already names mesh, sender and
    /// id, so two senders' equal ids are two units (C1).
    fn consume(
        &self,
        mesh: MeshId,
        keys: &[IdKey],
    ) -> impl Future<Output = Result<Vec<Decision>, LimiterError>> + Send;
}
