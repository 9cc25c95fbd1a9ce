//! A bounded first-in-first-out queue that can be closed, then drained or emptied.
//!
//! Open → closed, never back. Full is answered at once and nobody waits to push, so a slow disk turns
//! into `Busy` instead of an endless line.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) struct Queue<J> {
    state: Mutex<State<J>>,
    work: Condvar,
    capacity: usize,
}

struct State<J> {
    jobs: VecDeque<J>,
    closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl<J> Queue<J> {
    pub(crate) fn new(capacity: usize) -> Queue<J> {
        Queue {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                closed: false,
            }),
            work: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    /// A refused job is dropped here, unrun.
    pub(crate) fn push(&self, job: J) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.jobs.len() >= self.capacity {
            return Err(Refused::Full);
        }
        state.jobs.push_back(job);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Waits for the next job. `None`: closed and empty, so nothing will ever arrive.
    pub(crate) fn next(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Takes nothing more; what is queued stays to be drained.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// Takes nothing more and hands back what was queued.
    pub(crate) fn close_and_empty(&self) -> VecDeque<J> {
        let mut state = self.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.work.notify_all();
        jobs
    }

    /// No code that can panic runs under this lock, so a poisoned mutex still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Queue, Refused};

    #[test]
    fn a_full_queue_refuses_at_once_and_keeps_order() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(Refused::Full));
        assert_eq!(queue.next(), Some(1));
        assert_eq!(queue.push(4), Ok(()));
        assert_eq!(queue.next(), Some(2));
        assert_eq!(queue.next(), Some(4));
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_still_gives_what_it_holds() {
        let queue = Queue::new(4);
        assert_eq!(queue.push(1), Ok(()));
        queue.close();
        assert_eq!(queue.push(2), Err(Refused::Closed));
        assert_eq!(queue.next(), Some(1));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn emptying_hands_back_every_job_so_that_each_can_be_answered() {
        let queue = Queue::new(4);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.close_and_empty(), [1, 2]);
        assert_eq!(queue.next(), None);
    }
}
