//! JN-37: 20 processes that write into one journal at once, each as fast as it can, and how long each of them waits.
//!
//! A worker is this program under a hidden verb. From its call to its answer it waits for the lock, or for whoever holds it to
//! commit its request too; append and sync are in that time, so the wait itself is below it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::store::{Store, change};
use crate::error::{BenchError, Outcome, While as _};
use crate::load::Latencies;
use crate::process;
use crate::series::{Series, float};

pub const VERB: &str = "__journal-agent";
pub(super) const AGENTS: usize = 20;
const APPENDS: usize = 50;
const LOOK_EVERY: Duration = Duration::from_millis(1);
const START_WAIT_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Figures {
    pub(super) p50: Series,
    pub(super) p95: Series,
    pub(super) rate: Series,
}

/// The files by which they find each other.
struct Meeting<'f>(&'f Path);

impl Meeting<'_> {
    fn go(&self) -> PathBuf {
        self.0.join("go")
    }

    fn ready(&self, agent: usize) -> PathBuf {
        self.0.join(format!("ready{agent}"))
    }

    fn told(&self, agent: usize) -> PathBuf {
        self.0.join(format!("told{agent}"))
    }
}

fn wait_for(path: &Path) -> Outcome<()> {
    let start = Instant::now();
    while !path.exists() {
        if start.elapsed() > START_WAIT_MAX {
            return Err(BenchError::new(format!("{} did not come", path.display())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// What a worker does: a record of its own entity, again and again.
pub fn work(mut arguments: impl Iterator<Item = OsString>) -> Outcome<()> {
    let folder = arguments.next().map(PathBuf::from);
    let agent = arguments.next().and_then(|n| n.to_str()?.parse().ok());
    let (folder, agent): (PathBuf, usize) = folder
        .zip(agent)
        .ok_or_else(|| BenchError::new("an agent needs a folder and its number"))?;
    let meeting = Meeting(&folder);
    let store = Store::new(&folder, 1000 + agent as u64)?;
    std::fs::write(meeting.ready(agent), "")?;
    wait_for(&meeting.go())?;
    let mut times = String::new();
    for n in 0..APPENDS {
        let start = Instant::now();
        let committed = store.journal.mutate(vec![change(agent, n)]);
        let committed = committed.or_fail("an append")?;
        times.push_str(&format!("{}\n", start.elapsed().as_nanos()));
        committed.finish().or_fail("projections")?;
    }
    std::fs::write(meeting.told(agent), times)?;
    Ok(())
}

/// Ended with us, whatever happens.
struct Workers(Vec<Child>);

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if child.try_wait().ok().flatten().is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Figures {
    pub(super) fn measure(&mut self, folder: &Path) -> Outcome<()> {
        let store = Store::new(folder, 4)?;
        let meeting = Meeting(folder);
        let own = std::env::current_exe()?;
        let mut workers = Workers(Vec::new());
        for agent in 0..AGENTS {
            let mut command: Command = process::bound(&own)?;
            command.arg(VERB).arg(folder).arg(agent.to_string());
            workers.0.push(command.stdin(Stdio::null()).spawn()?);
        }
        for agent in 0..AGENTS {
            wait_for(&meeting.ready(agent))?;
        }
        let start = Instant::now();
        std::fs::write(meeting.go(), "")?;
        for child in &mut workers.0 {
            let status = child.wait()?;
            if !status.success() {
                return Err(BenchError::new(format!("an agent failed: {status}")));
            }
        }
        let took = start.elapsed().as_secs_f64();
        let mut all = Latencies::new()?;
        for agent in 0..AGENTS {
            for line in std::fs::read_to_string(meeting.told(agent))?.lines() {
                let nanos = line.parse().or_fail("a time of an agent")?;
                all.note(Duration::from_nanos(nanos));
            }
        }
        let records = store.journal.verify().or_fail("verify")?.records;
        if records != (AGENTS * APPENDS) as u64 {
            return Err(BenchError::new(format!("{records} records are there")));
        }
        self.p50.push(all.quantile_us(0.5));
        self.p95.push(all.quantile_us(0.95));
        self.rate.push(float(records) / took);
        Ok(())
    }
}
