//! Leading: taking what waits through one transaction, on whichever thread it is.
//!
//! A task that queues a write while nobody leads does it where it stands, at once: that is the shortest
//! way for a lone write. If more has been queued by the time it is done, a task of its own leads on, each
//! time after all others that are ready have had their turn; what those queue meanwhile rides along. So
//! batches grow with the load, and no timer is needed. The writer's thread leads for callers without a
//! runtime, for a slow disk, and for checkpoints. A thread that serves many callers by turns gathers what
//! they write, and leads once for all of them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rusqlite::Connection;

use crate::checkpoint::{IDLE_PAUSE, Need, note};
use crate::counters::Counters;
use crate::line::{Duty, Line};
use crate::mover::Mover;
use crate::options::Options;
use crate::place::Place;
use crate::poison::Poison;
use crate::reply::panic_text;
use crate::ticket::Verdict;
use crate::writer::{Writer, settle};

/// A disk whose last commit took longer is waited for on the writer's own thread: a task that waits in
/// its place would hold up whatever else its runtime has to do.
const LEAD_IN_TASK_MAX: Duration = Duration::from_millis(20);

thread_local! {
    /// The leadership for which this thread gathers: its address, or 0.
    static GATHERS_FOR: Cell<usize> = const { Cell::new(0) };
}

/// The writer and all that its leaders share.
pub(crate) struct Leadership {
    pub(crate) line: Line,
    poison: Poison,
    /// Taken by the leader only, so nobody ever waits for it. `None` once the file is closed.
    writer: Mutex<Option<Writer>>,
    counters: Arc<Counters>,
}

impl Leadership {
    pub(crate) fn new(
        connection: Connection,
        options: Options,
        place: Arc<Place>,
        poison: Poison,
        counters: Arc<Counters>,
    ) -> Leadership {
        Leadership {
            line: Line::new(options.queue_capacity),
            poison: poison.clone(),
            counters: Arc::clone(&counters),
            writer: Mutex::new(Some(Writer::new(
                connection, options, place, poison, counters,
            ))),
        }
    }

    /// The writer's thread. It ends when the line is closed and drained, or the handle is poisoned;
    /// every job that was ever queued is settled by then.
    pub(crate) fn run_thread(&self, mut mover: Mover) {
        while self.poison.reason().is_none() {
            match self.line.next_duty(IDLE_PAUSE) {
                Duty::Commit => {
                    if self.lead() {
                        self.line.call();
                    }
                }
                Duty::Checkpoint => {
                    self.guarded(|writer| {
                        writer.checkpoint();
                        Need::None
                    });
                    self.line.call();
                }
                Duty::MoveBeside => {
                    match mover.run() {
                        Ok(()) => self.counters.moved_beside(),
                        Err(fault) => note(&self.poison, fault),
                    }
                    self.line.moved();
                }
                Duty::End => break,
            }
        }
        if let Some(reason) = self.poison.reason() {
            settle(self.line.close_and_empty(), &Verdict::Poisoned(reason));
        }
        // The writer's is the last connection: it empties the log.
        drop(mover);
        if let Some(writer) = self.writer().take() {
            writer.close();
        }
    }

    /// One batch by the caller, who has become the leader. True if more waits.
    fn lead(&self) -> bool {
        self.guarded(|writer| {
            writer.commit_batch(&self.line);
            writer.need()
        })
    }

    /// Runs a leader's work so that the lead is given up whatever happens.
    fn guarded(&self, work: impl FnOnce(&mut Writer) -> Need) -> bool {
        let mut writer = self.writer();
        let done = catch_unwind(AssertUnwindSafe(|| writer.as_mut().map(work)));
        drop(writer);
        let need = match done {
            Ok(need) => need.unwrap_or(Need::None),
            Err(payload) => {
                self.poison
                    .set(&format!("the writer panicked: {}", panic_text(&*payload)));
                Need::None
            }
        };
        if let Some(reason) = self.poison.reason() {
            // The thread sees it too, and ends; until then nobody may be left waiting.
            settle(self.line.close_and_empty(), &Verdict::Poisoned(reason));
        }
        self.line.end_lead(need)
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_lead_in_task(&self) -> bool {
        self.counters.last_took() <= LEAD_IN_TASK_MAX
    }
}

/// Sees to it that what the caller has just queued is led: here and now if nobody leads.
pub(crate) fn see_to_it(leadership: &Arc<Leadership>) {
    if GATHERS_FOR.get() == Arc::as_ptr(leadership).addr() {
        // This very thread will, in a moment.
        return;
    }
    let runtime = match tokio::runtime::Handle::try_current() {
        Ok(runtime) if leadership.may_lead_in_task() => runtime,
        _ => return leadership.line.call(),
    };
    // On a runtime of one thread nobody could queue anything while we wait for the disk.
    let is_alone = runtime.metrics().num_workers() == 1;
    let is_owed = if is_alone {
        leadership.line.promise()
    } else {
        leadership.line.try_lead() && leadership.lead()
    };
    if is_owed {
        // Our own caller may have its answer; those behind it get a leader of their own.
        runtime.spawn(go_on(Promised {
            leadership: Arc::clone(leadership),
            is_kept: false,
        }));
    }
}

/// Runs work whose writes nobody has to lead: the caller will, with `lead_gathered`, whatever becomes of
/// the work.
pub(crate) fn gather<R>(leadership: &Arc<Leadership>, work: impl FnOnce() -> R) -> R {
    let before = GATHERS_FOR.replace(Arc::as_ptr(leadership).addr());
    let _end = Gathering { before };
    work()
}

/// Ends with its scope, also by a panic.
struct Gathering {
    before: usize,
}

impl Drop for Gathering {
    fn drop(&mut self) {
        GATHERS_FOR.set(self.before);
    }
}

/// Leads what was gathered, here. A slow disk, and what others have queued meanwhile, is for the thread.
pub(crate) fn lead_gathered(leadership: &Leadership) {
    if !leadership.may_lead_in_task() || (leadership.line.try_lead() && leadership.lead()) {
        leadership.line.call();
    }
}

/// Leads again and again, each time after those who have just been answered, and all others who are
/// ready, have had their turn. What they queue meanwhile rides along.
async fn go_on(mut promised: Promised) {
    while promised.leadership.may_lead_in_task() {
        turn().await;
        if !promised.leadership.line.keep_promise() || !promised.leadership.lead() {
            promised.is_kept = true;
            return;
        }
    }
}

/// Lets everybody who is ready run first.
async fn turn() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The promise to lead: dropped unkept (a runtime that ends), it calls the thread.
struct Promised {
    leadership: Arc<Leadership>,
    is_kept: bool,
}

impl Drop for Promised {
    fn drop(&mut self) {
        if !self.is_kept {
            self.leadership.line.call();
        }
    }
}
