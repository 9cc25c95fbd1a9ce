//! How far the store of the effects has come, remembered outside of it: a copy of an earlier moment that somebody
//! puts in its place is noticed, and decides nothing. In it, used keys would be free again.
//!
//! A mark is written after what it counts and before anybody is told of it. So no command begins without its mark,
//! and a crash in between leaves a store that is ahead of its mark, never behind.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use heddle_core::error_code::ErrorCode;
use heddle_registrar::binding::ReplayKey;
use heddle_registrar::storage::sqlite::look;
use heddle_registrar::storage::{Reached, Storage};
use heddle_store::{Store, had_effects};
use heddle_wire::problem::Problem;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{ANEW, EffectsError};
use crate::home::write_private;
use crate::shared::store_problem;

/// Beside `effects.db`. A home's `data.db` remembers the number as well.
const FILE: &str = "effects.mark";
const FILE_BYTES_MAX: u64 = 4096;
/// What to do about a store that is not the newest one.
pub(crate) const OLDER_NEXT: &str = "Put the newest effects.db back and restart. Or go on with this one: make an empty file effects-begin-anew beside it and restart; keys that were used since can then be used again.";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// Decisions, registrations and steps.
    rows: u64,
    /// The replay key of the newest registration, in hex.
    last: Option<String>,
}

impl Mark {
    fn of(reached: &Reached) -> Self {
        Self {
            rows: reached.rows,
            last: reached.last.map(ReplayKey::to_hex),
        }
    }

    fn seen(&self) -> Option<ReplayKey> {
        let text = self.last.as_deref()?;
        let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        ReplayKey::from_slice(&bytes?)
    }
}

/// What is remembered: by the file, and by the store of the home.
#[derive(Debug, Default)]
struct Remembered {
    file: Option<Mark>,
    store: Option<u64>,
    /// Why the file says nothing, though it is there.
    unreadable: Option<String>,
}

impl Remembered {
    fn new(folder: &Path, store: Option<u64>) -> Self {
        match read(&folder.join(FILE)) {
            Ok(file) => Self {
                file,
                store,
                unreadable: None,
            },
            Err(why) => Self {
                file: None,
                store,
                unreadable: Some(why),
            },
        }
    }

    fn rows(&self) -> u64 {
        let file = self.file.as_ref().map_or(0, |mark| mark.rows);
        file.max(self.store.unwrap_or(0))
    }

    fn seen(&self) -> Option<ReplayKey> {
        self.file.as_ref()?.seen()
    }

    /// Why this store is not the one to decide by; none where it is. `what` is what it is called.
    fn trouble(&self, what: &str, reached: &Reached) -> Option<String> {
        let decides = "used keys would be free again, so no effect is decided about";
        if let Some(why) = &self.unreadable {
            return Some(format!(
                "{FILE} cannot be read ({why}), so nobody knows whether {what} is the newest one; {decides}"
            ));
        }
        if reached.rows < self.rows() {
            return Some(format!(
                "{what} is an earlier copy of itself: {} decisions and steps were recorded here, and it knows of {}; {decides}",
                self.rows(),
                reached.rows
            ));
        }
        (!reached.has_seen).then(|| {
            format!(
                "{what} is not the one that was in use here: it does not know the last effect that was registered; {decides}"
            )
        })
    }
}

