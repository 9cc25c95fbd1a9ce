//! Whose database a file is: each kind has a table that no other has. One that lies under another's name is told by it,
//! before anybody takes its steps for newer ones or its tables for lost. And what is no file at all: nobody opens that, be
//! it in the place of a database or of what SQLite keeps beside it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::files::{COMPANIONS, with_suffix};
use crate::log;

/// The databases of a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `data.db`.
    Store,
    /// `broker.db`.
    Broker,
    /// `effects.db`.
    Effects,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Store, Self::Broker, Self::Effects];

    /// Made by the first step of its schema, and never given up.
    fn mark(self) -> &'static str {
        match self {
            Self::Store => "outbox",
            Self::Broker => "client_message_dedupe",
            Self::Effects => "effect_envelope",
        }
    }

    /// In words that follow "it is".
    pub fn says(self) -> &'static str {
        match self {
            Self::Store => "the store of a home (data.db)",
            Self::Broker => "the history of a broker (broker.db)",
            Self::Effects => "the record of effects (effects.db)",
        }
    }

    /// Whose it is instead, by the names of its tables. Without any mark it is nobody's: others say what it is.
    pub(crate) fn instead(self, tables: &[String]) -> Option<Self> {
        let has = |kind: &Self| tables.iter().any(|table| table == kind.mark());
        if has(&self) {
            return None;
        }
        Self::ALL.into_iter().find(has)
    }
}

/// Why what lies at this place is no file, if it is none. What is not there is none's fault.
pub fn not_a_file(path: &Path) -> Option<String> {
    let found = path.symlink_metadata().ok()?;
    if found.is_file() {
        return None;
    }
    if found.is_dir() {
        return Some("it is a folder, and a database is a file".to_owned());
    }
    if !found.is_symlink() {
        return Some("it is no regular file".to_owned());
    }
    let to = std::fs::read_link(path).unwrap_or_default();
    let to = to.display();
    Some(if path.exists() {
        format!(
            "it is a symbolic link to {to}, and a database must lie in its home itself, beside its log"
        )
    } else {
        format!("it is a symbolic link to {to}, where nothing is")
    })
}

/// Something that is no file where SQLite wants one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The database itself or a companion of it.
    pub path: PathBuf,
    /// In words that follow the name of the database.
    pub why: String,
}

/// What lies in the place of a database or of a companion of it and is no file. SQLite would wait for a pipe for ever, and
/// call a whole database unreadable for a folder beside it.
pub fn misplaced(database: &Path) -> Option<Misplaced> {
    if let Some(why) = not_a_file(database) {
        let path = database.to_owned();
        return Some(Misplaced { path, why });
    }
    COMPANIONS.iter().find_map(|suffix| {
        let path = with_suffix(database, suffix);
        let why = not_a_file(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let why = format!("what lies beside it as {name} is not what SQLite keeps there: {why}");
        Some(Misplaced { path, why })
    })
}

/// For whoever is about to give this place to SQLite: an error where it, or what lies beside it, is no file, or where its
/// log is not what was written.
pub fn refuse_misplaced(database: &Path) -> rusqlite::Result<()> {
    let refuse = |code, why| {
        let error = rusqlite::ffi::Error::new(code);
        Err(rusqlite::Error::SqliteFailure(error, Some(why)))
    };
    if let Some(found) = misplaced(database) {
        return refuse(rusqlite::ffi::SQLITE_CANTOPEN, found.why);
    }
    match log::wrong_with(database) {
        Some(why) => refuse(rusqlite::ffi::SQLITE_CORRUPT, why),
        None => Ok(()),
    }
}

/// Opens a file for reading, and nothing but a file: whoever opened a pipe in its place would wait for ever.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_or_a_pipe_beside_a_database_is_named_and_the_database_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        std::fs::write(&file, b"x").unwrap();
        assert_eq!(misplaced(&file), None);
        for companion in COMPANIONS {
            let beside = with_suffix(&file, companion);
            std::fs::create_dir(&beside).unwrap();
            let found = misplaced(&file).unwrap();
            assert_eq!(found.path, beside);
            assert!(found.why.contains("it is a folder"), "{found:?}");
            assert!(refuse_misplaced(&file).is_err());
            std::fs::remove_dir(&beside).unwrap();
        }
        std::fs::remove_file(&file).unwrap();
        let owner = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, owner, 0).unwrap();
        // Neither waits for somebody to write into it.
        assert_eq!(misplaced(&file).unwrap().path, file);
        assert!(open_plain(&file).is_err());
    }

    #[test]
    fn a_file_is_told_by_the_table_that_only_its_kind_has() {
        let tables = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(Kind::Store.instead(&tables(&["outbox", "x"])), None);
        assert_eq!(Kind::Store.instead(&tables(&["x"])), None);
        let broker = tables(&["client_message_dedupe", "member"]);
        assert_eq!(Kind::Store.instead(&broker), Some(Kind::Broker));
        assert_eq!(Kind::Effects.instead(&broker), Some(Kind::Broker));
        assert_eq!(Kind::Broker.instead(&broker), None);
        let effects = tables(&["effect_envelope"]);
        assert_eq!(Kind::Broker.instead(&effects), Some(Kind::Effects));
    }

    #[test]
    fn only_a_regular_file_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(not_a_file(&at("absent")), None);
        std::fs::write(at("file"), b"x").unwrap();
        assert_eq!(not_a_file(&at("file")), None);
        assert!(not_a_file(folder.path()).unwrap().contains("folder"));
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert!(not_a_file(&at("link")).unwrap().contains("symbolic link"));
        std::os::unix::fs::symlink(at("absent"), at("dangling")).unwrap();
        assert!(
            not_a_file(&at("dangling"))
                .unwrap()
                .contains("where nothing is")
        );
    }
}
