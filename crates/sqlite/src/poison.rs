//! The mark that a handle must never write again. Once set it stays; the first reason is kept.

use std::sync::{Arc, OnceLock};

#[derive(Clone, Debug, Default)]
pub(crate) struct Poison(Arc<OnceLock<Arc<str>>>);

impl Poison {
    /// Marks the handle and returns the reason that counts: the first one ever given.
    pub(crate) fn set(&self, reason: &str) -> Arc<str> {
        Arc::clone(self.0.get_or_init(|| Arc::from(reason)))
    }

    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.0.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::Poison;

    #[test]
    fn a_second_failure_does_not_hide_the_first() {
        let poison = Poison::default();
        assert_eq!(poison.reason(), None);
        assert_eq!(&*poison.set("sync failed"), "sync failed");
        assert_eq!(&*poison.set("consequence"), "sync failed");
        assert_eq!(poison.clone().reason().as_deref(), Some("sync failed"));
    }
}
