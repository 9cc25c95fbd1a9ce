//! Limiters for tests: one that counts its calls, one that does not answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use heddle_core::ids::{IdKey, MeshId};

use crate::limiter::{Decision, Limiter, LimiterError};

/// Grants everything, and remembers how often it was asked.
#[derive(Default)]
pub(crate) struct CountingLimiter {
    calls: AtomicUsize,
    units: AtomicUsize,
}

impl CountingLimiter {
    pub(crate) fn call_count(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn unit_count(&self) -> usize {
        self.units.load(Ordering::SeqCst)
    }
}

impl Limiter for CountingLimiter {
    async fn consume(&self, _: MeshId, keys: &[IdKey]) -> Result<Vec<Decision>, LimiterError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.units.fetch_add(keys.len(), Ordering::SeqCst);
        let granted = Decision::Granted {
            window: 0,
            counted: true,
        };
        Ok(vec![granted; keys.len()])
    }
}

/// Down, or only slow: it never answers.
pub(crate) struct StuckLimiter {
    pub(crate) is_down: bool,
}

impl Limiter for StuckLimiter {
    async fn consume(&self, _: MeshId, _: &[IdKey]) -> Result<Vec<Decision>, LimiterError> {
        if self.is_down {
            return Err(LimiterError("down".to_owned()));
        }
        std::future::pending().await
    }
}
