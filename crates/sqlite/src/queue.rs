//! A bounded first-in-first-out queue that can be closed, then drained or emptied.
//!
//! Open → closed, never back. Full is answered at once and nobody waits to push, so a slow disk turns
//! into `Busy` instead of an endless line.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<J> {
    Job(J),
    /// Nothing arrived within the given time.
    Idle,
    /// Closed and empty: nothing will ever arrive.
    Ended,
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

    /// Waits for the next job: without end, or until `patience` has passed.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Next<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Next::Job(job);
            }
            if state.closed {
                return Next::Ended;
            }
            match patience {
                None => {
                    state = self
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Some(patience) => {
                    let (again, waited) = self
                        .work
                        .wait_timeout(state, patience)
                        .unwrap_or_else(PoisonError::into_inner);
                    state = again;
                    if waited.timed_out() && state.jobs.is_empty() && !state.closed {
                        return Next::Idle;
                    }
                }
            }
        }
    }

    /// Jobs that wait now.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// The next job if one is already waiting.
    pub(crate) fn try_next(&self) -> Option<J> {
        self.lock().jobs.pop_front()
    }

    /// The next job if one is already waiting and is of this kind.
    pub(crate) fn try_next_if(&self, is_wanted: impl FnOnce(&J) -> bool) -> Option<J> {
        let mut state = self.lock();
        match state.jobs.front() {
            Some(job) if is_wanted(job) => state.jobs.pop_front(),
            _ => None,
        }
    }

    /// Whether such a job is waiting.
    pub(crate) fn any(&self, is_wanted: impl Fn(&J) -> bool) -> bool {
        self.lock().jobs.iter().any(is_wanted)
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
    use super::{Next, Queue, Refused};
    use std::time::Duration;

    #[test]
    fn a_full_queue_refuses_at_once_and_keeps_order() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(Refused::Full));
        assert_eq!(queue.try_next(), Some(1));
        assert_eq!(queue.push(4), Ok(()));
        assert_eq!(queue.next(None), Next::Job(2));
        assert_eq!(queue.next(None), Next::Job(4));
        assert_eq!(queue.next(Some(Duration::from_millis(1))), Next::Idle);
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_still_gives_what_it_holds() {
        let queue = Queue::new(4);
        assert_eq!(queue.push(1), Ok(()));
        queue.close();
        assert_eq!(queue.push(2), Err(Refused::Closed));
        assert_eq!(queue.next(None), Next::Job(1));
        assert_eq!(queue.next(None), Next::Ended);
    }

    #[test]
    fn emptying_hands_back_every_job_so_that_each_can_be_answered() {
        let queue = Queue::new(4);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.close_and_empty(), [1, 2]);
        assert_eq!(queue.next(None), Next::Ended);
    }
}
