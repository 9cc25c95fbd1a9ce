//! How far the store of the effects has come, remembered outside of it: another one in its place is noticed, and
//! decides nothing. In an earlier copy, used keys would be free again.
//!
//! A mark is written after what it stands for and before anybody is told of it. So no command begins without its mark,
//! and a crash in between leaves a store that is ahead of its mark, never behind. It names a link of the store's chain,
//! which no other store has: not an earlier copy, and not one that went on by itself, however many rows it has.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use heddle_registrar::binding::ReplayKey;
use heddle_registrar::carry::unhex;
use heddle_registrar::chain::Link;
use heddle_registrar::storage::sqlite::look;
use heddle_registrar::storage::{Reached, Seen};
use heddle_store::had_effects;
use serde::{Deserialize, Serialize};

use super::high_water::broken;
use crate::home::{create_private_folder, open_plain, write_private};

/// Beside the store, and once more beside the locks. A home's `data.db` remembers the number of rows as well.
pub(super) const FILES: [&str; 2] = ["effects.mark", "effects/mark"];
const FILE_BYTES_MAX: u64 = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    /// Decisions, registrations and steps.
    pub(super) rows: u64,
    /// The replay key of the newest registration, in hex.
    last: Option<String>,
    /// Of the store's chain; none in a mark of before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) link: Option<Link>,
}

impl Mark {
    pub(super) fn of(reached: &Reached) -> Self {
        Self {
            rows: reached.rows,
            last: reached.last.map(ReplayKey::to_hex),
            link: reached.link,
        }
    }

    pub(super) fn seen(&self) -> Seen {
        let last = self.last.as_deref().and_then(unhex);
        Seen {
            rows: self.rows_to_have(),
            last: last.map(ReplayKey),
            link: self.link,
        }
    }

    /// A link says more than any number of rows: whoever has it has all that came before it, and a row that is gone since is
    /// missed by its own key.
    fn rows_to_have(&self) -> u64 {
        match self.link {
            Some(_) => 0,
            None => self.rows,
        }
    }

    /// Whether what was reached is more than this.
    pub(super) fn is_behind(&self, reached: &Reached) -> bool {
        let seq = |link: Option<Link>| link.map_or(0, |link| link.seq);
        reached.rows > self.rows || seq(reached.link) > seq(self.link)
    }

    /// Why a store that has come so far is not the one that this is the mark of; none where it is.
    pub(super) fn trouble(&self, what: &str, reached: &Reached) -> Option<String> {
        let decides = "used keys would be free again, so no effect is decided about";
        let seq = |link: Option<Link>| link.map_or(0, |link| link.seq);
        let (was, is) = (seq(self.link), seq(reached.link));
        if reached.rows + reached.gone < self.rows_to_have() {
            return Some(format!(
                "{what} is an earlier copy of itself: {} decisions and steps were recorded here, and it knows of {}; {decides}",
                self.rows, reached.rows
            ));
        }
        if !reached.has_seen && is < was {
            return Some(format!(
                "{what} is an earlier copy of itself: {was} changes were recorded here, and it knows of {is}; {decides}"
            ));
        }
        (!reached.has_seen).then(|| {
            format!(
                "{what} is not the one that was in use here: it does not know what was last recorded, and went another way from some copy on; {decides}"
            )
        })
    }
}

/// What is remembered: by the files, and by the store of the home.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    pub(super) marks: Vec<Mark>,
    store: Option<u64>,
    /// Which file says nothing, though it is there, and why.
    unreadable: Option<String>,
}

impl Remembered {
    pub(super) fn new(folder: &Path, store: Option<u64>) -> Self {
        let mut all = Self {
            store,
            ..Self::default()
        };
        for name in FILES {
            match read(&folder.join(name)) {
                Ok(mark) => all.marks.extend(mark),
                Err(why) => all.unreadable = Some(format!("{name} cannot be read ({why})")),
            }
        }
        if all.marks.is_empty() {
            all.marks.push(Mark::default());
        }
        all
    }

    /// What the store is asked for, for this mark and for the home's own store.
    pub(super) fn seen(&self, mark: &Mark) -> Seen {
        let seen = mark.seen();
        Seen {
            rows: seen.rows.max(self.store.unwrap_or(0)),
            ..seen
        }
    }

    /// The one that has seen the most: what it has seen must be there in any case.
    pub(super) fn newest(&self) -> Mark {
        let seq = |mark: &&Mark| mark.link.map_or(0, |link| link.seq);
        let newest = self.marks.iter().max_by_key(|mark| (seq(mark), mark.rows));
        newest.cloned().unwrap_or_default()
    }

