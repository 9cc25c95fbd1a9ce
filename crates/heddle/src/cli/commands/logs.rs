//! `heddle logs` and `heddle daemon logs`: the daemon's log as words, or its JSON lines as they are.
//!
//! Reads the files, so it also tells why nothing runs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use heddle_daemon::home::{log_folder, open_plain};
use serde_json::Value;

use crate::cli::{CliError, Context, exit, ui};
use crate::up::log_file_path;

/// Between two looks for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A longer line is not one of ours; the rest of it is passed over.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Rotated files that there may be.
const FILES_MAX: u32 = 255;
const LINES_MAX: usize = 1_000_000;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Go on showing lines as they are written
    #[arg(long, short)]
    follow: bool,
    /// Show so many of the last lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, allow_negative_numbers = true,
          value_parser = parse_lines)]
    lines: usize,
    /// Only what is at least as bad as this
    #[arg(long, value_enum, default_value_t = Level::Trace, hide_default_value = true)]
    level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

fn parse_lines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n <= LINES_MAX => Ok(n),
        _ => Err(format!("say how many lines, from 0 to {LINES_MAX}")),
    }
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let folder = log_folder(&context.home);
    let mut reader = Reader::new(&folder);
    let mut last = VecDeque::new();
    for number in (0..=FILES_MAX).rev() {
        if let Ok(file) = open_plain(&log_file_path(&folder, number)) {
            reader.turn_to(file);
            while let Some(line) = reader.next_line() {
                if passes(&line, args.level) {
                    last.push_back(line);
                }
                if last.len() > args.lines {
                    last.pop_front();
                }
            }
        }
    }
    if reader.file.is_none() && !args.follow {
        return Err(CliError::new(
            exit::FAILED,
            format!("there is no log in {}", folder.display()),
        )
        .next("`heddle up` begins one."));
    }
    for line in last {
        show(context, &line)?;
    }
    if args.follow {
        follow(context, &mut reader, args.level)
    } else {
        Ok(())
    }
}

/// Ends with Ctrl-C, or with whoever reads.
fn follow(context: &Context, reader: &mut Reader, at_least: Level) -> Result<(), CliError> {
    loop {
        // IMPORTANT: looked for before the last lines are read. A file that has a successor is
        // complete, so nothing can be written to it behind our back.
        let successor = reader.successor();
        while let Some(line) = reader.next_line() {
            if passes(&line, at_least) {
                show(context, &line)?;
            }
        }
        match successor {
            Some(file) => reader.turn_to(file),
            None => thread::sleep(LOOK_EVERY),
        }
    }
}

/// A line that cannot be read is shown whatever the level: it may be the one that matters.
fn passes(line: &str, at_least: Level) -> bool {
    let parsed: Option<Value> = serde_json::from_str(line).ok();
    let level = parsed.as_ref().and_then(|value| value["level"].as_str());
    let level = level.and_then(|level| Level::from_str(level, true).ok());
    level.is_none_or(|level| level <= at_least)
}

fn show(context: &Context, line: &str) -> Result<(), CliError> {
    if context.json {
        return ui::raw(&format!("{line}\n"));
    }
    match serde_json::from_str::<Value>(line) {
        Ok(value) => ui::text(&words(&value)),
        Err(_) => ui::text(&format!("{line}\n")),
    }
}

fn words(line: &Value) -> String {
    let text = |name: &str| line[name].as_str().unwrap_or("?").replace('\n', "\\n");
    let level = text("level").to_uppercase();
    let mut words = format!("{} {level:5} {}", text("at"), text("message"));
    for (name, value) in line["fields"].as_object().into_iter().flatten() {
        words.push_str(&format!("  {name}={value}"));
    }
    words + "\n"
}

/// Reads the lines of a file that grows, and finds its successor when it is set aside.
struct Reader {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// The beginning of a line whose end is not written yet.
    part: Vec<u8>,
}

impl Reader {
    fn new(folder: &Path) -> Self {
        Self {
            path: log_file_path(folder, 0),
            file: None,
            part: Vec::new(),
        }
    }

    fn turn_to(&mut self, file: File) {
        self.file = Some(BufReader::new(file));
        self.part.clear();
    }

    /// The next whole line; `None` when there is none yet.
    fn next_line(&mut self) -> Option<String> {
        let file = self.file.as_mut()?;
        loop {
            let mut piece = Vec::new();
            let read = file
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut piece)
                .ok()?;
            if read == 0 {
                return None;
            }
            if (self.part.len() as u64) < LINE_BYTES_MAX {
                self.part.extend_from_slice(&piece);
            }
            if !piece.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.part);
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if !line.is_empty() {
                return Some(line.to_owned());
            }
        }
    }

    /// The file that the name stands for now, if it is another one.
    fn successor(&mut self) -> Option<File> {
        let named = open_plain(&self.path).ok()?;
        let is_same = self.file.as_mut().is_some_and(|open| {
            let position = open.stream_position().unwrap_or(0);
            match (open.get_ref().metadata(), named.metadata()) {
                (Ok(open), Ok(named)) => open.ino() == named.ino() && named.len() >= position,
                _ => false,
            }
        });
        (!is_same).then_some(named)
    }
}
