//! Threads that somebody owns: each is joined once, and none waits for itself.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

#[derive(Default)]
pub(crate) struct Threads {
    /// Held while joining, so that a second caller comes back no sooner than the first.
    running: Mutex<Vec<JoinHandle<()>>>,
    ids: Mutex<Vec<ThreadId>>,
}

impl Threads {
    pub(crate) fn start(
        &self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let handle = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        lock(&self.ids).push(handle.thread().id());
        lock(&self.running).push(handle);
        Ok(())
    }

    /// Whether the caller is one of these threads.
    pub(crate) fn is_current(&self) -> bool {
        lock(&self.ids).contains(&thread::current().id())
    }

    /// Waits until all have ended. One of the threads themselves (a job that held the last handle)
    /// does not wait: it ends by itself when its queue does.
    pub(crate) fn join(&self) {
        if self.is_current() {
            return;
        }
        for handle in lock(&self.running).drain(..) {
            // A panic has been caught and answered inside the thread.
            let _ = handle.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
