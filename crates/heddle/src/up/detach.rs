//! `heddle up --detach`: starts the same program in the background and waits until it is ready.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use heddle_daemon::home::{
    create_log_folder, create_private_folder, log_folder, open_plain, open_private,
};
use heddle_daemon::{Home, Ready};

use super::{Flavour, WORDLESS, on_full_disk};
use crate::cli::{CliError, Context, exit};

const READY_WAIT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Last words beyond this are forgotten at the next start.
const LAST_WORDS_BYTES_MAX: u64 = 1 << 20;

pub fn detach(context: &Context, flavour: Flavour) -> Result<Ready, CliError> {
    if let Some(holder) = Home::holder_for_good(&context.home) {
        return Err(CliError::new(
            exit::CONFLICT,
            format!("{} is held by {holder}", context.home.display()),
        )
        .next("It is up already: use it, or stop it with `heddle down`."));
    }
    super::refuse_misplaced(&context.home)?;
    // Here too, so that a mistake is told by the one who was asked.
    context.agent_name()?;
    let path = log_folder(&context.home).join("up.log");
    let log = last_words(context, &path).map_err(|error| {
        let unusable = heddle_daemon::home::unusable(&context.home, &error);
        on_full_disk(&context.home, super::home_error(unusable))
    })?;
    let before = log.metadata().map_or(0, |metadata| metadata.len());
    let mut child = spawn(context, flavour, log)?;
    let mut waited = Duration::ZERO;
    loop {
        if let Ok(status) = context.client().hasty().status()
            && status.pid == Some(child.id())
        {
            return Ok(Ready {
                home: status.home.map(PathBuf::from).unwrap_or_default(),
                socket: status.socket.map(PathBuf::from).unwrap_or_default(),
                http: status.http.unwrap_or_default(),
                console: None,
                mesh: status
                    .meshes
                    .first()
                    .map(|m| m.mesh.clone())
                    .unwrap_or_default(),
                agent: status.agent.unwrap_or_default(),
                member: status
                    .meshes
                    .first()
                    .map(|m| m.member.clone())
                    .unwrap_or_default(),
                pid: child.id(),
                notes: status.notes,
            });
        }
        if let Ok(Some(ended)) = child.try_wait() {
            let code = ended.code().and_then(|code| u8::try_from(code).ok());
            let told = told(code.unwrap_or(exit::FAILED), &path, before);
            // Where the disk is full there was no room for the words either.
            return Err(on_full_disk(&context.home, told));
        }
        if waited >= READY_WAIT_MAX {
            return Err(CliError::new(
                exit::FAILED,
                "it was started, but did not become ready in time",
            )
            .next("`heddle logs` says what it is doing."));
        }
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}

/// Where the background process says why it ended. Its log is elsewhere, so this stays small.
fn last_words(context: &Context, path: &Path) -> std::io::Result<File> {
    create_private_folder(&context.home)?;
    create_log_folder(&log_folder(&context.home))?;
    // Refuses links and repairs the mode; what follows opens the same file for appending.
    let words = open_private(path)?;
    if words.metadata()?.len() > LAST_WORDS_BYTES_MAX {
        words.set_len(0)?;
    }
    OpenOptions::new().append(true).open(path)
}

fn spawn(context: &Context, flavour: Flavour, log: File) -> Result<Child, CliError> {
    let failed = |error: std::io::Error| CliError::new(exit::FAILED, error.to_string());
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("--home").arg(&context.home);
    if let Some(agent) = &context.agent {
        command.arg("--agent").arg(agent);
    }
    command
        .args(flavour.verb())
        .arg("--background")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // A group of its own: Ctrl-C in the terminal is not meant for it.
        .process_group(0)
        .spawn()
        .map_err(failed)
}

/// The first error in a text and its next step. What others who were started at the same moment have written there too is
/// not repeated.
fn words_in(text: &str) -> (&str, &str) {
    const BEGIN: &str = "error: ";
    let Some((_, words)) = text.split_once(BEGIN) else {
        return (WORDLESS, "");
    };
    let end = words.find(&format!("\n{BEGIN}")).unwrap_or(words.len());
    let words = &words[..end];
    words.split_once("\n  next: ").unwrap_or((words, ""))
}

/// What the child wrote before it ended, as our own words.
fn told(code: u8, log: &Path, from: u64) -> CliError {
    let mut text = String::new();
    if let Ok(mut file) = open_plain(log) {
        let _ = file.seek(SeekFrom::Start(from));
        let _ = file.take(64 << 10).read_to_string(&mut text);
    }
    let (message, next) = words_in(&text);
    let next = match next.trim() {
        "" => format!(
            "`heddle up` in the foreground says why; {} has what could be written.",
            log.display()
        ),
        next => next.to_owned(),
    };
    let message = message.trim().to_owned();
    CliError::new(code, message).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_one_start_are_told_once_however_many_were_made() {
        let one = "error: it is held\n  next: Stop it.\n";
        for text in [one.to_owned(), one.repeat(3), format!("a line\n{one}{one}")] {
            let (message, next) = words_in(&text);
            assert_eq!((message, next.trim()), ("it is held", "Stop it."), "{text}");
        }
        // Without a next step the next one's is none of it.
        let (message, next) = words_in("error: odd\nerror: it is held\n  next: Stop it.\n");
        assert_eq!((message, next), ("odd", ""));
        assert_eq!(words_in("").0, "it ended before it was ready");
    }
}