fn read(path: &Path) -> Result<Option<Mark>, String> {
    let mut text = String::new();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
        Ok(about) if !about.is_file() => return Err("it is no regular file".to_owned()),
        Ok(_) => {}
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Of a home whose daemon may or may not run; reads only.
pub(crate) fn older(home: &Path) -> Option<String> {
    let remembered = Remembered::new(home, had_effects(&home.join("data.db")));
    // A file that cannot be read is told of elsewhere.
    let reached = look(&home.join("effects.db"), remembered.seen()).ok()?;
    remembered.trouble("effects.db", &reached)
}

pub(super) struct HighWater {
    file: PathBuf,
    /// A home's own; a broker without one has the file alone.
    store: Option<Store>,
    mark: Mutex<Mark>,
    older: Option<String>,
}

impl HighWater {
    /// Compares the store with what is remembered of it. A person's word (`effects-begin-anew`) makes what is there
    /// the newest one; so does a store that begins anew.
    pub(super) async fn open<S: Storage>(
        folder: &Path,
        store: Option<Store>,
        (storage, what): (&S, &str),
        begins_anew: bool,
    ) -> Result<Self, EffectsError> {
        let known = match &store {
            Some(store) => store.effects_used().await?,
            None => None,
        };
        let remembered = Remembered::new(folder, known);
        let reached = storage.reached(remembered.seen()).await?;
        let trouble = remembered.trouble(what, &reached);
        let is_accepted = begins_anew || (trouble.is_some() && folder.join(ANEW).exists());
        let mut high = Self {
            file: folder.join(FILE),
            store,
            mark: Mutex::new(remembered.file.unwrap_or_default()),
            older: None,
        };
        if is_accepted {
            tracing::warn!(
                what,
                "goes on by a person's word; what was decided since is not known any more"
            );
            if let Some(store) = &high.store {
                store.forget_effects().await?;
            }
            *high.mark.lock().await = Mark::default();
            high.write(&Mark::of(&reached)).await?;
        } else if let Some(trouble) = trouble {
            tracing::error!(next = OLDER_NEXT, "{trouble}");
            high.older = Some(trouble);
        }
        Ok(high)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.older.clone()
    }

    /// For whoever wants something decided by a store that is not the newest one.
    pub(super) fn refusal(&self) -> Option<Problem> {
        let why = self.older.as_deref()?;
        let problem = Problem::new(ErrorCode::StorageUnavailable, why);
        Some(problem.next(OLDER_NEXT))
    }

    /// IMPORTANT: after the commit, before the answer.
    pub(super) async fn raise(&self, reached: &Reached) -> Result<(), Problem> {
        let mut mark = self.mark.lock().await;
        if reached.rows <= mark.rows {
            return Ok(());
        }
        let next = Mark::of(reached);
        let written = self.write(&next).await;
        written.map_err(|error| match error {
            EffectsError::Store(error) => store_problem(&error),
            error => Problem::new(ErrorCode::StorageUnavailable, format!("{FILE}: {error}"))
                .next("It is decided, and nothing was begun. Mend the disk and try again; `heddle effect status KEY` says what stands."),
        })?;
        *mark = next;
        Ok(())
    }

    async fn write(&self, mark: &Mark) -> Result<(), EffectsError> {
        let text = serde_json::to_string(mark).map_err(std::io::Error::other)?;
        let file = self.file.clone();
        let written = tokio::task::spawn_blocking(move || write_private(&file, &text)).await;
        written.map_err(std::io::Error::other)??;
        if let Some(store) = &self.store {
            store.use_effects(mark.rows).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(rows: u64, last: Option<u8>, has_seen: bool) -> Reached {
        Reached {
            rows,
            last: last.map(|byte| ReplayKey([byte; 32])),
            has_seen,
        }
    }

    #[test]
    fn rg_01_only_a_store_that_has_all_that_is_remembered_decides() {
        let mark = Mark::of(&reached(5, Some(0xab), true));
        assert_eq!(mark.seen(), Some(ReplayKey([0xab; 32])));
        let says = |file: Option<&Mark>, store, found| {
            let remembered = Remembered {
                file: file.cloned(),
                store,
                unreadable: None,
            };
            remembered.trouble("effects.db", &found)
        };
        for (rows, store) in [(5, None), (6, None), (5, Some(5)), (9, Some(9))] {
            assert_eq!(says(Some(&mark), store, reached(rows, None, true)), None);
        }
        assert_eq!(says(None, None, reached(0, None, true)), None);
        for (file, store, rows) in [
            (Some(&mark), None, 4),
            (Some(&mark), Some(9), 8),
            (None, Some(1), 0),
        ] {
            let told = says(file, store, reached(rows, None, true)).unwrap();
            assert!(told.contains("earlier copy"), "{told}");
        }
        let other = says(Some(&mark), None, reached(9, Some(1), false)).unwrap();
        assert!(other.contains("not the one"), "{other}");
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_no_mark_of_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Remembered::new(folder.path(), None).rows(), 0);
        for bad in ["", "{}", "{\"rows\":-1,\"last\":null}", "\0\0"] {
            std::fs::write(folder.path().join(FILE), bad).unwrap();
            let remembered = Remembered::new(folder.path(), None);
            let told = remembered.trouble("effects.db", &reached(9, None, true));
            assert!(told.unwrap().contains(FILE), "{bad:?}");
        }
    }
}
