//! Processes that a run starts, and ends whatever happens.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{BenchError, Outcome, While as _};
use crate::series::float;

/// Linux counts processor time for user space in hundredths of a second, on every architecture.
pub const TICKS_PER_SECOND: f64 = 100.0;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The hidden verb that becomes another program, which does not outlive this one.
pub const BOUND: &str = "__bound";

/// The program as a child that the kernel ends with us, even where nothing of ours runs any more.
pub fn bound(program: impl AsRef<OsStr>) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(BOUND).arg(program);
    Ok(command)
}

/// Becomes the program; returns only if that fails.
pub fn become_bound(mut arguments: impl Iterator<Item = OsString>) -> Outcome<()> {
    let program = arguments
        .next()
        .ok_or_else(|| BenchError::new("no program to become"))?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(std::io::Error::from)?;
    let error = Command::new(&program).args(arguments).exec();
    Err(error).or_fail(&program.to_string_lossy())
}

/// A child that is killed, by its own process id, when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it with nothing to read, and everything it says in `log`.
    pub fn start(command: &mut Command, log: &Path) -> Outcome<Self> {
        let file = std::fs::File::create(log)?;
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .or_fail(&format!("starting {name}"))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended, with the last words of its log.
    pub fn must_live(&mut self) -> Outcome<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                let tail: Vec<&str> = said.lines().rev().take(5).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                Err(BenchError::new(format!(
                    "a process ended too early ({status}): {}",
                    tail.join(" | ")
                )))
            }
        }
    }

    /// Waits for its own end; false if that did not come in time.
    pub async fn ended_within(&mut self, patience: Duration) -> Outcome<bool> {
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > patience {
                return Ok(false);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(true)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Kills a process that one of our own children started for us.
pub fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

/// As Ctrl-C would.
pub fn interrupt(pid: u32) {
    signal(pid, rustix::process::Signal::INT);
}

/// As a service manager would.
pub fn terminate(pid: u32) {
    signal(pid, rustix::process::Signal::TERM);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok();
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Processor time that a process has used, in microseconds.
pub fn cpu_us(pid: u32) -> Outcome<f64> {
    Ok(times_of(pid, 2)? / TICKS_PER_SECOND * 1e6)
}

/// The same of a server with its children, those that have ended included, in microseconds.
pub fn family_cpu_us(pid: u32) -> Outcome<f64> {
    let mut ticks = times_of(pid, 4)?;
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    for child in children.split_whitespace() {
        let child = child.parse().or_fail("a process id")?;
        // One that has ended meanwhile is among those of its parent at the next look.
        ticks += times_of(child, 2).unwrap_or_default();
    }
    Ok(ticks / TICKS_PER_SECOND * 1e6)
}

/// The sum of the first of a process's four times, in ticks: user, system, and those two of the
/// children that have ended.
pub fn times_of(pid: u32, count: usize) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; the fields after it are plain numbers.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(count);
    let mut ticks = 0;
    for time in times {
        ticks += time.parse::<u64>().or_fail("processor time")?;
    }
    Ok(float(ticks))
}

/// Where a program is installed, if it is.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
