//! `heddle file get`: the bytes on standard output, or in a file that appears whole or not at all.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use heddle_core::file::ContentHasher;
use heddle_core::ids::OpId;
use heddle_wire::client::{Client, ClientError, Download};
use heddle_wire::ipc::FileView;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use super::text::size;
use crate::cli::spelled::quoted;
use crate::cli::{CliError, Context, exit, printable, ui};

/// Shown on a terminal; more is for a file.
const TERMINAL_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Its id, or the path that it was shared under
    file: String,
    /// Whose, when it is a path: self, or a peer
    #[arg(long)]
    scope: Option<String>,
    /// Write it to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write over a file that is there
    #[arg(long, requires = "output")]
    force: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), CliError> {
    if let Some(output) = &args.output {
        // Before anything is fetched; the rename looks again.
        refuse_existing(output, args.force)?;
    }
    let client = context.client();
    let view = find(context, &client, &args)?;
    if let Some(words) = not_the_last(&view)
        && !context.json
    {
        ui::note(&words);
    }
    let by_id = |view: &FileView| {
        let mut query = vec![("id", view.id.clone())];
        query.extend(context.mesh.clone().map(|mesh| ("mesh", mesh)));
        query
    };
    let query = by_id(&view);
    let query: Vec<(&str, &str)> = query.iter().map(|(k, v)| (*k, v.as_str())).collect();
    match &args.output {
        Some(output) => {
            let bytes = client.file_bytes(&query)?;
            write_whole(bytes, &view, output, args.force)?;
            let answer = json!({"id": view.id, "path": view.path, "peer": view.peer,
                "sha256": view.sha256, "size": view.size, "mime": view.mime, "output": output,
                "stale": view.stale, "as_of": view.as_of, "newer": view.newer});
            context.print(&answer, |_| {
                let path = printable(&view.path);
                format!(
                    "wrote {path}, {}, to {}\n",
                    size(view.size),
                    output.display()
                )
            })
        }
        None if context.json => ui::json(&view),
        None => show(client.file_bytes(&query)?, &view),
    }
}

/// What whoever reads it must hear: it may not be what its owner shared last, or it is not (C29).
fn not_the_last(view: &FileView) -> Option<String> {
    let path = &view.path;
    if let Some(newer) = &view.newer {
        let at = &newer.updated_at;
        return Some(format!(
            "stale: {} shared another {path} at {at}, whose bytes are not on this machine; this is what it was before",
            view.peer
        ));
    }
    let as_of = view.as_of.as_deref().unwrap_or("no time");
    view.stale.then(|| {
        format!(
            "stale: the mesh is out of reach; as of {as_of} this was the last {path} of {}",
            view.peer
        )
    })
}

/// By id if it looks like one and is one, else by path.
fn find(context: &Context, client: &Client, args: &Args) -> Result<FileView, CliError> {
    if args.scope.is_none() && args.file.parse::<OpId>().is_ok() {
        let mut query = vec![("id", args.file.as_str())];
        query.extend(context.mesh_scope());
        match client.file(&query) {
            Err(ClientError::Problem(problem)) if problem.code == "unknown_file" => {}
            answer => return Ok(answer?),
        }
    }
    let mut query = vec![("path", args.file.as_str())];
    query.extend(args.scope.as_deref().map(|scope| ("scope", scope)));
    query.extend(context.scope());
    match client.file(&query) {
        Err(ClientError::Problem(mut problem)) if problem.code == "unknown_file" => {
            let owners = owners(context, client, &args.file);
            if let Some(owner) = owners.first() {
                problem.next = format!(
                    "It is shared by {}: `heddle file get {} --scope {owner}`.",
                    owners.join(", "),
                    quoted(&args.file)
                );
            }
            Err(ClientError::Problem(problem).into())
        }
        answer => Ok(answer?),
    }
}

/// Who shares a file under this path; nobody where that cannot be told.
fn owners(context: &Context, client: &Client, path: &str) -> Vec<String> {
    let mut query = vec![("prefix", path), ("scope", "all")];
    query.extend(context.mesh_scope());
    let page = client.files(&query).map(|page| page.items);
    let files = page.unwrap_or_default().into_iter();
    files
        .filter(|file| file.path == path)
        .map(|file| file.peer)
        .collect()
}