    /// Why this store is not the one to decide by; none where it is. `what` is what it is called, `reached` what it
    /// says to each of the marks.
    pub(super) fn trouble(&self, what: &str, reached: &[Reached]) -> Option<String> {
        if let Some(why) = &self.unreadable {
            return Some(format!(
                "{why}, so nobody knows whether {what} is the newest one; used keys would be free again, so no effect is decided about"
            ));
        }
        let of_store = Mark {
            rows: self.store.unwrap_or(0),
            ..Mark::default()
        };
        let mut marks = self.marks.iter().zip(reached);
        let by_files = marks.find_map(|(mark, reached)| mark.trouble(what, reached));
        let any = reached.first().map(|reached| Reached {
            has_seen: true,
            ..*reached
        });
        by_files.or_else(|| of_store.trouble(what, &any?))
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
    let file = open_plain(path).map_err(|error| error.to_string())?;
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Both files, each whole before it has its name.
pub(super) fn write(folder: &Path, mark: &Mark) -> std::io::Result<()> {
    let text = serde_json::to_string(mark).map_err(std::io::Error::other)?;
    // No new home begins where one was moved or removed.
    std::fs::metadata(folder)?;
    for name in FILES {
        let path: PathBuf = folder.join(name);
        if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
            create_private_folder(parent)?;
        }
        write_private(&path, &text)?;
    }
    Ok(())
}

/// Of a home whose daemon may or may not run; reads only.
pub(crate) fn older(home: &Path) -> Option<String> {
    let remembered = Remembered::new(home, had_effects(&home.join("data.db")));
    let file = home.join("effects.db");
    let marks = remembered.marks.iter();
    let reached = marks.map(|mark| look(&file, remembered.seen(mark)));
    // A file that cannot be read is told of elsewhere.
    let reached: Vec<Reached> = reached.collect::<Result<_, _>>().ok()?;
    let is_broken = reached.first().is_some_and(Reached::is_broken);
    let by_seal = is_broken.then(|| broken("effects.db"));
    remembered.trouble("effects.db", &reached).or(by_seal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(rows: u64, last: Option<u8>, has_seen: bool) -> Reached {
        Reached {
            rows,
            last: last.map(|byte| ReplayKey([byte; 32])),
            link: None,
            seal: None,
            has_seen,
            gone: 0,
        }
    }

    fn at(seq: u64, has_seen: bool) -> Reached {
        Reached {
            link: Some(Link {
                seq,
                digest: [9; 32],
            }),
            ..reached(5, None, has_seen)
        }
    }

    #[test]
    fn rg_01_only_a_store_that_has_all_that_is_remembered_decides() {
        let mark = Mark::of(&reached(5, Some(0xab), true));
        assert_eq!(mark.seen().last, Some(ReplayKey([0xab; 32])));
        let says = |file: Option<&Mark>, store, found| {
            let remembered = Remembered {
                marks: vec![file.cloned().unwrap_or_default()],
                store,
                unreadable: None,
            };
            remembered.trouble("effects.db", &[found])
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
        // Rows that are missed by their keys were written here: it is no earlier copy.
        let damaged = |gone| Reached {
            gone,
            ..reached(8, None, true)
        };
        assert_eq!(says(None, Some(9), damaged(1)), None);
        assert!(says(None, Some(10), damaged(1)).is_some());
        let other = says(Some(&mark), None, reached(9, Some(1), false)).unwrap();
        assert!(other.contains("not the one"), "{other}");
    }

    #[test]
    fn rg_01_a_copy_that_went_another_way_is_noticed_however_many_rows_it_has() {
        let mark = Mark::of(&at(7, true));
        assert_eq!(mark.trouble("it", &at(7, true)), None);
        assert_eq!(mark.trouble("it", &at(8, true)), None);
        let earlier = mark.trouble("it", &at(6, false)).unwrap();
        assert!(earlier.contains("7 changes"), "{earlier}");
        for seq in [7, 8, 100] {
            let other = mark.trouble("it", &at(seq, false)).unwrap();
            assert!(other.contains("another way"), "{other}");
        }
        // What has the link has all that came before it: a row that is gone since makes no earlier copy of it.
        let fewer = Reached {
            rows: 1,
            ..at(7, true)
        };
        assert_eq!(mark.trouble("it", &fewer), None);
        assert_eq!(mark.seen().rows, 0);
        // A request alone moves the mark: no row of those that are counted came with it.
        assert!(mark.is_behind(&at(8, true)) && !mark.is_behind(&at(7, true)));
    }

    #[test]
    fn one_of_the_two_files_is_enough_and_neither_may_be_unreadable() {
        let folder = tempfile::tempdir().unwrap();
        let mark = Mark::of(&at(7, true));
        for gone in FILES {
            write(folder.path(), &mark).unwrap();
            std::fs::remove_file(folder.path().join(gone)).unwrap();
            let remembered = Remembered::new(folder.path(), None);
            assert_eq!(
                (remembered.newest(), remembered.marks.len()),
                (mark.clone(), 1)
            );
            assert!(remembered.trouble("it", &[at(6, false)]).is_some());
        }
        // As an earlier version has written it.
        std::fs::write(folder.path().join(FILES[0]), "{\"rows\":5,\"last\":null}").unwrap();
        let old = Remembered::new(folder.path(), None).marks;
        assert_eq!((old[0].rows, old[0].link), (5, None));
    }

    #[test]
    fn a_mark_that_cannot_be_read_is_no_mark_of_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Remembered::new(folder.path(), None).newest().rows, 0);
        for bad in ["", "{}", "{\"rows\":-1,\"last\":null}", "\0\0"] {
            for name in FILES {
                write(folder.path(), &Mark::default()).unwrap();
                std::fs::write(folder.path().join(name), bad).unwrap();
                let remembered = Remembered::new(folder.path(), None);
                let found = [reached(9, None, true), reached(9, None, true)];
                let told = remembered.trouble("effects.db", &found);
                assert!(told.unwrap().contains(name), "{bad:?}");
            }
        }
    }
}
