//! `heddle mesh give-back | take-back`: what the log of a mesh has lost goes to the home that made it, in a file.
//!
//! The first line names the mesh, every other one is a change under its own stamp. The file is for people to carry:
//! `take-back` asks the daemon, which sends only what this home itself had made.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use heddle_core::limits::REQUEST_BYTES_MAX;
use heddle_wire::ipc::{KeptPage, ResumeBody, TakeBackAnswer, TakeBackBody};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cli::{CliError, Context, bounded, exit, ui};

const FORMAT: &str = "heddle.kept.v1";
/// As a string in a request, with its quotes escaped, a line takes at most twice its bytes in all that is usual.
const BATCH_BYTES_MAX: usize = REQUEST_BYTES_MAX / 4;
/// No line of ours is longer: an op in its request would not fit.
const LINE_BYTES_MAX: u64 = REQUEST_BYTES_MAX as u64;

#[derive(Debug, ClapArgs)]
pub struct Give {
    /// Write them into this file, which must not be there yet; otherwise they are printed
    #[arg(long, value_name = "FILE", conflicts_with = "let_be")]
    out: Option<PathBuf>,
    /// Tell no more of them: the homes that made them are gone for good
    #[arg(long)]
    let_be: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Take {
    /// What `heddle mesh give-back` wrote; `-` reads it from standard input
    file: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    mesh: String,
    mesh_id: String,
}

pub(super) fn give(context: &Context, args: &Give) -> Result<(), CliError> {
    if args.let_be {
        let list = context.client().clock(&scope(context))?;
        let answer = context.client().let_be(&ResumeBody { mesh: list.mesh })?;
        return context.print(&answer, |answer| {
            format!("mesh {}: {}\n", answer.mesh, answer.says)
        });
    }
    let Some(path) = &args.out else {
        let (mesh, count) = pages(context, ui::raw)?;
        return if count == 0 {
            nothing(context, &mesh)
        } else {
            Ok(())
        };
    };
    if path.symlink_metadata().is_ok() {
        return Err(unwritten(path, &ErrorKind::AlreadyExists.into()));
    }
    let mut file: Option<File> = None;
    let written = pages(context, |text| {
        let file = match &mut file {
            Some(file) => file,
            None => file.insert(begun(path)?),
        };
        let wrote = file.write_all(text.as_bytes());
        wrote.map_err(|error| unwritten(path, &error))
    });
    let synced = written.and_then(|count| {
        let synced = file.as_ref().map_or(Ok(()), File::sync_all);
        synced
            .map(|()| count)
            .map_err(|error| unwritten(path, &error))
    });
    let (mesh, count) = synced.inspect_err(|_| {
        // Half of it would pass for all of it. It is ours: it was not there before.
        if file.is_some() {
            let _ = std::fs::remove_file(path);
        }
    })?;
    if count == 0 {
        return nothing(context, &mesh);
    }
    let answer = json!({"mesh": mesh, "count": count, "file": path});
    context.print(&answer, |_| {
        format!(
            "{count} changes that the log of mesh {mesh} has lost are in {file}\n  next: in each home that made some: heddle mesh take-back {file}\n",
            file = path.display()
        )
    })
}

fn begun(path: &Path) -> Result<File, CliError> {
    let mut open = OpenOptions::new();
    let opened = open.write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|error| unwritten(path, &error))
}

/// Another home has sent again what its log had lost, or it has lost nothing.
fn nothing(context: &Context, mesh: &str) -> Result<(), CliError> {
    context.print(&json!({"mesh": mesh, "count": 0}), |_| {
        format!(
            "nothing to give back: the log of mesh {mesh} has everything that this home has of others; nothing was written\n"
        )
    })
}

