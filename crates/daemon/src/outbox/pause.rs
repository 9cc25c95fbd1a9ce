//! The pause of a mesh whose broker keeps silent on a connection that stands, or can keep nothing for now.
//!
//! All rows of the mesh wait together and go on in their order; after it one batch goes alone, to see.

use std::pin::Pin;

use heddle_core::backoff::backoff;

use crate::shared::Shared;

/// What became of a batch as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchEnd {
    Answered,
    /// The network is at fault, or the broker: the whole mesh waits, not this row or that.
    Silent,
}

/// That wait, of one connection.
#[derive(Default)]
pub(super) struct Pause {
    failures: u32,
    wait: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Pause {
    pub(super) fn is_on(&self) -> bool {
        self.wait.is_some()
    }

    /// It has been on, and no batch was answered since.
    pub(super) fn is_probing(&self) -> bool {
        self.failures > 0
    }

    pub(super) fn heard(&mut self, end: BatchEnd, shared: &Shared) {
        match end {
            BatchEnd::Answered => *self = Self::default(),
            // Of several that were on their way together: one outage is one failure.
            BatchEnd::Silent if self.is_on() => {}
            BatchEnd::Silent => {
                let wait = backoff(self.failures, shared.ids.below(u64::MAX));
                self.failures = self.failures.saturating_add(1);
                self.wait = Some(Box::pin(tokio::time::sleep(wait)));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) async fn over(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.await;
        }
        self.wait = None;
    }
}