fn show(bytes: Download, view: &FileView) -> Result<(), CliError> {
    let mut out = ui::out();
    if !out.is_terminal() {
        return match copy(bytes, view, &mut out) {
            Err(Copied::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(CliError::quiet())
            }
            other => other.map_err(|error| error.told("standard output")),
        };
    }
    drop(out);
    let to_a_file = |why: &str| {
        let message = format!("{} {why}", printable(&view.path));
        CliError::new(exit::USAGE, message).next("Write it to a file with -o FILE.")
    };
    if view.size > TERMINAL_BYTES_MAX {
        return Err(to_a_file("is too long for a terminal"));
    }
    let mut content = Vec::new();
    copy(bytes, view, &mut content).map_err(|error| error.told("standard output"))?;
    let text = String::from_utf8(content).map_err(|_| to_a_file("is not text"))?;
    ui::text(&text)
}

fn refuse_existing(output: &Path, force: bool) -> Result<(), CliError> {
    if takes_bytes(output) {
        return Ok(());
    }
    let there = output.symlink_metadata();
    // A rename would put a file in the link's place: in that of /dev/stdout, say.
    if there.as_ref().is_ok_and(|there| !there.is_file()) {
        let message = format!("{} is no file, and stays as it is", output.display());
        return Err(CliError::new(exit::CONFLICT, message)
            .next("Name the file itself; without -o it goes to standard output."));
    }
    if force || there.is_err() {
        return Ok(());
    }
    let message = format!("{} is there already; nothing was written", output.display());
    Err(CliError::new(exit::CONFLICT, message)
        .next("Choose another name, or write over it with --force."))
}

/// Whether bytes go through it and leave nothing that could be written over: `/dev/null`, a terminal, a pipe.
fn takes_bytes(output: &Path) -> bool {
    let kind = output.metadata().map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_char_device() || kind.is_fifo())
}

/// A temporary file beside it, checked, synced, renamed: whoever looks sees all of it or nothing.
fn write_whole(
    bytes: Download,
    view: &FileView,
    output: &Path,
    force: bool,
) -> Result<(), CliError> {
    let name = output.display().to_string();
    let told = |error| Copied::Out(error).told(&name);
    // IMPORTANT: never renamed over. Root would put a file in the place of /dev/null, for everybody on the machine.
    if takes_bytes(output) {
        let mut file = File::options().write(true).open(output).map_err(told)?;
        return copy(bytes, view, &mut file).map_err(|error| error.told(&name));
    }
    let mut temporary = output.as_os_str().to_owned();
    temporary.push(format!(".{}.part", Context::mint_id()));
    let temporary = Temporary(PathBuf::from(temporary));
    let mut file = File::create_new(&temporary.0).map_err(told)?;
    copy(bytes, view, &mut file).map_err(|error| error.told(&name))?;
    file.sync_all().map_err(told)?;
    let flags = if force {
        RenameFlags::empty()
    } else {
        RenameFlags::NOREPLACE
    };
    match rustix::fs::renameat_with(CWD, &temporary.0, CWD, output, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => refuse_existing(output, force),
        // A file system that cannot promise: a hard link does not replace either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if !force => {
            std::fs::hard_link(&temporary.0, output).map_err(told)
        }
        Err(error) => Err(told(error.into())),
    }
}

/// Gone when dropped; after the rename there is nothing left to take away.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[derive(Debug)]
enum Copied {
    In(io::Error),
    Wrong,
    Out(io::Error),
}

impl Copied {
    fn told(self, output: &str) -> CliError {
        match self {
            Self::In(error) => CliError::from(ClientError::from(error)),
            Self::Wrong => CliError::new(
                exit::FAILED,
                "what came is not what was shared; nothing was kept of it",
            )
            .next("Try again; if it stays, ask the owner to share the file again."),
            Self::Out(error) => CliError::new(exit::FAILED, format!("{output}: {error}")),
        }
    }
}

/// To the end, and only if it is what the view says.
fn copy(mut bytes: Download, view: &FileView, out: &mut dyn Write) -> Result<(), Copied> {
    let mut hasher = ContentHasher::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = bytes.read(&mut buffer).map_err(Copied::In)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        out.write_all(&buffer[..read]).map_err(Copied::Out)?;
    }
    out.flush().map_err(Copied::Out)?;
    if hasher.finish().to_string() != view.sha256 {
        return Err(Copied::Wrong);
    }
    Ok(())
}
