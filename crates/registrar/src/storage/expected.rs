//! The link that this process has seen last: what is written must come behind it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::chain::Link;

#[derive(Debug, Clone, Default)]
pub(super) struct Expected(Arc<Mutex<Option<Link>>>);

impl Expected {
    pub(super) fn get(&self) -> Option<Link> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, link: Option<Link>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    /// After the commit. Commits are seen in any order; the last link stands for all.
    pub(super) fn raise(&self, link: Option<Link>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if link.map(|link| link.seq) > held.map(|held| held.seq) {
            *held = link;
        }
    }
}
