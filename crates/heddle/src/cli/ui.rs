//! The only place that prints. A closed pipe ends a verb quietly.

use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use super::error::{CliError, exit};

/// Text for people, on standard output. Names, ids and bodies in it are of others: whatever would
/// drive the terminal is shown instead (T-41).
pub fn text(text: &str) -> Result<(), CliError> {
    write(&super::text::printable(text))
}

/// Text for programs, as it is.
pub fn raw(text: &str) -> Result<(), CliError> {
    write(text)
}

/// A value, as it is where a program reads, and safe to look at where a person does (T-41).
pub fn value(value: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() {
        return text(value);
    }
    raw(value)
}

/// What became of something that has printed its own words: behind them where a person looks, beside them where a
/// program reads.
pub fn verdict(line: &str, is_behind_a_half_line: bool) -> Result<(), CliError> {
    if !io::stdout().is_terminal() {
        note(line);
        return Ok(());
    }
    let begin = if is_behind_a_half_line { "\n" } else { "" };
    text(&format!("{begin}{line}\n"))
}

/// Standard output itself, for bytes that are nobody's text.
pub fn out() -> io::StdoutLock<'static> {
    io::stdout().lock()
}

/// Whether nobody can read what is printed. Started with standard output closed, a program of Rust writes to `/dev/null`, opened
/// for reading as well, and every write succeeds; a shell's `> /dev/null` opens it for writing alone.
pub fn is_nobody_reading() -> bool {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    let access =
        rustix::fs::fcntl_getfl(io::stdout()).map(|flags| flags & rustix::fs::OFlags::ACCMODE);
    let Ok(access) = access else {
        return true;
    };
    let (Ok(out), Ok(null)) = (
        std::fs::metadata("/dev/stdout"),
        std::fs::metadata("/dev/null"),
    ) else {
        return false;
    };
    let is_null = out.file_type().is_char_device() && out.rdev() == null.rdev();
    is_null && access == rustix::fs::OFlags::RDWR
}

/// One JSON value on a line, on standard output.
pub fn json<T: Serialize>(value: &T) -> Result<(), CliError> {
    let line = serde_json::to_string(value)
        .map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    write(&format!("{line}\n"))
}

fn write(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(CliError::quiet()),
        Err(error) => Err(CliError::new(
            exit::FAILED,
            format!("standard output: {error}"),
        )),
    }
}

/// A line of the log, on standard error as it is.
pub fn log_bytes(bytes: &[u8]) -> io::Result<()> {
    io::stderr().lock().write_all(bytes)
}

/// A remark beside the answer, on standard error.
pub fn note(text: &str) {
    // Nobody may be listening, and a remark is not worth failing for.
    let _ = writeln!(io::stderr().lock(), "{}", super::text::printable(text));
}

/// Whether whoever sits at the terminal says yes. Where nobody does, the call itself was the word.
pub fn confirm(question: &str) -> Result<bool, CliError> {
    let (input, mut error) = (io::stdin(), io::stderr().lock());
    if !input.is_terminal() || !error.is_terminal() {
        return Ok(true);
    }
    let failed = |error: io::Error| CliError::new(exit::FAILED, error.to_string());
    write!(error, "{question}").map_err(failed)?;
    error.flush().map_err(failed)?;
    let mut line = String::new();
    input.read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// How far long work has come, on one line of a terminal that is written over; nothing where nobody
/// looks.
pub fn progress(text: &str) {
    let mut error = io::stderr().lock();
    if error.is_terminal() {
        let _ = write!(error, "\r{}\u{1b}[K", super::text::printable(text));
        let _ = error.flush();
    }
}

/// Takes the line of progress away.
pub fn progress_done() {
    progress("");
}

/// Help and usage errors, as clap writes them; with `--json` an error as an object as well.
pub fn usage(error: &clap::Error, help: &str, json_wanted: bool) -> ExitCode {
    if error.use_stderr() {
        // It repeats what was typed, and that may have been pasted.
        note(error.render().to_string().trim_end());
    } else {
        let _ = error.print();
    }
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    if json_wanted && error.use_stderr() {
        let _ = json(&serde_json::json!({
            "code": code_name(exit::USAGE),
            "detail": usage_sentence(error),
            "next": format!("Run `{help}`."),
        }));
    }
    ExitCode::from(code)
}

/// The first paragraph of what clap says, on one line, without its heading.
fn usage_sentence(error: &clap::Error) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let sentence = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
    let words: Vec<&str> = sentence.split_whitespace().collect();
    super::text::printable(&words.join(" "))
}

/// A failed verb: a sentence and the next step on standard error; with `--json` the problem as well.
pub fn failure(error: &CliError, json_wanted: bool) -> ExitCode {
    if error.quiet {
        return ExitCode::from(error.code);
    }
    note(&format!(
        "error: {}",
        super::text::printable(&error.message)
    ));
    if let Some(next) = &error.next {
        note(&format!("  next: {}", super::text::printable(next)));
    }
    // Told once, also with a refusal: whoever reads the JSON finds them there.
    for (message, next) in error.warnings().iter().filter(|_| !json_wanted) {
        note(&format!("warning: {message}\n  next: {next}"));
    }
    // Of what was to make up for something its own words, and not those of the command before it.
    let printed = error.answer.as_ref().and_then(|answer| {
        let made_up = answer.get("compensation").filter(|it| it.is_object());
        made_up.unwrap_or(answer)["stdout"].as_str()
    });
    if !json_wanted
        && let Some(printed) = printed
        && !printed.is_empty()
    {
        // What a command printed is what its caller came for, however it ended.
        let end = if printed.ends_with('\n') { "" } else { "\n" };
        let _ = text(&format!("{printed}{end}"));
    }
    if json_wanted {
        let _ = match (&error.problem, &error.answer) {
            (_, Some(answer)) => json(&with_words(answer, error)),
            (Some(problem), None) => json(problem),
            (None, None) => json(&serde_json::json!({
                "code": code_name(error.code),
                "detail": error.message,
                "next": error.next,
            })),
        };
    }
    ExitCode::from(error.code)
}

/// A verb's own answer, with what a person is told beside it, where it does not say so itself.
fn with_words(answer: &Value, error: &CliError) -> Value {
    let mut answer = answer.clone();
    if let Some(fields) = answer.as_object_mut() {
        let said = [
            ("detail", Some(&error.message)),
            ("next", error.next.as_ref()),
        ];
        for (name, words) in said {
            let field = fields.entry(name).or_insert(Value::Null);
            if field.is_null() {
                *field = words.cloned().into();
            }
        }
    }
    answer
}

pub(super) fn code_name(code: u8) -> &'static str {
    match code {
        exit::USAGE => "usage",
        exit::CONFLICT => "conflict",
        exit::NOT_FOUND => "not_found",
        exit::UNREACHABLE => "unreachable",
        exit::REFUSED => "refused",
        _ => "failed",
    }
}
