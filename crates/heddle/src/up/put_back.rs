//! A broker that was put back from a backup begins a new epoch in each of its meshes before it serves anybody (LF-16): others have
//! seen places of the history that the older file would give out again, and it cannot know which.
//!
//! The note of it is written before the file is put in its place, and taken away after the epochs have begun. Whoever is
//! killed in between leaves it behind: then an epoch more than needed begins, which costs nothing but a look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heddle_broker::storage::sqlite::Options;
use heddle_broker::storage::{SqliteStorage, Storage as _, StorageError, Upkeep as _};
use heddle_core::ids::{HistoryId, MeshId};
use heddle_daemon::home::{read_plain, write_private};

use crate::system::Runtime;

const NAME: &str = "broker_put_back";

/// The epochs of the file that is replaced, by mesh: another backup of the same day must not begin them again.
type Epochs = BTreeMap<String, u64>;

/// Before a backup's broker is put in the place of the file `present`.
pub fn note(home: &Path, present: &Path) -> std::io::Result<()> {
    let epochs = epochs_of(present).unwrap_or_default();
    let text = serde_json::to_string(&epochs).unwrap_or_default();
    write_private(&place(home), &text)
}

/// No broker was put back after all.
pub fn forget(home: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(place(home)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Begins the epochs that are due; before anybody is served.
pub async fn begin_epochs(home: &Path, storage: &SqliteStorage) -> Result<(), StorageError> {
    let note = place(home);
    if note.symlink_metadata().is_err() {
        return Ok(());
    }
    // One that cannot be read says that much, too.
    let text = read_plain(&note).unwrap_or_default();
    let epochs: Epochs = serde_json::from_str(&text).unwrap_or_default();
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
            epochs.insert(MeshId::to_string(&mesh), storage.epoch(mesh).await?);
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
