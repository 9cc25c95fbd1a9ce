//! Runs a command once and keeps what it prints, within bounds.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::cli::ui;

/// Kept of each stream; what the daemon takes.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How long the pipes of a command that has ended may stay open: something it left behind holds them.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two looks at a command that has an end.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_PER_SECOND: u64 = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// None after a signal.
    pub(super) exit_code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) truncated: bool,
    /// Why the command could not be started; then nothing of the rest is there.
    pub(super) not_started: Option<String>,
}

/// Whether this can be started, as far as one can see without doing it. `path` is where a command
/// without a slash is looked for.
pub(super) fn can_start(words: &[String], path: Option<&OsStr>) -> Result<(), String> {
    let Some(program) = words.first() else {
        return Err("there is no command".to_owned());
    };
    if program.contains('/') {
        return executable(Path::new(program)).map_err(|why| format!("{program}: {why}"));
    }
    let folders = std::env::split_paths(path.unwrap_or(OsStr::new("/usr/bin:/bin")));
    let mut found = Err("there is no such command in PATH".to_owned());
    for folder in folders {
        match executable(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(why) if why == NO_SUCH_FILE => {}
            Err(why) => found = Err(format!("{}: {why}", folder.join(program).display())),
        }
    }
    found.map_err(|why| format!("{program}: {why}"))
}

/// What the kernel looks at.
const FIRST_LINE_BYTES_MAX: u64 = 256;
const NO_SUCH_FILE: &str = "there is no such file";

fn executable(file: &Path) -> Result<(), String> {
    let why = match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => NO_SUCH_FILE,
        Err(_) => "it cannot be reached",
        Ok(metadata) if !metadata.is_file() => "it is no file",
        Ok(_) if access(file, Access::EXEC_OK).is_err() => "it may not be executed",
        Ok(_) => return interpreted(file),
    };
    Err(why.to_owned())
}

/// A script is run by what its first line names: without that the kernel says that the script is not there.
fn interpreted(file: &Path) -> Result<(), String> {
    let mut head = Vec::new();
    // What may be executed and not be read is the kernel's affair.
    let Ok(opened) = File::open(file) else {
        return Ok(());
    };
    let read = opened.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut head);
    let Some(line) = head.strip_prefix(b"#!").filter(|_| read.is_ok()) else {
        return Ok(());
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| byte.is_ascii_whitespace() && *byte != b'\r');
    let Some(word) = words.find(|word| !word.is_empty()) else {
        return Err("its first line names no interpreter".to_owned());
    };
    let interpreter = Path::new(OsStr::from_bytes(word));
    let is_good = std::fs::metadata(interpreter).is_ok_and(|metadata| metadata.is_file())
        && access(interpreter, Access::EXEC_OK).is_ok();
    if is_good {
        return Ok(());
    }
    let named = interpreter.display().to_string();
    Err(format!(
        "its first line names {named:?}, which is not there or may not be executed"
    ))
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

/// `echo` shows what goes to standard error while it comes; `begun` is told the number of the process.
pub(super) fn run(
    words: &[String],
    (key, attempt): (&str, &str),
    echo: bool,
    begun: impl FnOnce(u32),
) -> Ended {
    let Some((program, arguments)) = words.split_first() else {
        return not_started("there is no command".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    match spawn(&mut command, (key, attempt)) {
        Ok(child) => {
            begun(child.id());
            let whole = collect(child, echo, |child| child.wait().ok());
            whole.0
        }
        Err(error) => not_started(format!("{program}: {error}")),
    }
}

/// The same for a shell command that has an end: after so many seconds it is ended, with everything that it has
/// started and that has not left its group. None then: nobody knows what it would have said.
pub(super) fn shell_within(
    script: &str,
    whose: (&str, &str),
    seconds: u64,
) -> Result<Ended, TimedOut> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).process_group(0);
    let child = match spawn(&mut command, whose) {
        Ok(child) => child,
        Err(error) => return Ok(not_started(format!("/bin/sh: {error}"))),
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (ended, status) = collect(child, false, |child| {
        for _ in 0..seconds.saturating_mul(LOOKS_PER_SECOND).max(1) {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => return None,
            }
        }
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.kill();
        let _ = child.wait();
        None
    });
    match status {
        Some(_) => Ok(ended),
        None => Err(TimedOut { so_far: ended }),
    }
}

/// It did not end in time, and was ended.
#[derive(Debug)]
pub(super) struct TimedOut {
    pub(super) so_far: Ended,
}

