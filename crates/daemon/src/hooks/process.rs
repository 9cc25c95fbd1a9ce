//! One run of a process, of a hook or of a provider of embeddings: bounded in time and in what is kept of its words, ended as a group.
//!
//! The process leads a group of its own. It is reaped only after the whole group was killed, so the
//! group's number cannot belong to somebody else by then.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use heddle_core::limits::HOOK_GRACE;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio_util::sync::CancellationToken;

/// Reads after the end, for what is still in the pipe.
const LAST_READS_MAX: usize = 32;
/// Of words beside the output, the last so many are kept.
const ERRORS_BYTES_MAX: usize = 4 << 10;

pub(crate) struct Job {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) input: Vec<u8>,
    pub(crate) timeout: Duration,
    /// Of what it writes, so much is kept; the rest is read and dropped.
    pub(crate) output_bytes_max: usize,
    pub(crate) errors: Errors,
}

/// Where the words on its standard error go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    /// Among its output.
    Output,
    /// Beside it; only the last of them are kept.
    Apart,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Itself,
    TimedOut,
    /// The daemon stops.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) cause: Cause,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// The beginning of what it wrote, on both outputs.
    pub(crate) output: Vec<u8>,
    pub(crate) output_bytes: u64,
    /// The end of what it wrote beside its output.
    pub(crate) errors: Vec<u8>,
}

/// Runs it to its end. An error means that it was not started.
pub(crate) async fn run(job: &Job, shutdown: &CancellationToken) -> io::Result<Ran> {
    let (mut child, mut talk) = start(job)?;
    let pid = Pid::from_child(&child);
    let mut exited = tokio::task::spawn_blocking(move || wait_for_exit(pid));
    let cause = tokio::select! {
        _ = &mut exited => Cause::Itself,
        () = tokio::time::sleep(job.timeout) => Cause::TimedOut,
        () = shutdown.cancelled() => Cause::Stopped,
        never = talk.go() => match never {},
    };
    if cause != Cause::Itself {
        signal(pid, Signal::TERM);
        let is_gone = tokio::select! {
            _ = &mut exited => true,
            () = tokio::time::sleep(HOOK_GRACE) => false,
            never = talk.go() => match never {},
        };
        if !is_gone {
            signal(pid, Signal::KILL);
            // Nothing survives this but a process that the kernel itself holds.
            let _ = tokio::time::timeout(HOOK_GRACE, &mut exited).await;
        }
    }
    // What it left behind in its group ends with it.
    signal(pid, Signal::KILL);
    talk.read_the_rest();
    let status = child.try_wait().ok().flatten();
    Ok(Ran {
        cause,
        exit: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        output: talk.kept,
        output_bytes: talk.output_bytes,
        errors: talk.errors_kept,
    })
}

fn start(job: &Job) -> io::Result<(Child, Talk)> {
    let (output, its_output) = io::pipe()?;
    let mut command = Command::new(&job.program);
    let (errors, its_errors) = match job.errors {
        Errors::Output => (None, its_output.try_clone()?),
        Errors::Apart => io::pipe().map(|(errors, its_errors)| (Some(errors), its_errors))?,
    };
    command
        .args(&job.arguments)
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&job.folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(its_output)
        .stderr(its_errors);
    let output = Receiver::from_owned_fd(OwnedFd::from(output))?;
    let errors = errors.map(|errors| Receiver::from_owned_fd(OwnedFd::from(errors)));
    let errors = errors.transpose()?;
    let mut child = command.spawn()?;
    // The command holds the other ends of the pipes: with it they go.
    drop(command);
    let input = child.stdin.take().map(OwnedFd::from);
    let input = input.map(Sender::from_owned_fd).transpose();
    let talk = Talk {
        // Without its input it sees an empty one, and its exit says so.
        input: input.ok().flatten(),
        unwritten: job.input.clone(),
        written: 0,
        output: Some(output),
        output_bytes_max: job.output_bytes_max,
        kept: Vec::new(),
        output_bytes: 0,
        errors,
        errors_kept: Vec::new(),
    };
    Ok((child, talk))
}

/// Waits for the end and leaves the process for later to be reaped.
fn wait_for_exit(pid: Pid) {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), how), Err(rustix::io::Errno::INTR)) {}
}

/// To everybody in the group; nobody may be left.
fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// Both directions at once: neither side may wait for the other for ever.
struct Talk {
    input: Option<Sender>,
    unwritten: Vec<u8>,
    written: usize,
    output: Option<Receiver>,
    output_bytes_max: usize,
    kept: Vec<u8>,
    output_bytes: u64,
    errors: Option<Receiver>,
    errors_kept: Vec<u8>,
}

impl Talk {
    /// Never ends by itself, and can be dropped and called again at any time.
    async fn go(&mut self) -> Infallible {
        let mut buffer = vec![0; 16 << 10];
        let mut errors = vec![0; 4 << 10];
        loop {
            let rest = &self.unwritten[self.written..];
            tokio::select! {
                written = write_some(&mut self.input, rest) => {
                    self.written += written;
                    if written == 0 || self.written == self.unwritten.len() {
                        self.input = None;
                    }
                }
                read = read_some(&mut self.output, &mut buffer) => match read {
                    0 => self.output = None,
                    read => self.keep(&buffer[..read]),
                },
                read = read_some(&mut self.errors, &mut errors) => match read {
                    0 => self.errors = None,
                    read => self.keep_errors(&errors[..read]),
                },
            }
        }
    }

    /// What is in the pipe now; somebody who left the group may write on for ever.
    fn read_the_rest(&mut self) {
        rest(self.output.take(), |words| self.keep(words));
        rest(self.errors.take(), |words| self.keep_errors(words));
    }

    fn keep_errors(&mut self, words: &[u8]) {
        self.errors_kept.extend_from_slice(words);
        let over = self.errors_kept.len().saturating_sub(ERRORS_BYTES_MAX);
        self.errors_kept.drain(..over);
    }

    fn keep(&mut self, words: &[u8]) {
        let room = self.output_bytes_max.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&words[..room.min(words.len())]);
        self.output_bytes += words.len() as u64;
    }
}

fn rest(pipe: Option<Receiver>, mut keep: impl FnMut(&[u8])) {
    // Past the runtime, which may not have heard yet that there is something to read.
    let Some(Ok(pipe)) = pipe.map(Receiver::into_nonblocking_fd) else {
        return;
    };
    let mut pipe = File::from(pipe);
    let mut buffer = vec![0; 16 << 10];
    for _ in 0..LAST_READS_MAX {
        match pipe.read(&mut buffer) {
            Ok(read) if read > 0 => keep(&buffer[..read]),
            _ => return,
        }
    }
}

/// 0 when the other side no longer reads.
async fn write_some(pipe: &mut Option<Sender>, bytes: &[u8]) -> usize {
    match pipe {
        Some(pipe) if !bytes.is_empty() => pipe.write(bytes).await.unwrap_or(0),
        Some(_) => 0,
        None => std::future::pending().await,
    }
}

/// 0 when the other side no longer writes.
async fn read_some(pipe: &mut Option<Receiver>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}
