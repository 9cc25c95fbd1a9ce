//! The database file before SQLite sees it: created private, never a symbolic link, its folder synced.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::OpenError;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// SQLite's companions; they take their mode from the database file when they are made.
pub(crate) const COMPANIONS: [&str; 3] = [LOG_SUFFIX, "-shm", "-journal"];
const LOG_SUFFIX: &str = "-wal";

/// Makes sure that a private regular file is at `path` and returns its absolute path.
///
/// The absolute path is also what keeps a name such as `file:x?mode=memory` a name: the bundled SQLite
/// reads anything that starts with `file:` as a URI, whatever the open flags say.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, OpenError> {
    let io_at = |at: &Path| {
        let at = at.to_owned();
        move |source| OpenError::Io { path: at, source }
    };
    let name = path.file_name().ok_or_else(|| OpenError::NotAFile {
        path: path.to_owned(),
    })?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.exists() {
        create_folder(folder).map_err(io_at(folder))?;
    }
    // Links among the folders are the owner's choice; only the last component must not be one.
    let folder = folder.canonicalize().map_err(io_at(folder))?;
    let path = folder.join(name);

    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&path);
    match created {
        Ok(file) => {
            file.sync_all().map_err(io_at(&path))?;
            sync_folder(&folder).map_err(io_at(&folder))?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_at(&path)(error)),
    }
    check_kind_and_mode(&path)?;
    for companion in COMPANIONS {
        let companion = with_suffix(&path, companion);
        if companion.symlink_metadata().is_ok() {
            check_kind_and_mode(&companion)?;
        }
    }
    let log = with_suffix(&path, LOG_SUFFIX);
    forget_cached_log(&log).map_err(io_at(&log))?;
    Ok(path)
}

/// Makes the next read of a left-over log come from the disk.
///
/// After a failed sync Linux keeps the pages readable and counts them as clean: a log that looks whole
/// from the cache may have a hole on the disk that no later sync ever fills. A new handle that trusted
/// the cache would put commits, or a checkpoint, behind that hole. Without the cache SQLite's recovery
/// sees the hole and ends the log before it. (SQLite takes no lock on its log, so opening and closing it
/// here frees nobody's.)
fn forget_cached_log(log: &Path) -> std::io::Result<()> {
    let file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // What a killed process left unsynced is dirty, and only clean pages can be dropped.
    file.sync_all()?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// IMPORTANT: looks at the path and never opens the file. Closing any descriptor of a file drops all
/// POSIX locks this process holds on it, and another connection may be holding some.
fn check_kind_and_mode(path: &Path) -> Result<(), OpenError> {
    let io_error = |source| OpenError::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = path.symlink_metadata().map_err(io_error)?;
    if metadata.is_symlink() {
        return Err(OpenError::Symlink {
            path: path.to_owned(),
        });
    }
    if !metadata.is_file() {
        return Err(OpenError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode != FILE_MODE {
        std::fs::set_permissions(path, Permissions::from_mode(FILE_MODE)).map_err(io_error)?;
        tracing::warn!(
            path = %path.display(),
            found = format_args!("{mode:o}"),
            "file mode repaired to 600"
        );
    }
    Ok(())
}

/// Creates the missing folders and makes each one's name durable in the folder above it.
fn create_folder(folder: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|at| !at.as_os_str().is_empty() && !at.exists())
        .collect();
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)?;
    for made in missing {
        match made.parent() {
            Some(above) if !above.as_os_str().is_empty() => sync_folder(above)?,
            _ => sync_folder(Path::new("."))?,
        }
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
