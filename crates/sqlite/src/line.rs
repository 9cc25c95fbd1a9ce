//! The line of writes that wait for a transaction, and who carries it to its commit: the leader.
//!
//! At most one thread leads at a time. A caller that finds nobody leading may lead itself, which spares
//! a lone write two changes of thread; the writer's own thread leads for everybody else, and does what
//! no caller should wait for. Whoever leads takes all that waits, so callers share a sync either way.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::checkpoint::Need;
use crate::queue::Refused;
use crate::ticket::QueuedWrite;

pub(crate) type Job = Box<dyn QueuedWrite>;

pub(crate) struct Line {
    state: Mutex<State>,
    /// The writer's thread waits here.
    call: Condvar,
    capacity: usize,
}

struct State {
    jobs: VecDeque<Job>,
    closed: bool,
    leader: Option<ThreadId>,
    /// A task has promised to lead what waits, in a moment.
    promised: bool,
    /// Somebody wants the thread to lead.
    called: bool,
    log: Log,
    /// Rises with every batch that anybody led.
    batches: u64,
}

struct Log {
    /// What it needs, as of the last commit.
    need: Need,
    /// It was moved beside commits; what they added meanwhile is to be moved before the next one.
    rest_waits: bool,
}

/// What the writer's thread has to do next. For `Commit` and `Checkpoint` it leads from now on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Commit,
    Checkpoint,
    /// Move the log while others lead; then say `moved`.
    MoveBeside,
    /// Closed, and nothing is left.
    End,
}

