//! A broker that was put back from a backup begins a new epoch in each of its meshes before it serves anybody (LF-16): others have
//! seen places of the history that the older file would give out again, and it cannot know which.
//!
//! The note of it is written before the file is put in its place, and taken away after the epochs have begun. Whoever is
//! killed in between leaves it behind: then an epoch more than needed begins, which costs nothing but a look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heddle_broker::storage::sqlite::Options;
use heddle_broker::storage::{SqliteStorage, Storage as _, StorageError, Upkeep as _};
use heddle_core::ids::HistoryId;
use heddle_daemon::home::{read_plain, write_private};

use crate::system::Runtime;

const NAME: &str = "broker_put_back";

/// The epochs of the file that is replaced, by mesh: another backup of the same day must not begin them again.
type Epochs = BTreeMap<String, u64>;

/// What a restore has noted, should it put no broker back after all.
#[must_use = "a restore that puts no broker back owes `settle`"]
pub struct Noted {
    home: PathBuf,
    present: PathBuf,
    before: Option<u64>,
    /// A restore of before waits for its start still.
    was_there: bool,
}

/// Before a backup's broker is put in the place of the file `present`.
pub fn note(home: &Path, present: &Path) -> std::io::Result<Noted> {
    let was_there = place(home).symlink_metadata().is_ok();
    let mut epochs = read(home);
    for (mesh, epoch) in epochs_of(present).unwrap_or_default() {
        let known = epochs.entry(mesh).or_default();
        *known = epoch.max(*known);
    }
    let text = serde_json::to_string(&epochs).unwrap_or_default();
    write_private(&place(home), &text)?;
    Ok(Noted {
        home: home.to_owned(),
        present: present.to_owned(),
        before: file_number(present),
        was_there,
    })
}

impl Noted {
    /// After the restore, whatever became of it. A new epoch ends leases, so none begins for a file that stayed where it was.
    pub fn settle(self) -> std::io::Result<()> {
        if self.was_there || file_number(&self.present) != self.before {
            return Ok(());
        }
        forget(&self.home)
    }
}

fn file_number(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    path.symlink_metadata().ok().map(|file| file.ino())
}

fn forget(home: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(place(home)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// One that cannot be read says that a restore was here, and no more.
fn read(home: &Path) -> Epochs {
    let text = read_plain(&place(home)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Begins the epochs that are due; before anybody is served.
pub async fn begin_epochs(home: &Path, storage: &SqliteStorage) -> Result<(), StorageError> {
    if place(home).symlink_metadata().is_err() {
        return Ok(());
    }
    let epochs = read(home);
    for (mesh, name) in storage.meshes().await? {
        let before = epochs.get(&mesh.to_string()).copied().unwrap_or_default();
        let epoch = storage.epoch(mesh).await?.max(before);
        storage.raise_epoch_beyond(mesh, end_of(epoch)).await?;
        tracing::warn!(mesh = %name, "the broker was put back from a backup; a new epoch has begun");
    }
    if let Err(error) = forget(home) {
        tracing::warn!(%error, "the next start begins one more epoch");
    }
    Ok(())
}

/// Behind every place of the epoch.
fn end_of(epoch: u64) -> HistoryId {
    HistoryId {
        epoch,
        seq: i64::MAX.unsigned_abs(),
    }
}

/// Nothing where there is no file, or none that can be read: it may be why the backup is wanted.
fn epochs_of(present: &Path) -> Option<Epochs> {
    if !present.is_file() {
        return None;
    }
    let storage = SqliteStorage::open(Options::new(present)).ok()?;
    let read = async {
        let mut epochs = Epochs::new();
        for (mesh, _) in storage.meshes().await? {
            epochs.insert(mesh.to_string(), storage.epoch(mesh).await?);
        }
        Ok::<_, StorageError>(epochs)
    };
    let epochs = Runtime::single().ok()?.run(read).ok();
    storage.stop();
    epochs
}

fn place(home: &Path) -> PathBuf {
    home.join(NAME)
}

#[cfg(test)]
mod tests {
    use heddle_core::ids::MeshId;
    use heddle_core::names::MeshName;
    use ulid::Ulid;

    use super::*;

    const MESH: MeshId = MeshId(Ulid(7));

    /// What a broker's file does, and its end.
    fn on<T>(file: &Path, act: impl AsyncFnOnce(&SqliteStorage) -> T) -> T {
        let storage = SqliteStorage::open(Options::new(file)).unwrap();
        let done = Runtime::single().unwrap().run(act(&storage));
        storage.stop();
        done
    }

    /// A file whose mesh is in this epoch.
    fn broker(file: &Path, epoch: u64) {
        on(file, async |storage| {
            let name = MeshName::parse("home").unwrap();
            storage.ensure_mesh(MESH, &name).await.unwrap();
            let beyond = HistoryId {
                epoch: epoch - 1,
                seq: i64::MAX.unsigned_abs(),
            };
            storage.raise_epoch_beyond(MESH, beyond).await.unwrap();
            assert_eq!(storage.epoch(MESH).await, Ok(epoch));
        });
    }

    /// What a start makes of it.
    fn started(home: &Path, file: &Path) -> u64 {
        on(file, async |storage| {
            begin_epochs(home, storage).await.unwrap();
            storage.epoch(MESH).await.unwrap()
        })
    }

    #[test]
    fn lf_16_a_restore_that_fails_leaves_no_note_and_no_new_epoch() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("broker.db");
        broker(&file, 3);
        let noted = note(home.path(), &file).unwrap();
        assert!(place(home.path()).exists(), "before the file is touched");
        noted.settle().unwrap();
        assert!(!place(home.path()).exists());
        assert_eq!(started(home.path(), &file), 3);
        // One of before still waits for its start: a later one that fails takes nothing from it.
        let put_back = note(home.path(), &file).unwrap();
        std::fs::rename(&file, home.path().join("kept")).unwrap();
        broker(&file, 2);
        put_back.settle().unwrap();
        note(home.path(), &file).unwrap().settle().unwrap();
        assert_eq!(started(home.path(), &file), 4);
        assert_eq!(started(home.path(), &file), 4, "once");
    }

    #[test]
    fn lf_16_two_restores_before_a_start_keep_the_highest_epochs_of_both() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("broker.db");
        broker(&file, 5);
        for (number, older) in [(1, 2), (2, 3)] {
            let noted = note(home.path(), &file).unwrap();
            std::fs::rename(&file, home.path().join(format!("kept-{number}"))).unwrap();
            broker(&file, older);
            noted.settle().unwrap();
        }
        assert_eq!(started(home.path(), &file), 6);
    }
}
