//! The runtimes of this process, and the one way to run something on them to its end.

use std::io;
use std::pin::Pin;

use tokio::runtime::Builder;

/// A runtime that a command waits for.
pub struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    /// For an errand: its tasks take turns on the caller's thread.
    pub fn single() -> io::Result<Self> {
        Builder::new_current_thread().enable_all().build().map(Self)
    }

    /// For a server, as many threads as the machine has cores. At least two: a task that leads a commit waits
    /// for the disk where it stands.
    pub fn many() -> io::Result<Self> {
        let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(workers).enable_all().build();
        runtime.map(Self)
    }

    /// Boxed: otherwise all of the work would be compiled three times, once for each way that tokio has to run
    /// it. Most of this crate's build went there.
    pub fn run<'a, T>(&self, work: impl Future<Output = T> + 'a) -> T {
        let work: Pin<Box<dyn Future<Output = T> + 'a>> = Box::pin(work);
        self.0.block_on(work)
    }

    /// What still blocks now (a stuck disk) must not keep the process.
    pub fn leave(self) {
        self.0.shutdown_background();
    }
}
