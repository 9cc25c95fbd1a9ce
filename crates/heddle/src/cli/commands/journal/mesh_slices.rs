//! Slices over the mesh: each is a file that this member shares under `journal/NAME/`, so an op of the mesh's
//! log carries it to every home, online or not, once.
//!
//! What was shared is known by its name: origin, epoch, seqs, and how much was erased before it was made.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use heddle_core::shell::quoted;
use heddle_journal::Journal;
use heddle_journal::federation::{ExportAsk, Exported, Imported, SLICE_BYTES_MAX, is_origin_id};
use heddle_wire::ipc::{FileDeleteBody, FileShareBody, FileView};
use serde::Serialize;

use super::store;
use crate::cli::commands::remember::{again, id};
use crate::cli::{CliError, Context, exit};

const FOLDER: &str = "journal";
const MIME: &str = "application/vnd.heddle.slice";

/// A slice that somebody shares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slice {
    origin_id: String,
    epoch: u64,
    first: u64,
    last: u64,
    /// Records that were erased when it was made: those of before may hold what is to be gone.
    redacted: u64,
}

impl Slice {
    fn of(told: &Exported) -> Self {
        Self {
            origin_id: told.origin_id.clone(),
            epoch: told.origin_epoch,
            first: told.seq_range[0],
            last: told.seq_range[1],
            redacted: told.redacted,
        }
    }

    fn path(&self, name: &str) -> String {
        let (origin, epoch) = (&self.origin_id, self.epoch);
        let (first, last, redacted) = (self.first, self.last, self.redacted);
        format!("{FOLDER}/{name}/{origin}/{epoch}-{first}-{last}-r{redacted}.slice")
    }

