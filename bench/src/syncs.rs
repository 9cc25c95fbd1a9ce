//! Counts the syncs of the daemon, from outside and never in a round that is timed.
//!
//! `perf` counts without slowing anything down; where it is missing or not allowed, `strace` does,
//! and slows the daemon so much that fewer messages share a commit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{BenchError, Outcome, While as _};
use crate::process::{self, Running, bound, installed};
use crate::product::Product;

pub const HOW_TO_INSTALL: &str =
    "neither perf nor strace can be used: apt-get install linux-perf, or strace, and be root";
const EVENTS: &str = "syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync";
/// The log is checkpointed when the writer has been idle a little while; those syncs count, too.
const SETTLE: Duration = Duration::from_millis(200);
/// How long `perf` may take to begin, and to end.
const PERF_START: Duration = Duration::from_millis(400);
const PERF_END_MAX: Duration = Duration::from_secs(5);

/// A daemon whose syncs can be counted.
pub struct Counted {
    pub product: Product,
    means: Means,
    log: PathBuf,
}

enum Means {
    Perf(PathBuf),
    Strace,
}

impl Counted {
    /// `None` where nothing on this machine can count.
    pub async fn start(binary: &Path, home: &Path) -> Outcome<Option<Self>> {
        let log = home.with_extension("syncs");
        if let Some(perf) = installed("perf").filter(|perf| may_count(perf)) {
            let product = Product::start(binary, home).await?;
            let means = Means::Perf(perf);
            return Ok(Some(Self {
                product,
                means,
                log,
            }));
        }
        let Some(strace) = installed("strace") else {
            return Ok(None);
        };
        let mut tracer = Command::new(strace);
        tracer
            .args(["-f", "--seccomp-bpf", "-qq", "-e", "signal=none"])
            .args(["-e", "trace=fsync,fdatasync", "-o"])
            .arg(&log);
        Ok(Some(Self {
            product: Product::start_traced(&tracer, binary, home).await?,
            means: Means::Strace,
            log,
        }))
    }

    pub fn remark(&self) -> &'static str {
        match self.means {
            Means::Perf(_) => "syncs were counted with perf",
            Means::Strace => {
                "syncs were counted with strace, which slows the daemon and makes its batches \
                 smaller; with perf (apt-get install linux-perf) the count is undisturbed"
            }
        }
    }

    /// Runs the work, and counts the syncs from its beginning until all is quiet again.
    pub async fn during<T>(&self, work: impl Future<Output = Outcome<T>>) -> Outcome<(T, u64)> {
        match &self.means {
            Means::Perf(perf) => self.during_perf(perf, work).await,
            Means::Strace => {
                tokio::time::sleep(SETTLE).await;
                let before = self.traced()?;
                let done = work.await?;
                tokio::time::sleep(SETTLE).await;
                Ok((done, self.traced()? - before))
            }
        }
    }

    async fn during_perf<T>(
        &self,
        perf: &Path,
        work: impl Future<Output = Outcome<T>>,
    ) -> Outcome<(T, u64)> {
        let mut command = bound(perf)?;
        command
            .args(["stat", "-x", ",", "-e", EVENTS, "-p"])
            .arg(self.product.pid().to_string())
            .arg("-o")
            .arg(&self.log);
        let mut counting = Running::start(&mut command, &self.log.with_extension("perf"))?;
        tokio::time::sleep(PERF_START).await;
        counting.must_live()?;
        let done = work.await?;
        tokio::time::sleep(SETTLE).await;
        process::interrupt(counting.pid());
        if !counting.ended_within(PERF_END_MAX).await? {
            return Err(BenchError::new("perf does not end"));
        }
        let text = std::fs::read_to_string(&self.log).or_fail("the counts of perf")?;
        let counts = text
            .lines()
            .filter(|line| line.contains("sys_enter_"))
            .map(|line| line.split(',').next().unwrap_or_default().parse::<u64>());
        let mut sum = 0;
        for count in counts {
            sum += count.or_fail("a count of perf")?;
        }
        Ok((done, sum))
    }

    /// The lines of strace so far. A call that was interrupted in the log has a second line, without
    /// the parenthesis.
    fn traced(&self) -> Outcome<u64> {
        let text = std::fs::read_to_string(&self.log).or_fail("the log of strace")?;
        let calls = text
            .lines()
            .filter(|line| line.contains("fsync(") || line.contains("fdatasync("))
            .count();
        u64::try_from(calls).or_fail("the lines of strace")
    }
}

/// Whether this user may count the calls of a process.
fn may_count(perf: &Path) -> bool {
    let tried = Command::new(perf)
        .args(["stat", "-x", ",", "-e", EVENTS, "/bin/true"])
        .output();
    tried.is_ok_and(|tried| {
        tried.status.success() && !String::from_utf8_lossy(&tried.stderr).contains("<not")
    })
}
