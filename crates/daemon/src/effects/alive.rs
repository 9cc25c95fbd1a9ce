//! Whether a command still runs whose lock nobody holds: many programs close whatever they inherit.
//!
//! Known by two marks: the process that the runner started, as it wrote it down, and the attempt in the environment
//! of anything that came of it. Where the kernel does not tell (no `/proc`), the lock alone speaks.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

/// The name of the note about the process, beside `NAME.lock`.
pub const PROCESS: &str = "run";
/// The same about the runner itself.
pub const RUNNER: &str = "by";
/// What every command of an effect has in its environment.
const ATTEMPT: &str = "HEDDLE_EFFECT_ATTEMPT=";
/// Where the kernel tells of processes.
const PROC: &str = "/proc";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// A field of `/proc/PID/stat` behind the name of the program: its state, and when it began.
const STATE: usize = 0;
const BEGAN: usize = 19;

/// A process as it can be told from any other, in this boot and the next. None where the kernel does not say.
pub fn process_mark(pid: u32) -> Option<String> {
    let (state, began) = stat(&format!("{PROC}/{pid}/stat"))?;
    let boot = fs::read_to_string(BOOT).ok()?;
    // What has ended and was not fetched is no process.
    (!matches!(state.as_str(), "Z" | "X")).then(|| format!("{pid} {began} {}", boot.trim()))
}

/// State and beginning. The name may hold anything, so it is counted from its end.
fn stat(path: &str) -> Option<(String, String)> {
    let text = fs::read_to_string(path).ok()?;
    let behind = text.rsplit_once(')')?.1;
    let mut fields = behind.split_ascii_whitespace();
    let state = fields.nth(STATE)?.to_owned();
    let began = fields.nth(BEGAN - STATE - 1)?.to_owned();
    Some((state, began))
}

/// Whether the process that was noted here is the one that has this number now.
pub(super) fn is_noted(note: &Path) -> bool {
    let Ok(note) = crate::home::read_plain(note) else {
        return false;
    };
    let pid = note.split(' ').next().and_then(|pid| pid.parse().ok());
    pid.and_then(process_mark).is_some_and(|mark| mark == note)
}

/// Who holds a run, as far as the notes beside its lock tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// Its runner, or its command.
    Run,
    /// Runner and command are known to be gone: something that the command has started lives.
    LeftBehind,
    /// The runner was killed before it could note its command: the command, or what it has left behind.
    Unknown,
}

/// Whether a process was noted here that is no more. Where nothing was noted nobody knows.
pub(super) fn is_gone(note: &Path) -> bool {
    note.exists() && !is_noted(note)
}

/// Looks while somebody becomes another program, at most, and how long between two: on a machine that is busy it may have to
/// wait for its turn in the middle of that.
const LOOKS_MAX: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// More than an environment has, as good as always.
const ENVIRONMENT_BYTES: usize = 256 << 10;
/// Reads of one process at one look.
const READS_MAX: u32 = 3;

/// What is seen among the processes that we may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// One of this attempt.
    Heir,
    /// None of it, but one that is becoming another program this moment: it shows the environment of neither.
    Unclear,
    Nobody,
}

/// Whether any process that we may look at was started for this attempt. What cannot be told at the first look is looked
/// at again: nobody is called gone while it only changes its program.
pub(super) async fn has_heirs(attempt: &str) -> bool {
    for _ in 0..LOOKS_MAX {
        match heirs(attempt) {
            Seen::Heir => return true,
            Seen::Nobody => return false,
            Seen::Unclear => tokio::time::sleep(PAUSE).await,
        }
    }
    false
}

fn heirs(attempt: &str) -> Seen {
    let wanted = format!("{ATTEMPT}{attempt}");
    let Ok(processes) = fs::read_dir(PROC) else {
        return Seen::Nobody;
    };
    let mut seen = Seen::Nobody;
    for process in processes.filter_map(Result::ok) {
        let name = process.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
        // A daemon that was started by a command is not the command.
        if pid.is_none_or(|pid| pid == std::process::id()) {
            continue;
        }
        match seen_in(&process.path(), wanted.as_bytes()) {
            Seen::Heir => return Seen::Heir,
            Seen::Unclear => seen = Seen::Unclear,
            Seen::Nobody => {}
        }
    }
    seen
}