fn spawn(command: &mut Command, (key, attempt): (&str, &str)) -> std::io::Result<Child> {
    command
        .env("HEDDLE_EFFECT_KEY", key)
        .env("HEDDLE_EFFECT_ATTEMPT", attempt)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Reads until it has ended, as `wait` says.
fn collect(
    mut child: Child,
    echo: bool,
    wait: impl FnOnce(&mut Child) -> Option<ExitStatus>,
) -> (Ended, Option<ExitStatus>) {
    let (done, ended) = mpsc::channel();
    let stdout = keep(child.stdout.take(), false, done.clone());
    let stderr = keep(child.stderr.take(), echo, done);
    let status = wait(&mut child);
    for _ in 0..2 {
        // Both ends of the pipes, or as much as there is after a while.
        if ended.recv_timeout(DRAIN).is_err() {
            break;
        }
    }
    let (stdout, cut_out) = text_of(&stdout);
    let (stderr, cut_err) = text_of(&stderr);
    let ended = Ended {
        exit_code: status.and_then(|status| status.code()),
        stdout,
        stderr,
        truncated: cut_out || cut_err,
        not_started: None,
    };
    (ended, status)
}

pub(super) fn not_started(why: String) -> Ended {
    Ended {
        exit_code: None,
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
        not_started: Some(why),
    }
}

/// A thread that reads to the end, whatever it keeps: a full pipe would stop the command.
fn keep(
    pipe: Option<impl Read + Send + 'static>,
    echo: bool,
    done: mpsc::Sender<()>,
) -> Arc<Mutex<Kept>> {
    let kept = Arc::new(Mutex::new(Kept::default()));
    let sink = Arc::clone(&kept);
    std::thread::spawn(move || {
        let mut buffer = [0; 8 << 10];
        let mut pipe = pipe;
        while let Some(Ok(read @ 1..)) = pipe.as_mut().map(|pipe| pipe.read(&mut buffer)) {
            if echo {
                let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
                let _ = ui::log_bytes(crate::cli::text::printable(&text).as_bytes());
            }
            let mut kept = sink.lock().unwrap_or_else(PoisonError::into_inner);
            let room = OUTPUT_BYTES_MAX - kept.bytes.len();
            kept.bytes.extend_from_slice(&buffer[..read.min(room)]);
            kept.truncated |= read > room;
        }
        let _ = done.send(());
    });
    kept
}

/// As text. What is not UTF-8 grows when it is replaced, so the bound is kept once more.
fn text_of(kept: &Mutex<Kept>) -> (String, bool) {
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::from_utf8_lossy(&kept.bytes).into_owned();
    let mut end = text.len().min(OUTPUT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let is_cut = kept.truncated || end < text.len();
    text.truncate(end);
    (text, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Ended {
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        run(&words, ("k", "a"), false, |_| {})
    }

    #[test]
    fn output_and_exit_code_are_kept() {
        let ended = shell("echo out; echo err >&2; echo $HEDDLE_EFFECT_KEY; exit 3");
        assert_eq!(ended.exit_code, Some(3));
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("out\nk\n", "err\n")
        );
        assert!(!ended.truncated);
    }

    #[test]
    fn a_flood_is_read_to_its_end_and_kept_within_bounds() {
        let ended =
            shell("head -c 1000000 /dev/zero | tr '\\0' x; head -c 200000 /dev/urandom >&2");
        assert_eq!(ended.exit_code, Some(0));
        assert_eq!(ended.stdout.len(), OUTPUT_BYTES_MAX);
        assert!(ended.stderr.len() <= OUTPUT_BYTES_MAX && ended.truncated);
    }

    #[test]
    fn a_signal_has_no_exit_code_and_a_missing_program_did_not_start() {
        let killed = shell("kill -9 $$");
        assert_eq!((killed.exit_code, killed.not_started), (None, None));
        let missing = run(&["/no/such/program".to_owned()], ("k", "a"), false, |_| {});
        assert!(missing.not_started.unwrap().contains("/no/such/program"));
    }

    #[test]
    fn what_has_no_end_is_ended_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let (pids, late) = (folder.path().join("pids"), folder.path().join("late"));
        let script = format!(
            "echo first; sleep 300 & echo $! >> {0}; (sleep 3; touch {1}) & echo $! >> {0}; sleep 300",
            pids.display(),
            late.display()
        );
        let timed_out = shell_within(&script, ("k", "a"), 1).unwrap_err();
        assert_eq!(timed_out.so_far.stdout, "first\n");
        let pids = std::fs::read_to_string(pids).unwrap();
        for pid in pids.lines() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        }
        assert_eq!(pids.lines().count(), 2);
        let ended = shell_within("echo $HEDDLE_EFFECT_KEY; exit 3", ("k", "a"), 60).unwrap();
        assert_eq!((ended.exit_code, ended.stdout.as_str()), (Some(3), "k\n"));
    }

    #[test]
    fn what_cannot_be_started_is_seen_beforehand() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let path = Some(folder.path().as_os_str());
        let can = |word: &str, path| can_start(&[word.to_owned()], path);
        let whole = file.to_str().unwrap();
        for word in ["tool", whole] {
            assert!(can(word, path).unwrap_err().contains("executed"), "{word}");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(can("tool", path), Ok(()));
        assert_eq!(can(whole, None), Ok(()));
        assert_eq!(can("sh", None), Ok(()));
        // What its first line names is looked at too: the kernel would say that the script itself is not there.
        for (line, is_good) in [
            ("#!/no/such/interpreter -x\n", false),
            ("#! /bin/sh -e\n", true),
            ("#!/bin/sh\r\n", false),
            ("#!\n", false),
            ("#!/etc/passwd\n", false),
            ("#!/usr/bin/env sh\n", true),
            ("no script at all", true),
            ("", true),
        ] {
            std::fs::write(&file, line).unwrap();
            for word in ["tool", whole] {
                assert_eq!(can(word, path).is_ok(), is_good, "{line:?}");
            }
        }
        assert!(can("toool", path).unwrap_err().contains("PATH"));
        assert!(can(folder.path().to_str().unwrap(), None).is_err());
        assert!(can_start(&[], None).is_err());
    }
}
