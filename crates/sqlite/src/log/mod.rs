//! The log of a database as an unclean end has left it, looked at before SQLite reads it (OB-01).
//!
//! SQLite's recovery ends a log at the first frame that is not what was written, and says nothing: whatever was committed and
//! answered behind it is gone, and if parts of it were in the file already, the file goes back to a state that never was. So:
//!
//! - A frame with one wrong bit is put right where its checksum says which bit that is (`frames`). A frame with more that is
//!   wrong stays as it is where the index says that it was written, and what follows it counts: its page is damaged as pages of
//!   the file may be, and is told as those.
//! - A log that is shorter than what was committed, by the index that the last process has left (`index`), is told. If all
//!   of it is in the file already it is set aside, and nothing is lost.
//!
//! Each process looks once at each database, before it opens it: to close the index gives up every lock that its process
//! has on it, and after the first opening there is nothing to see any more (`first_look`).
//!
//! What a power cut leaves is neither: a torn frame is not one bit away from a whole one, and the index of another start of
//! the machine is not believed.

mod checksum;
mod frames;
mod index;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use frames::{Frames, HEADER_BYTES, Known};
use index::Reached;

use crate::files::with_suffix;
use crate::kind::open_plain;

pub(crate) use index::note_boot;

/// What each database was found to be when this process first looked at it, or as it has mended it.
static SEEN: Mutex<BTreeMap<PathBuf, Found>> = Mutex::new(BTreeMap::new());

const LOG: &str = "-wal";
pub(crate) const INDEX: &str = "-shm";
/// What a log is called that was set aside.
const ASIDE: &str = "-wal.damaged";
/// A log that is being written anew.
const DRAFT: &str = "-wal.mended";
const READ_BYTES: usize = 1 << 20;

/// What is wrong with a log, if something is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Fit,
    /// What is wrong hides nothing that was committed behind it.
    Passable(Frames),
    /// It does not hold all that was committed, and the file does.
    Superfluous(Loss),
    /// Neither does.
    Cut(Loss),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    /// Frames that are there and whole, of so many that were committed, of which so many are in the file.
    there: u32,
    of: u32,
    moved: u32,
}

/// What is wrong with the log of a database that nobody in this process has open, in words.
pub(crate) fn wrong_with(database: &Path) -> Option<String> {
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    match first_look(database) {
        Found::Fit => None,
        Found::Passable(frames) => Some(passable(&name, &frames)),
        Found::Superfluous(loss) => Some(format!(
            "its log ({name}{LOG}) ends after {} of {} pages, and all of them are in {name} itself: the next start sets it aside",
            loss.there, loss.of
        )),
        Found::Cut(loss) => Some(format!(
            "its log ({name}{LOG}) ends after {} of the {} pages that were committed, and {name} has {} of them: something has \
             damaged or removed it, and what was saved last is lost. A backup may have it; to go on without it, run \
             `heddle doctor --repair`, or remove {name}{INDEX} where there is no home",
            loss.there, loss.of, loss.moved
        )),
    }
}

fn passable(name: &str, frames: &Frames) -> String {
    let bits = match frames.flips.len() {
        0 => String::new(),
        1 => " one wrong bit, which the next start puts right".to_owned(),
        bits => format!(" {bits} wrong bits, which the next start puts right"),
    };
    let pages = match frames.kept.len() {
        0 => String::new(),
        pages => format!(
            " {pages} of {} pages that are not what was written, which the next start takes as they are, for nobody can say what they were",
            frames.committed
        ),
    };
    let and = if bits.is_empty() || pages.is_empty() {
        ""
    } else {
        " and"
    };
    format!("its log ({name}{LOG}) has{bits}{and}{pages}")
}

/// Whether what is wrong with the log of a database loses nothing, because the next start mends it.
pub fn log_heals(database: &Path) -> bool {
    matches!(
        first_look(database),
        Found::Passable(_) | Found::Superfluous(_)
    )
}