impl Line {
    pub(crate) fn new(capacity: usize) -> Line {
        Line {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                closed: false,
                leader: None,
                promised: false,
                called: false,
                log: Log {
                    need: Need::None,
                    rest_waits: false,
                },
                batches: 0,
            }),
            call: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    /// Queues a job. Whoever pushes sees to it that somebody leads: itself, or the thread by a `call`.
    /// A refused job is dropped here, unrun.
    pub(crate) fn push(&self, job: Job) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.jobs.len() >= self.capacity {
            return Err(Refused::Full);
        }
        state.jobs.push_back(job);
        Ok(())
    }

    /// Asks the thread to lead, if there is anything to lead and nobody does.
    pub(crate) fn call(&self) {
        let mut state = self.lock();
        state.promised = false;
        if state.jobs.is_empty() || state.leader.is_some() {
            return;
        }
        // Every time: an earlier call may have been answered by a task that was quicker, and the thread
        // waits again although it is still called.
        state.called = true;
        drop(state);
        self.call.notify_one();
    }

    /// Makes the caller the leader, unless there is one, or will be, or nothing is to be done. It owes
    /// an `end_lead`.
    pub(crate) fn try_lead(&self) -> bool {
        let mut state = self.lock();
        if state.promised {
            return false;
        }
        state.lead_if_free()
    }

    /// Promises that a task will lead in a moment, unless somebody does or has promised to.
    pub(crate) fn promise(&self) -> bool {
        let mut state = self.lock();
        let is_owed = !state.promised && state.leader.is_none() && !state.jobs.is_empty();
        state.promised |= is_owed;
        is_owed
    }

    /// The same for the task that promised it.
    pub(crate) fn keep_promise(&self) -> bool {
        let mut state = self.lock();
        state.promised = false;
        state.lead_if_free()
    }

    /// Jobs that wait now.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Whether the caller's thread leads right now, that is, runs a job.
    pub(crate) fn leads_here(&self) -> bool {
        self.lock().leader == Some(thread::current().id())
    }

    /// For the leader: all that waits, up to a bound. One lock for many.
    pub(crate) fn take(&self, jobs_max: usize) -> VecDeque<Job> {
        let mut state = self.lock();
        if state.jobs.len() <= jobs_max {
            return std::mem::take(&mut state.jobs);
        }
        let rest = state.jobs.split_off(jobs_max);
        std::mem::replace(&mut state.jobs, rest)
    }

    /// For the leader: puts back what did not fit, in front.
    pub(crate) fn give_back(&self, mut jobs: VecDeque<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.lock();
        jobs.append(&mut state.jobs);
        state.jobs = jobs;
    }

    /// Ends a lead and says whether more waits; if so, the caller has promised to lead again, and
    /// does, or calls the thread.
    pub(crate) fn end_lead(&self, need: Need) -> bool {
        let mut state = self.lock();
        state.leader = None;
        state.batches += 1;
        let is_news = need != Need::None && state.log.need != need;
        state.log.need = need;
        let waits = !state.jobs.is_empty();
        state.promised = waits;
        let is_awaited = state.closed || state.log.rest_waits;
        drop(state);
        if is_news || is_awaited {
            self.call.notify_one();
        }
        waits
    }

    /// For the writer's thread: it has moved the log beside commits, and moves the rest before the next one.
    pub(crate) fn moved(&self) {
        self.lock().log.rest_waits = true;
    }

    /// For the writer's thread: waits until it has a duty. `idle` is the pause after which a log that
    /// is worth a checkpoint gets one.
    pub(crate) fn next_duty(&self, idle: Duration) -> Duty {
        let mut state = self.lock();
        loop {
            if state.leader.is_none()
                && let Some(duty) = state.duty()
            {
                state.called = false;
                state.log.rest_waits = false;
                state.leader = (duty != Duty::End).then(|| thread::current().id());
                return duty;
            }
            if state.log.need == Need::Beside && !state.log.rest_waits && !state.closed {
                return Duty::MoveBeside;
            }
            if state.log.need != Need::WhenIdle {
                state = self
                    .call
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let batches = state.batches;
            let (again, waited) = self
                .call
                .wait_timeout(state, idle)
                .unwrap_or_else(PoisonError::into_inner);
            state = again;
            let is_idle = state.batches == batches && state.jobs.is_empty();
            if waited.timed_out() && is_idle && state.leader.is_none() && !state.closed {
                state.leader = Some(thread::current().id());
                return Duty::Checkpoint;
            }
        }
    }

    /// Takes nothing more; what is queued stays to be drained by the thread.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.call.notify_all();
    }

    /// Takes nothing more and hands back what was queued.
    pub(crate) fn close_and_empty(&self) -> VecDeque<Job> {
        let mut state = self.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.call.notify_all();
        jobs
    }

    /// No code that can panic runs under this lock, so a poisoned mutex still guards a whole state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// For tasks. A log that is too long goes first: the thread has been told, and takes what waits along.
    fn lead_if_free(&mut self) -> bool {
        if self.jobs.is_empty() || self.leader.is_some() || self.is_log_first() {
            return false;
        }
        self.leader = Some(thread::current().id());
        true
    }

    fn is_log_first(&self) -> bool {
        self.log.need == Need::Now || self.log.rest_waits
    }

    /// What the thread should do at once, given that nobody leads.
    fn duty(&self) -> Option<Duty> {
        if self.is_log_first() {
            return Some(Duty::Checkpoint);
        }
        if !self.jobs.is_empty() && (self.called || self.closed) {
            return Some(Duty::Commit);
        }
        (self.closed && self.jobs.is_empty()).then_some(Duty::End)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use rusqlite::Connection;

    use super::*;
    use crate::reply::Reply;
    use crate::ticket::{Promise, Ran, Settled, Undo};

    struct Nothing;

    impl QueuedWrite for Nothing {
        fn promise(&self) -> Promise {
            Promise::Durable
        }

        fn undo(&self) -> Undo {
            Undo::Savepoint
        }

        fn is_patient(&self) -> bool {
            true
        }

        fn run(&mut self, _: &Connection) -> Ran {
            Ran::Keep
        }

        fn take_reply(&mut self) -> Option<Reply<Settled>> {
            None
        }
    }

    fn push(line: &Line) {
        assert!(line.push(Box::new(Nothing)).is_ok());
    }

    /// The writer's thread: tells each of its duties and ends it.
    fn thread_of(line: &Arc<Line>) -> mpsc::Receiver<Duty> {
        let (tell, told) = mpsc::channel();
        let line = Arc::clone(line);
        thread::spawn(move || {
            loop {
                let duty = line.next_duty(Duration::from_secs(600));
                if duty == Duty::MoveBeside {
                    line.moved();
                } else {
                    if duty == Duty::Commit {
                        line.take(100);
                    }
                    line.end_lead(Need::None);
                    line.call();
                }
                if duty == Duty::End || tell.send(duty).is_err() {
                    return;
                }
            }
        });
        told
    }

    fn next(told: &mpsc::Receiver<Duty>) -> Duty {
        told.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    #[test]
    fn a_call_that_a_task_was_quicker_to_answer_does_not_silence_the_next_one() {
        let line = Arc::new(Line::new(10));
        push(&line);
        line.call();
        assert!(line.try_lead());
        line.take(10);
        assert!(!line.end_lead(Need::None));
        let told = thread_of(&line);
        // By now the thread waits, called and with nothing to do; later it would find the job by itself.
        thread::sleep(Duration::from_millis(50));
        push(&line);
        line.call();
        assert_eq!(next(&told), Duty::Commit);
        line.close();
    }

    #[test]
    fn a_log_that_is_too_long_goes_before_the_next_lead_of_a_task() {
        let line = Arc::new(Line::new(10));
        for _ in 0..2 {
            push(&line);
        }
        assert!(line.try_lead());
        line.take(1);
        assert!(line.end_lead(Need::Now));
        assert!(!line.keep_promise(), "the thread comes first");
        assert!(!line.try_lead());
        let told = thread_of(&line);
        assert_eq!(next(&told), Duty::Checkpoint);
        assert_eq!(next(&told), Duty::Commit, "what waited is not forgotten");
        push(&line);
        assert!(line.try_lead(), "and then tasks lead again");
        line.take(1);
        line.end_lead(Need::None);
        line.close();
    }

    #[test]
    fn a_long_log_is_moved_beside_commits_and_only_its_rest_goes_before_the_next_one() {
        let line = Line::new(10);
        push(&line);
        assert!(line.try_lead());
        line.take(1);
        line.end_lead(Need::Beside);
        push(&line);
        assert!(line.try_lead(), "nobody waits while the log is moved");
        assert_eq!(line.next_duty(Duration::ZERO), Duty::MoveBeside);
        line.moved();
        line.take(1);
        // The log is as long as before: what was moved is still in it.
        line.end_lead(Need::Beside);
        push(&line);
        assert!(!line.try_lead(), "the rest comes first, or it never ends");
        assert_eq!(line.next_duty(Duration::ZERO), Duty::Checkpoint);
        assert!(line.end_lead(Need::None));
        assert!(line.keep_promise(), "and then tasks lead again");
    }

    #[test]
    fn the_thread_hears_of_the_end_of_a_lead_that_it_waits_for_with_the_rest_of_a_log() {
        let line = Arc::new(Line::new(10));
        push(&line);
        assert!(line.try_lead());
        line.take(1);
        line.end_lead(Need::Beside);
        push(&line);
        assert!(line.try_lead());
        let told = thread_of(&line);
        assert_eq!(next(&told), Duty::MoveBeside);
        // By now the thread waits for us.
        thread::sleep(Duration::from_millis(50));
        line.take(1);
        line.end_lead(Need::Beside);
        assert_eq!(next(&told), Duty::Checkpoint);
        line.close();
    }

    #[test]
    fn a_line_that_closes_while_its_log_is_moved_ends_with_an_empty_log() {
        let line = Line::new(10);
        push(&line);
        assert!(line.try_lead());
        line.take(1);
        line.end_lead(Need::Beside);
        assert_eq!(line.next_duty(Duration::ZERO), Duty::MoveBeside);
        line.close();
        line.moved();
        assert_eq!(line.next_duty(Duration::ZERO), Duty::Checkpoint);
        line.end_lead(Need::None);
        assert_eq!(line.next_duty(Duration::ZERO), Duty::End);
    }
}
