//! Runs a command once and keeps what it prints, within bounds.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::fs::{Access, access};

use crate::cli::ui;

/// Kept of each stream; what the daemon takes.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How long the pipes of a command that has ended may stay open: something it left behind holds them.
const DRAIN: Duration = Duration::from_secs(2);

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

const NO_SUCH_FILE: &str = "there is no such file";

fn executable(file: &Path) -> Result<(), &'static str> {
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(NO_SUCH_FILE),
        Err(_) => Err("it cannot be reached"),
        Ok(metadata) if !metadata.is_file() => Err("it is no file"),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => Err("it may not be executed"),
        Ok(_) => Ok(()),
    }
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
    let spawned = Command::new(program)
        .args(arguments)
        .env("HEDDLE_EFFECT_KEY", key)
        .env("HEDDLE_EFFECT_ATTEMPT", attempt)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return not_started(format!("{program}: {error}")),
    };
    begun(child.id());
    let (done, ended) = mpsc::channel();
    let stdout = keep(child.stdout.take(), false, done.clone());
    let stderr = keep(child.stderr.take(), echo, done);
    let exit_code = child.wait().ok().and_then(|status| status.code());
    for _ in 0..2 {
        // Both ends of the pipes, or as much as there is after a while.
        if ended.recv_timeout(DRAIN).is_err() {
            break;
        }
    }
    let (stdout, cut_out) = text_of(&stdout);
    let (stderr, cut_err) = text_of(&stderr);
    Ended {
        exit_code,
        stdout,
        stderr,
        truncated: cut_out || cut_err,
        not_started: None,
    }
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
        assert!(can("toool", path).unwrap_err().contains("PATH"));
        assert!(can(folder.path().to_str().unwrap(), None).is_err());
        assert!(can_start(&[], None).is_err());
    }
}