/// Hands on all lines, the head first, where there is any; which mesh it was, and how many changes.
fn pages(
    context: &Context,
    mut hand: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(String, usize), CliError> {
    let client = context.client();
    let (mut cursor, mut count, mut is_first): (Option<String>, _, _) = (None, 0, true);
    let mut text = String::new();
    loop {
        let mut query = scope(context);
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page: KeptPage = client.kept(&query)?;
        if std::mem::take(&mut is_first) {
            let head = Head {
                format: FORMAT.to_owned(),
                mesh: page.mesh.clone(),
                mesh_id: page.mesh_id.clone(),
            };
            let head = serde_json::to_string(&head);
            text.push_str(&head.map_err(|error| CliError::new(exit::FAILED, error.to_string()))?);
            text.push('\n');
        }
        for op in &page.ops {
            text.push_str(op);
            text.push('\n');
        }
        count += page.ops.len();
        if count > 0 {
            hand(&text)?;
            text.clear();
        }
        match page.cursor {
            None => return Ok((page.mesh, count)),
            next => cursor = next,
        }
    }
}

pub(super) fn take(context: &Context, args: &Take) -> Result<(), CliError> {
    let reader: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let opened = bounded::open(&args.file);
        Box::new(opened.map_err(|error| unread(&args.file, &error.to_string()))?)
    };
    let mut lines = Lines {
        reader: BufReader::new(reader),
        path: &args.file,
    };
    let head = lines.next_line()?;
    let head = head.and_then(|line| serde_json::from_str::<Head>(&line).ok());
    let head = head.filter(|head| head.format == FORMAT).ok_or_else(|| {
        unread(
            &args.file,
            "it does not begin as `heddle mesh give-back` begins a file",
        )
    })?;
    let mut total = TakeBackAnswer {
        duplicate: false,
        mesh: head.mesh,
        ..TakeBackAnswer::default()
    };
    let (mut ops, mut bytes) = (Vec::new(), 0);
    loop {
        let line = lines.next_line()?;
        let is_end = line.is_none();
        if let Some(line) = line {
            bytes += line.len();
            ops.push(line);
        }
        if is_end || bytes >= BATCH_BYTES_MAX {
            let answer = context.client().take_back(&TakeBackBody {
                mesh_id: head.mesh_id.clone(),
                ops: std::mem::take(&mut ops),
            })?;
            total.mesh = answer.mesh;
            total.taken += answer.taken;
            total.known += answer.known;
            total.of_others += answer.of_others;
            bytes = 0;
        }
        if is_end {
            return context.print(&total, taken);
        }
    }
}

fn taken(answer: &TakeBackAnswer) -> String {
    let mut text = format!(
        "{} changes of this home go to the log of mesh {} again; {} were there\n",
        answer.taken, answer.mesh, answer.known
    );
    if answer.of_others > 0 {
        text.push_str(&format!(
            "  {} were made by other homes: take the file there\n",
            answer.of_others
        ));
    }
    text
}

struct Lines<'p> {
    reader: BufReader<Box<dyn Read>>,
    path: &'p Path,
}

impl Lines<'_> {
    fn next_line(&mut self) -> Result<Option<String>, CliError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX + 1);
        let read = bounded.read_until(b'\n', &mut line);
        let read = read.map_err(|error| unread(self.path, &error.to_string()))?;
        if read == 0 {
            return Ok(None);
        }
        if line.pop() != Some(b'\n') {
            return Err(unread(self.path, "a line is too long, or the file was cut"));
        }
        let text = String::from_utf8(line);
        text.map(Some)
            .map_err(|_| unread(self.path, "it is not text"))
    }
}

fn scope(context: &Context) -> Vec<(&str, &str)> {
    context.mesh_scope().into_iter().collect()
}

fn unwritten(path: &Path, error: &std::io::Error) -> CliError {
    if error.kind() == ErrorKind::AlreadyExists {
        let says = format!("{} is there already, and stays as it is", path.display());
        return CliError::new(exit::CONFLICT, says).next("Name another file with --out.");
    }
    let says = format!("{} cannot be written: {error}", path.display());
    CliError::new(exit::FAILED, says)
        .next("Check the folder and the space on the disk; nothing else has changed.")
}

fn unread(path: &Path, why: &str) -> CliError {
    let says = format!("{} cannot be read: {why}", path.display());
    CliError::new(exit::USAGE, says).next(
        "Make the file with `heddle mesh give-back --out FILE` in a home that has the changes.",
    )
}