/// What was committed and is lost with the log of a database, in words.
pub fn lost_log(database: &Path) -> Option<String> {
    let is_cut = matches!(first_look(database), Found::Cut(_));
    wrong_with(database).filter(|_| is_cut)
}

/// Mends the log of a database that nobody has open, where that loses nothing. What was done, in words.
pub fn mend_log(database: &Path) -> io::Result<Option<String>> {
    let found = first_look(database);
    let done = wrong_with(database).map(|why| why.replace("the next start ", "this start "));
    match found {
        Found::Fit | Found::Cut(_) => return Ok(None),
        Found::Passable(frames) if frames.kept.is_empty() => put_right(database, &frames)?,
        Found::Passable(frames) => write_anew(database, &frames)?,
        Found::Superfluous(_) => drop(set_aside(database)?),
    }
    settled(database);
    if let Some(done) = &done {
        tracing::warn!(database = %database.display(), "{done}");
    }
    Ok(done)
}

/// A log that was given up, until it is known that the rest is good for something.
#[derive(Debug)]
pub struct GivenUp {
    database: PathBuf,
    /// What is lost, in words.
    pub lost: String,
    /// Where the log lies now.
    log: Option<PathBuf>,
    index: Vec<u8>,
}

impl GivenUp {
    /// As it was, for nothing came of it: the next look tells of it again.
    pub fn undo(self) -> io::Result<()> {
        if let Some(log) = &self.log {
            fs::rename(log, with_suffix(&self.database, LOG))?;
        }
        let index = with_suffix(&self.database, INDEX);
        remove(&index)?;
        if !self.index.is_empty() {
            create(&index)?.write_all(&self.index)?;
            note_boot(&index);
        }
        sync_folder_of(&index)
    }
}

/// Goes on without what a log has lost, at the newest state that is whole. For who has been told.
pub fn give_up_lost_log(database: &Path) -> io::Result<Option<GivenUp>> {
    let Found::Cut(loss) = first_look(database) else {
        return Ok(None);
    };
    let name = database.file_name().unwrap_or_default().to_string_lossy();
    let lost = format!(
        "the log of {name} ended after {} of the {} pages that were committed, and {name} had {} of them: what was saved last is lost",
        loss.there, loss.of, loss.moved
    );
    let index = fs::read(with_suffix(database, INDEX)).unwrap_or_default();
    let log = set_aside(database)?;
    // Less than the file has of it is older than the file.
    if let Some(log) = &log
        && loss.there > loss.moved
    {
        begin_of(log, loss.there, &with_suffix(database, LOG))?;
    }
    settled(database);
    Ok(Some(GivenUp {
        database: database.to_owned(),
        lost,
        log,
        index,
    }))
}

/// From now on this process has the database open, or did.
pub(crate) fn opened(database: &Path) {
    seen().entry(name_of(database)).or_insert(Found::Fit);
}

fn settled(database: &Path) {
    seen().insert(name_of(database), Found::Fit);
}

fn first_look(database: &Path) -> Found {
    let name = name_of(database);
    seen().entry(name).or_insert_with(|| look(database)).clone()
}