    /// None for what is no slice of ours: anybody may share anything.
    fn parse(path: &str, name: &str) -> Option<Self> {
        let rest = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let (origin_id, file) = rest
            .strip_prefix(name)?
            .strip_prefix('/')?
            .split_once('/')?;
        let parts: Vec<&str> = file.strip_suffix(".slice")?.split('-').collect();
        let [epoch, first, last, redacted] = parts.as_slice() else {
            return None;
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let slice = Self {
            origin_id: origin_id.to_owned(),
            epoch: number(epoch)?,
            first: number(first)?,
            last: number(last)?,
            redacted: number(redacted.strip_prefix('r')?)?,
        };
        is_origin_id(origin_id).then_some(slice)
    }
}

/// The name that the repository has in the mesh: as said, or that of its folder.
fn name_of(journal: &Journal, said: &str) -> Result<String, CliError> {
    let folder = journal.layout().root().parent();
    let folder = folder.and_then(|folder| folder.file_name()?.to_str());
    let name = if said.is_empty() {
        folder.unwrap_or_default()
    } else {
        said
    };
    let is_plain = !name.is_empty()
        && !name.starts_with('.')
        && !name
            .chars()
            .any(|c| c == '/' || c == '\\' || c.is_control());
    if is_plain {
        return Ok(name.to_owned());
    }
    Err(
        CliError::new(exit::USAGE, format!("{name:?} is no name for a repository"))
            .next("Say one that all of you use, behind =: --to-mesh=NAME, --from-mesh=NAME."),
    )
}

/// Every file under the name, of us or of all.
fn listed(context: &Context, name: &str, scope: &str) -> Result<Vec<FileView>, CliError> {
    let prefix = format!("{FOLDER}/{name}/");
    listed_in(context, &prefix, scope, context.scope())
}

fn listed_in(
    context: &Context,
    prefix: &str,
    scope: &str,
    of: Vec<(&str, &str)>,
) -> Result<Vec<FileView>, CliError> {
    let client = context.client();
    let (mut files, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut query = vec![("prefix", prefix), ("scope", scope)];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        query.extend(of.iter().copied());
        let page = client.files(&query)?;
        files.extend(page.items);
        match page.cursor {
            None => return Ok(files),
            next => cursor = next,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Posted {
    pub(super) name: String,
    pub(super) origin_id: String,
    pub(super) origin_epoch: u64,
    /// The paths that were shared now.
    pub(super) shared: Vec<String>,
    pub(super) records: u64,
    /// Slices of before that held what is erased now.
    pub(super) withdrawn: u64,
    pub(super) withheld: Vec<String>,
    pub(super) last_seq: u64,
}

/// Shares everything that was not shared yet, or all of it anew where something was erased since.
pub(super) fn post(
    context: &Context,
    journal: &Journal,
    said: &str,
    mut ask: ExportAsk,
) -> Result<Posted, CliError> {
    let name = name_of(journal, said)?;
    let mut told = journal.export_slice(&ask).map_err(store::told)?;
    let own: Vec<(Slice, String)> = listed(context, &name, "self")?
        .into_iter()
        .filter_map(|file| Some((Slice::parse(&file.path, &name)?, file.path)))
        .filter(|(slice, _)| slice.origin_id == told.origin_id && slice.epoch == told.origin_epoch)
        .collect();
    let is_erased = own.iter().any(|(slice, _)| slice.redacted < told.redacted);
    let shared_to = own.iter().map(|(slice, _)| slice.last).max().unwrap_or(0);
    ask.renew = heddle_journal::federation::Renew::No;
    ask.since = if is_erased {
        0
    } else {
        ask.since.max(shared_to)
    };
    let mut posted = Posted {
        name,
        origin_id: told.origin_id.clone(),
        origin_epoch: told.origin_epoch,
        shared: Vec::new(),
        records: 0,
        withdrawn: 0,
        withheld: Vec::new(),
        last_seq: ask.since,
    };
    loop {
        told = journal.export_slice(&ask).map_err(store::told)?;
        if told.seq_range[0] > told.seq_range[1] {
            break;
        }
        let path = Slice::of(&told).path(&posted.name);
        share(context, journal, &path, &told.slice)?;
        posted.shared.push(path);
        posted.records += told.records;
        posted.withheld.extend(told.withheld);
        (ask.since, posted.last_seq) = (told.seq_range[1], told.seq_range[1]);
        if !told.more {
            break;
        }
    }
    // IMPORTANT: the new ones first. Whoever dies here leaves both, and the next call takes the old away.
    if is_erased {
        for (_, path) in own.iter().filter(|(_, path)| !posted.shared.contains(path)) {
            withdraw(context, path)?;
            posted.withdrawn += 1;
        }
    }
    Ok(posted)
}

/// Where a mesh shares slices of this journal that were made before something was erased: in words, with the command that takes
/// them back (C15). A journal that never gave anything away asks nobody.
pub(super) fn still_shared(context: &Context, journal: &Journal) -> Vec<String> {
    let found = match journal.origin() {
        Ok(None) => return Vec::new(),
        Ok(Some(origin)) => stale(context, journal, &origin.origin_id),
        Err(error) => Err(store::told(error)),
    };
    let stale = match found {
        Ok(stale) => stale,
        Err(error) => {
            return vec![format!(
                "slices of this journal were made, and whether a mesh shares them still could not be asked ({}): \
                 where one does, `heddle journal export-slice --to-mesh=NAME` takes back what is erased now",
                error.message
            )];
        }
    };
    let told = stale.into_iter().map(|((mesh, name), count)| {
        let (mesh, to) = (quoted(&mesh), quoted(&format!("--to-mesh={name}")));
        format!(
            "{count} slices that this home shares in mesh {mesh} were made before and may hold what is erased: \
             `heddle --mesh {mesh} journal export-slice {to}` takes them back, and tells the others to erase it as well"
        )
    });
    told.collect()
}

/// How many slices under each name of each mesh know of less that was erased than a slice of now would.
fn stale(
    context: &Context,
    journal: &Journal,
    origin_id: &str,
) -> Result<BTreeMap<(String, String), usize>, CliError> {
    let mut found: Vec<((String, String), Slice)> = Vec::new();
    for mesh in context.client().meshes()?.meshes {
        let of = vec![("mesh", mesh.mesh.as_str())];
        let files = listed_in(context, &format!("{FOLDER}/"), "all", of)?;
        found.extend(files.iter().filter_map(|file| {
            let name = file.path.split('/').nth(1)?;
            let slice = Slice::parse(&file.path, name)?;
            (slice.origin_id == origin_id).then(|| ((mesh.mesh.clone(), name.to_owned()), slice))
        }));
    }
    let mut stale = BTreeMap::new();
    if found.is_empty() {
        return Ok(stale);
    }
    // Whatever it holds, a slice counts all that was erased.
    let now = journal.export_slice(&ExportAsk {
        since: 0,
        limit: 1,
        types: Vec::new(),
        renew: heddle_journal::federation::Renew::No,
    });
    let erased = now.map_err(store::told)?.redacted;
    for (place, slice) in found {
        if slice.redacted < erased {
            *stale.entry(place).or_insert(0) += 1;
        }
    }
    Ok(stale)
}

fn share(context: &Context, journal: &Journal, path: &str, slice: &[u8]) -> Result<(), CliError> {
    let file = Temporary(
        journal
            .layout()
            .root()
            .join(format!("slice-{}.tmp", id(None))),
    );
    file.write(slice).map_err(|error| {
        CliError::new(exit::FAILED, format!("{}: {error}", file.0.display()))
            .next("Check the folder and the space on the disk; nothing was shared.")
    })?;
    let body = FileShareBody {
        path: path.to_owned(),
        from: Some(file.0.display().to_string()),
        mime: Some(MIME.to_owned()),
        client_message_id: Some(id(None)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
        ..FileShareBody::default()
    };
    let client = context.client();
    again(|| client.share_file(&body))?;
    Ok(())
}

fn withdraw(context: &Context, path: &str) -> Result<(), CliError> {
    let body = FileDeleteBody {
        path: Some(path.to_owned()),
        client_message_id: Some(id(None)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
        ..FileDeleteBody::default()
    };
    let client = context.client();
    again(|| client.delete_file(&body))?;
    Ok(())
}

/// For the daemon to read, and gone afterwards.
struct Temporary(PathBuf);

impl Temporary {
    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        file.open(&self.0)?.write_all(bytes)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Fetched {
    pub(super) name: String,
    pub(super) slices: Vec<Taken>,
    /// Shared, but their bytes have not come yet.
    pub(super) waiting: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Taken {
    pub(super) path: String,
    pub(super) peer: String,
    #[serde(flatten)]
    pub(super) told: Imported,
}

/// Takes in what others share under the name, each origin in its order. What is known changes nothing.
pub(super) fn fetch(
    context: &Context,
    journal: &Journal,
    said: &str,
    leave_out_bad: bool,
) -> Result<Fetched, CliError> {
    let name = name_of(journal, said)?;
    let own = journal.origin().map_err(store::told)?;
    let own = own.map(|origin| origin.origin_id).unwrap_or_default();
    let mut found: Vec<(Slice, FileView)> = listed(context, &name, "all")?
        .into_iter()
        .filter_map(|file| Some((Slice::parse(&file.path, &name)?, file)))
        .filter(|(slice, _)| slice.origin_id != own)
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut fetched = Fetched {
        name,
        slices: Vec::new(),
        waiting: Vec::new(),
    };
    for (_, file) in found {
        if file.content == "elsewhere" {
            fetched.waiting.push(file.path);
            continue;
        }
        let bytes = match bytes_of(context, &file) {
            // Its owner has withdrawn it since it was listed: what was erased there is in the slice that takes its place.
            Err(error) if error.code == exit::NOT_FOUND => {
                let is_there = |now: &FileView| now.id == file.id;
                if listed(context, &fetched.name, "all")?.iter().any(is_there) {
                    fetched.waiting.push(file.path);
                }
                continue;
            }
            bytes => bytes?,
        };
        let told = journal.import_slice(&bytes, leave_out_bad);
        let told = told.map_err(|error| {
            let mut error = store::told(error);
            error.message = format!("{} of {}: {}", file.path, file.peer, error.message);
            error
        })?;
        fetched.slices.push(Taken {
            path: file.path,
            peer: file.peer,
            told,
        });
    }
    Ok(fetched)
}

fn bytes_of(context: &Context, file: &FileView) -> Result<Vec<u8>, CliError> {
    let mut query = vec![("id", file.id.as_str())];
    query.extend(context.scope());
    let download = context.client().file_bytes(&query)?;
    let mut bytes = Vec::new();
    // One byte more than the most: what is longer is refused by its length.
    let read = download
        .take(SLICE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes);
    read.map_err(|error| {
        CliError::new(exit::UNREACHABLE, format!("{}: {error}", file.path))
            .next("Try again; what was taken in before stays.")
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_known_by_its_path_and_nothing_else_is_one() {
        let slice = Slice {
            origin_id: "org_0123456789abcdef".to_owned(),
            epoch: 2,
            first: 1,
            last: 40,
            redacted: 3,
        };
        let path = slice.path("shop");
        assert_eq!(Slice::parse(&path, "shop"), Some(slice));
        assert_eq!(Slice::parse(&path, "sho"), None);
        for other in [
            "journal/shop/org_0123456789abcdef/2-1-40.slice",
            "journal/shop/org_0123456789abcdef/2-1-x-r0.slice",
            "journal/shop/../2-1-40-r0.slice",
            "journal/shop/2-1-40-r0.slice",
            "journal/shop",
        ] {
            assert_eq!(Slice::parse(other, "shop"), None, "{other}");
        }
    }
}
