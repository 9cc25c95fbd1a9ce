//! What a backup takes along beside the store, in `FILE.home/`: the broker's file, the keys, the settings.
//!
//! Putting them back replaces nothing: a broker, a key or a setting that is there is younger than the copy,
//! and what it has issued since must not be issued again. What is missing comes back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use heddle_store::{BackupError, copy_database, open_plain};

use crate::config::Config;

/// The folder beside the backup's file.
const FOLDER: &str = ".home";
const DRAFT: &str = ".part";
/// In a folder whose backup has no name yet; whoever makes it holds its lock.
const UNFINISHED: &str = ".unfinished";
const BROKER: &str = "broker.db";
const KEYS: &str = "keys";
/// Plain files of a home that are worth keeping. Tokens are minted anew, and which effects have happened must
/// not go back in time.
const PLAIN: [&str; 5] = [
    "config.toml",
    "hooks.toml",
    "effects.toml",
    "broker.port",
    "broker_token",
];
/// Far more than any of them has.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What was taken, and what could not be.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) with: Vec<String>,
    pub(crate) left_out: Vec<String>,
    folder: PathBuf,
    /// Locked for as long as the backup is being made.
    mark: Option<File>,
}

impl Taken {
    /// The backup has its name: the folder belongs to it.
    pub(crate) fn finish(&mut self) {
        let _ = fs::remove_file(self.folder.join(UNFINISHED));
        self.mark = None;
    }

    /// For a backup that did not come about.
    pub(crate) fn undo(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { what, path, source }
}

/// Copies what there is; the folder has its name once all of it is synced.
pub(crate) fn take(home: &Path, file: &Path) -> Result<Taken, BackupError> {
    let folder = beside(file, FOLDER);
    let draft = beside(&folder, DRAFT);
    for left in [&folder, &draft] {
        clear(left)?;
    }
    if folder.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: folder });
    }
    let mut taken = Taken {
        folder: draft.clone(),
        ..Taken::default()
    };
    match DirBuilder::new().mode(0o700).create(&draft) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(BackupError::Unfinished { path: draft });
        }
        Err(error) => return Err(failed("made", &draft)(error)),
    }
    taken.mark = Some(mark(&draft)?);
    let filled = fill(home, &draft, &mut taken).and_then(|()| {
        fs::rename(&draft, &folder).map_err(failed("named", &folder))?;
        folder.clone_into(&mut taken.folder);
        sync_parent(&folder).map_err(failed("synced", &folder))
    });
    if filled.is_err() {
        taken.undo();
    }
    filled.map(|()| taken)
}

fn mark(draft: &Path) -> Result<File, BackupError> {
    let path = draft.join(UNFINISHED);
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(&path);
    let mark = made.map_err(failed("made", &path))?;
    mark.try_lock()
        .map_err(|error| failed("locked", &path)(error.into()))?;
    Ok(mark)
}

/// Takes away what a backup left that was killed. What carries no mark is not ours, and what is locked is being made.
fn clear(folder: &Path) -> Result<(), BackupError> {
    let Ok(mark) = open_plain(&folder.join(UNFINISHED)) else {
        return Ok(());
    };
    if mark.try_lock().is_err() {
        let path = folder.to_owned();
        return Err(BackupError::Unfinished { path });
    }
    fs::remove_dir_all(folder).map_err(failed("removed", folder))
}

fn fill(home: &Path, draft: &Path, taken: &mut Taken) -> Result<(), BackupError> {
    let broker = home.join(BROKER);
    if fs::metadata(&broker).is_ok_and(|metadata| metadata.len() > 0) {
        match copy_database(&broker, &draft.join(BROKER)) {
            Ok(()) => taken.with.push(BROKER.to_owned()),
            Err(error @ (BackupError::Damaged { .. } | BackupError::Sqlite(_))) => {
                taken.left_out.push(format!("{BROKER}: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    for name in plain(home) {
        let path = home.join(&name);
        match copy_file(&path, &draft.join(&name)) {
            Ok(()) => taken.with.push(name.display().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("copied", &path)(error)),
        }
    }
    let keys = home.join(KEYS);
    if keys.is_dir() {
        copy_folder(&keys, &draft.join(KEYS)).map_err(failed("copied", &keys))?;
        taken.with.push(KEYS.to_owned());
    }
    File::open(draft)
        .and_then(|folder| folder.sync_all())
        .map_err(failed("synced", draft))
}

/// The plain files, and those that the settings point at inside of the home.
fn plain(home: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = PLAIN.iter().map(PathBuf::from).collect();
    let config = Config::load(&home.join("config.toml")).unwrap_or_default();
    let own = [&config.broker.token_file, &config.broker.ca_file];
    let meshes = config
        .mesh
        .iter()
        .flat_map(|mesh| [&mesh.token_file, &mesh.ca_file]);
    for named in meshes.chain(own).flatten() {
        let mut parts = named.components();
        let is_here = matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none();
        if is_here && !names.contains(named) {
            names.push(named.clone());
        }
    }
    names
}

/// What the backup has and the home has not; nothing where the backup is one without companions.
pub(crate) fn put_back(home: &Path, file: &Path) -> Result<Vec<String>, BackupError> {
    let folder = beside(file, FOLDER);
    let mut with = Vec::new();
    let Ok(entries) = fs::read_dir(&folder) else {
        return Ok(with);
    };
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.file_name().into())
        .filter(|name: &PathBuf| name != Path::new(UNFINISHED))
        .collect();
    names.sort();
    for name in names {
        let (from, to) = (folder.join(&name), home.join(&name));
        let is_there = match to.symlink_metadata() {
            Ok(metadata) => metadata.is_dir() || metadata.len() > 0,
            Err(_) => false,
        };
        if name == Path::new(KEYS) {
            if copy_folder(&from, &to).map_err(failed("put back", &to))? {
                with.push(KEYS.to_owned());
            }
        } else if !is_there {
            put_one(&name, &from, &to)?;
            with.push(name.display().to_string());
        }
    }
    Ok(with)
}

fn put_one(name: &Path, from: &Path, to: &Path) -> Result<(), BackupError> {
    if name == Path::new(BROKER) {
        return heddle_store::replace_database(from, to, heddle_core::clock::WallMs(0)).map(drop);
    }
    copy_file(from, to).map_err(failed("put back", to))
}

/// Where the backup's copy of the broker's file lies, if it has one.
pub(crate) fn broker_of(file: &Path) -> PathBuf {
    beside(file, FOLDER).join(BROKER)
}

/// Private from its first moment, and whole before it has its name.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let source = open_plain(from)?;
    let draft = beside(to, DRAFT);
    let _ = fs::remove_file(&draft);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut target = options.open(&draft)?;
    let copied = io::copy(&mut io::Read::take(source, FILE_BYTES_MAX + 1), &mut target)?;
    if copied > FILE_BYTES_MAX {
        let _ = fs::remove_file(&draft);
        return Err(io::Error::other("it is far too long"));
    }
    target.sync_all()?;
    fs::rename(&draft, to)?;
    sync_parent(to)
}

/// The files that are not there yet; true if there was any.
fn copy_folder(from: &Path, to: &Path) -> io::Result<bool> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    let mut copied = false;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_file() && target.symlink_metadata().is_err() {
            copy_file(&entry.path(), &target)?;
            copied = true;
        }
    }
    File::open(to)?.sync_all()?;
    Ok(copied)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
