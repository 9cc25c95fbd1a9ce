//! Whether a command still runs whose lock nobody holds: many programs close whatever they inherit.
//!
//! Known by two marks: the process that the runner started, as it wrote it down, and the attempt in the environment
//! of anything that came of it. Where the kernel does not tell (no `/proc`), the lock alone speaks.

use std::fs;
use std::path::Path;

/// The name of the note about the process, beside `NAME.lock`.
pub const PROCESS: &str = "run";
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

/// Whether any process that we may look at was started for this attempt.
pub(super) fn has_heirs(attempt: &str) -> bool {
    let wanted = format!("{ATTEMPT}{attempt}");
    let Ok(processes) = fs::read_dir(PROC) else {
        return false;
    };
    processes.filter_map(Result::ok).any(|process| {
        let name = process.file_name();
        let pid = name.to_str().and_then(|name| name.parse::<u32>().ok());
        // A daemon that was started by a command is not the command.
        let is_other = pid.is_some_and(|pid| pid != std::process::id());
        let environment = || fs::read(process.path().join("environ")).unwrap_or_default();
        let is_of = |bytes: &[u8]| {
            bytes
                .split(|byte| *byte == 0)
                .any(|one| one == wanted.as_bytes())
        };
        is_other && is_of(&environment())
    })
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

    #[test]
    fn a_process_is_known_by_its_mark_and_its_heirs_by_their_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let attempt = format!("att_{}", std::process::id());
        let mut child = sleeper(&attempt);
        let mark = process_mark(child.id()).unwrap();
        fs::write(&note, &mark).unwrap();
        assert!(is_noted(&note));
        // The kernel shows the environment of a new program a moment after its parent goes on.
        while !has_heirs(&attempt) {
            std::thread::yield_now();
        }
        assert!(
            !has_heirs(&attempt[..attempt.len() - 1]),
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
        assert!(!is_noted(&note) && !has_heirs(&attempt));
        for bad in ["", "x y z", "0 1", "4294967295 0 0"] {
            fs::write(&note, bad).unwrap();
            assert!(!is_noted(&note), "{bad:?}");
        }
    }
}
