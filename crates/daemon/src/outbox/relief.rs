//! A send that a budget refuses while delivered messages hold it: it waits for the next look, which gives their payloads back, and
//! is asked again. Nobody is told "no room" for what nobody needs any more.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Looks that one send waits for at most: the first may have begun before the message was delivered that holds the room.
pub(crate) const LOOKS_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct Relief {
    /// Something was delivered since the last look gave back; at a start nobody knows.
    has_done: AtomicBool,
    /// Somebody waits for room, however little is held: a large message may not fit beside delivered ones.
    is_wanted: AtomicBool,
    /// Looks that have ended.
    looks: watch::Sender<u64>,
}

impl Default for Relief {
    fn default() -> Self {
        Self {
            has_done: AtomicBool::new(true),
            is_wanted: AtomicBool::new(false),
            looks: watch::Sender::new(0),
        }
    }
}

impl Relief {
    pub(crate) fn note_done(&self) {
        self.has_done.store(true, Ordering::Relaxed);
    }

    /// What is delivered from now on is for the next look.
    pub(super) fn begins(&self) {
        self.has_done.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::Relaxed)
    }

    pub(super) fn has_looked(&self) {
        self.looks
            .send_modify(|looks| *looks = looks.wrapping_add(1));
    }

    /// Whether there may be room after the next look, which `ask` asks for. It is waited for then.
    pub(super) async fn comes(&self, ask: impl FnOnce()) -> bool {
        // IMPORTANT: before the question, or a look that ends in between would be missed.
        let mut looks = self.looks.subscribe();
        if !self.has_done.load(Ordering::Relaxed) {
            return false;
        }
        self.is_wanted.store(true, Ordering::Relaxed);
        ask();
        looks.changed().await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn only_what_was_delivered_is_worth_a_look_and_a_look_wakes_everybody() {
        let relief = Arc::new(Relief::default());
        relief.begins();
        assert!(!relief.comes(|| panic!("nothing was delivered")).await);
        relief.note_done();
        let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (relief, asked) = (Arc::clone(&relief), asked.clone());
                tokio::spawn(async move { relief.comes(|| asked.send(()).unwrap()).await })
            })
            .collect();
        for _ in 0..3 {
            asks.recv().await.unwrap();
        }
        assert!(relief.is_wanted() && !relief.is_wanted());
        relief.begins();
        relief.has_looked();
        for one in waiting {
            assert!(one.await.unwrap());
        }
        assert!(!relief.comes(|| panic!("it was given back")).await);
    }
}