fn seen() -> MutexGuard<'static, BTreeMap<PathBuf, Found>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One name for all spellings of a path.
fn name_of(database: &Path) -> PathBuf {
    let folder = database
        .parent()
        .filter(|it| !it.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.join(database.file_name().unwrap_or_default())
}

fn look(database: &Path) -> Found {
    let index = with_suffix(database, INDEX);
    // Nothing of it is there: what lies beside it is of another one.
    if fs::metadata(database).map_or(0, |metadata| metadata.len()) == 0 {
        return Found::Fit;
    }
    let reached = match open_plain(&index) {
        // Whoever has it open knows.
        Ok(file) if index::is_in_use(&file) => return Found::Fit,
        Ok(file) if index::is_of_this_boot(&index) => reached(file),
        _ => None,
    };
    let frames = read_frames(database, reached.as_ref());
    // An index of before is somebody's, who has put it back: the log has begun anew since.
    let reached =
        reached.filter(|reached| !frames.salts.is_some_and(|salts| reached.is_before(salts)));
    judge(&frames, reached)
}

fn judge(frames: &Frames, reached: Option<Reached>) -> Found {
    let is_same = reached.is_none_or(|reached| frames.salts == Some(reached.salts));
    let (there, written) = if is_same {
        (frames.committed, frames.written)
    } else {
        (0, 0)
    };
    let of = reached.map_or(written, |reached| reached.committed.max(written));
    if there < of {
        let moved = reached.map_or(0, |reached| reached.moved);
        let loss = Loss { there, of, moved };
        return if moved >= of {
            Found::Superfluous(loss)
        } else {
            Found::Cut(loss)
        };
    }
    if frames.flips.is_empty() && frames.kept.is_empty() {
        Found::Fit
    } else {
        Found::Passable(frames.clone())
    }
}

/// What cannot be read is left to SQLite, which words it.
fn read_frames(database: &Path, reached: Option<&Reached>) -> Frames {
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let log = with_suffix(database, LOG);
    let known = Known {
        written: reached.map(|reached| (reached.salts, reached.committed)),
        bytes: bytes(database) + bytes(&log),
    };
    let read = open_log(&log).and_then(|log| frames::read(log, known));
    read.unwrap_or_default()
}

fn open_log(log: &Path) -> io::Result<BufReader<File>> {
    Ok(BufReader::with_capacity(READ_BYTES, open_plain(log)?))
}

/// By the index that a process has left which is gone by now.
fn reached(mut index: File) -> Option<Reached> {
    let mut bytes = [0; index::BYTES];
    index.read_exact(&mut bytes).ok()?;
    index::read(&bytes)
}

fn put_right(database: &Path, frames: &Frames) -> io::Result<()> {
    let log = with_suffix(database, LOG);
    let file = OpenOptions::new().read(true).write(true).open(log)?;
    for (at, mask) in &frames.flips {
        let mut byte = [0];
        file.read_exact_at(&mut byte, *at)?;
        file.write_all_at(&[byte[0] ^ mask], *at)?;
    }
    file.sync_all()
}

/// In a file of its own, which then takes the place of the log.
fn write_anew(database: &Path, frames: &Frames) -> io::Result<()> {
    let (log, draft) = (with_suffix(database, LOG), with_suffix(database, DRAFT));
    remove(&draft)?;
    let to = create(&draft)?;
    frames::write(
        open_log(&log)?,
        frames,
        BufWriter::with_capacity(READ_BYTES, &to),
    )?;
    to.sync_all()?;
    fs::rename(&draft, &log)?;
    sync_folder_of(database)
}

/// So many frames of a log.
fn begin_of(log: &Path, frames: u32, to: &Path) -> io::Result<()> {
    let mut from = open_log(log)?;
    let frame_bytes = frames::read(&mut from, Known::default())?.frame_bytes;
    let bytes = HEADER_BYTES as u64 + u64::from(frames) * frame_bytes;
    let mut to = create(to)?;
    io::copy(&mut open_log(log)?.take(bytes), &mut to)?;
    to.sync_all()
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// The log first: without its index nobody knows any more that it is not to be read. Where it lies now.
fn set_aside(database: &Path) -> io::Result<Option<PathBuf>> {
    let log = with_suffix(database, LOG);
    let aside = log.symlink_metadata().ok().map(|_| free_name(database));
    if let Some(aside) = &aside {
        fs::rename(&log, aside)?;
        sync_folder_of(database)?;
    }
    remove(&with_suffix(database, INDEX))?;
    Ok(aside)
}

fn free_name(database: &Path) -> PathBuf {
    let first = with_suffix(database, ASIDE);
    let others = (2..).map(|number| with_suffix(database, &format!("{ASIDE}-{number}")));
    std::iter::once(first.clone())
        .chain(others)
        .find(|name| name.symlink_metadata().is_err())
        .unwrap_or(first)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => sync_folder_of(path),
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