/// IMPORTANT: in one read. What a second one finds of a process that has become another program meanwhile is its end: a
/// part would pass for the whole.
fn environment(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = fs::File::open(file)?;
    let mut all = vec![0; ENVIRONMENT_BYTES];
    let mut length = 0;
    loop {
        match file.read(&mut all[length..])? {
            0 => break,
            read => length += read,
        }
        if length == all.len() {
            all.resize(2 * length, 0);
        }
    }
    all.truncate(length);
    Ok(all)
}

fn seen_in(process: &Path, wanted: &[u8]) -> Seen {
    for _ in 0..READS_MAX {
        // Of somebody else's process we may not know it.
        let Ok(environment) = environment(&process.join("environ")) else {
            return Seen::Nobody;
        };
        if environment
            .split(|byte| *byte == 0)
            .any(|one| one == wanted)
        {
            return Seen::Heir;
        }
        // Every one of them ends with a NUL: without it, the rest was not there any more when it was read.
        if environment.ends_with(&[0]) {
            return Seen::Nobody;
        }
        if !environment.is_empty() {
            continue;
        }
        // A thread of the kernel, and what has ended, have no program at all.
        if fs::read_link(process.join("exe")).is_err() {
            return Seen::Nobody;
        }
        // Neither words nor an environment: it is about to get both. With words, it may have got them this moment.
        if fs::read(process.join("cmdline")).is_ok_and(|words| words.is_empty()) {
            return Seen::Unclear;
        }
    }
    // It was given an empty environment, or has written over it: nothing says whose it is.
    Seen::Nobody
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sleeper(attempt: &str) -> std::process::Child {
        let mut command = Command::new("/bin/cat");
        command.env("HEDDLE_EFFECT_ATTEMPT", attempt);
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    /// A program that does nothing but become itself again, as a chain of `exec`s does: it lives all the time.
    #[tokio::test]
    async fn what_becomes_another_program_is_not_called_gone_meanwhile() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("again");
        std::fs::write(&program, "#!/bin/sh\nexec \"$0\"\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let attempt = format!("att_again_{}", std::process::id());
        let mut command = Command::new(&program);
        let mut child = command
            .env("HEDDLE_EFFECT_ATTEMPT", &attempt)
            .spawn()
            .unwrap();
        while !has_heirs(&attempt).await {
            std::thread::yield_now();
        }
        let mut missed = 0;
        for _ in 0..1000 {
            missed += u32::from(!has_heirs(&attempt).await);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(missed, 0, "times a process that lives was called gone");
        assert!(!has_heirs(&attempt).await);
    }

    #[tokio::test]
    async fn a_process_is_known_by_its_mark_and_its_heirs_by_their_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let attempt = format!("att_{}", std::process::id());
        let mut child = sleeper(&attempt);
        let mark = process_mark(child.id()).unwrap();
        fs::write(&note, &mark).unwrap();
        assert!(is_noted(&note));
        // The kernel shows the environment of a new program a moment after its parent goes on.
        while !has_heirs(&attempt).await {
            std::thread::yield_now();
        }
        assert!(
            !has_heirs(&attempt[..attempt.len() - 1]).await,
            "not a part of it"
        );
        // Another process with its number is another one.
        fs::write(&note, mark.replace(' ', " 1")).unwrap();
        assert!(!is_noted(&note));
        fs::write(&note, mark).unwrap();
        drop(child.stdin.take());
        // Ended and not fetched: no process any more.
        while process_mark(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(!is_noted(&note));
        child.wait().unwrap();
        assert!(!is_noted(&note) && !has_heirs(&attempt).await);
        for bad in ["", "x y z", "0 1", "4294967295 0 0"] {
            fs::write(&note, bad).unwrap();
            assert!(!is_noted(&note), "{bad:?}");
        }
    }
}
