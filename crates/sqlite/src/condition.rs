//! What a database file is, told before anybody opens it for writing.
//!
//! Whoever starts with a file, whoever only looks at it and whoever repairs it ask here, so that they cannot
//! disagree. The look reads and writes nothing; the judgement is a pure function of what it found.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::connection::{impossible_version, schema_version};
use crate::error::OpenError;
use crate::fault;
use crate::kind::{Kind, misplaced, open_plain};
use crate::log;

/// The first bytes of every SQLite file.
const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The newest format of the list of tables that SQLite knows.
const LIST_FORMAT_MAX: u32 = 4;
const UTF_8: u32 = 1;

/// How much of a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// From the root of every table down to its first row: as much as a quick start allows.
    Beginnings,
    /// Every page.
    Pages,
    /// Every page, and every index against its table.
    Whole,
}

/// How closely somebody wants to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// As a start does: as closely as the last end and the size ask for.
    AsNeeded,
    /// At every page: somebody has just met damage.
    Closely,
    /// At everything that can be checked: somebody has asked for it.
    Wholly,
}

impl Look {
    /// What is to be read of a file, where `as_needed` is what a start reads of it.
    pub fn depth(
        self,
        as_needed: impl FnOnce() -> rusqlite::Result<Depth>,
    ) -> rusqlite::Result<Depth> {
        match self {
            Self::AsNeeded => as_needed(),
            Self::Closely => Ok(Depth::Pages),
            Self::Wholly => Ok(Depth::Whole),
        }
    }
}

/// The verdict on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Not there, empty, or without a single table: a start fills it.
    New,
    Fit,
    /// A newer program has written it. It is left alone.
    Newer {
        found: u32,
        known: u32,
    },
    /// No file lies there or beside it, but a folder, a link or something else. It is left alone.
    NotAFile(String),
    /// A whole database of ours, but not the one that belongs here. It is left alone.
    Foreign {
        found: Kind,
        wanted: Kind,
    },
    /// Its first bytes say something that none of our files says. Nothing else of it can be trusted to be found.
    BadHeader(String),
    /// Pages of it are not what they were.
    Damaged(String),
    /// It could not be looked at: rights, locks, the disk. That is not its fault.
    Unseen(String),
}

impl Condition {
    /// What is wrong with its content, if something is.
    pub fn damage(&self) -> Option<&str> {
        match self {
            Self::BadHeader(why) | Self::Damaged(why) => Some(why),
            _ => None,
        }
    }

    /// Why it must not be opened for writing. What could not be looked at is left for the writer to refuse by its
    /// proper name.
    pub fn refusal(&self) -> Option<OpenError> {
        match self {
            // The writer names what it finds in place of a file.
            Self::New | Self::Fit | Self::Unseen(_) | Self::NotAFile(_) => None,
            Self::Newer { found, known } => Some(OpenError::NewerSchema {
                found: *found,
                known: *known,
            }),
            Self::Foreign { found, wanted } => Some(OpenError::Foreign {
                found: found.says(),
                wanted: wanted.says(),
            }),
            Self::BadHeader(why) | Self::Damaged(why) => Some(OpenError::Damaged(why.clone())),
        }
    }
}

/// Which file is looked at, and as whom.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    pub path: &'a Path,
    pub vfs: Option<&'a str>,
    pub kind: Kind,
    /// The newest version of its schema that this program knows.
    pub known: u32,
    /// Nobody in this process has the file open. Only then are its first bytes read past SQLite: closing a file gives
    /// up every lock that its process has on it.
    pub alone: bool,
}

/// What a look has found.
#[derive(Debug, Clone)]
struct Facts {
    bytes: u64,
    header: Option<[u8; HEADER_BYTES]>,
    read: Result<Told, Failure>,
}

/// What the file says of itself through SQLite.
#[derive(Debug, Clone, Default)]
struct Told {
    version: i64,
    tables: u32,
    /// Whose it is, where it is another's.
    instead: Option<Kind>,
    /// The last of its migrations, as its own list has it.
    last_step: Option<u32>,
    /// The first problem that SQLite names.
    problem: Option<String>,
}

#[derive(Debug, Clone)]
struct Failure {
    is_damage: bool,
    says: String,
}

/// Looks at a file as deeply as `depth` says, once it is known that it is ours.
pub fn examine(
    subject: &Subject<'_>,
    depth: impl FnOnce(&Connection) -> rusqlite::Result<Depth>,
) -> Condition {
    if subject.vfs.is_none()
        && let Some(found) = misplaced(subject.path)
    {
        return Condition::NotAFile(found.why);
    }
    let bytes = match subject.vfs {
        None => std::fs::metadata(subject.path).map_or(0, |metadata| metadata.len()),
        // Only the VFS knows; a file that it does not have cannot be opened.
        Some(_) => u64::MAX,
    };
    if bytes == 0 {
        return Condition::New;
    }
    // IMPORTANT: before SQLite opens the file, which makes the log's index anew from what is left of the log.
    if subject.alone
        && subject.vfs.is_none()
        && let Some(wrong) = log::wrong_with(subject.path)
    {
        return Condition::Damaged(wrong);
    }
    let header = (subject.alone && subject.vfs.is_none())
        .then(|| first_bytes(subject.path))
        .flatten();
    let read = read(subject, depth).map_err(|error| Failure {
        is_damage: fault::is_damage(&error),
        says: error.to_string(),
    });
    let facts = Facts {
        bytes,
        header,
        read,
    };
    judge(&facts, subject.known, subject.kind)
}

/// The table, in the order in which its rows count.
fn judge(facts: &Facts, known: u32, wanted: Kind) -> Condition {
    if facts.bytes == 0 {
        return Condition::New;
    }
    if facts.bytes < HEADER_BYTES as u64 {
        return Condition::BadHeader(format!("it has {} bytes only", facts.bytes));
    }
    if let Some(wrong) = facts.header.as_ref().and_then(wrong_header) {
        return Condition::BadHeader(wrong);
    }
    let told = match &facts.read {
        Ok(told) => told,
        Err(failure) if failure.is_damage => return Condition::Damaged(failure.says.clone()),
        Err(failure) => return Condition::Unseen(failure.says.clone()),
    };
    // Before its version, which counts the steps of another schema.
    if let Some(found) = told.instead {
        return Condition::Foreign { found, wanted };
    }
    let Ok(found) = u32::try_from(told.version) else {
        return Condition::BadHeader(impossible_version(told.version));
    };
    if found > known {
        return Condition::Newer { found, known };
    }
    match told.last_step {
        None if told.tables == 0 => return Condition::New,
        // Its steps would be taken a second time, or never.
        Some(last) if last != found => {
            return Condition::BadHeader(format!(
                "its header says schema {found}, its own list of migrations ends at {last}"
            ));
        }
        _ => {}
    }
    match &told.problem {
        Some(problem) => Condition::Damaged(problem.clone()),
        None => Condition::Fit,
    }
}

/// What SQLite would not open, would open for reading only, or would read as something else.
fn wrong_header(header: &[u8; HEADER_BYTES]) -> Option<String> {
    let number = |at: usize| {
        let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        u32::from_be_bytes(bytes)
    };
    if !header.starts_with(MAGIC) {
        return Some("its first bytes are not those of a database".to_owned());
    }
    // With a log, as a start leaves it, or without one, as a copy is made.
    if !matches!((header[18], header[19]), (1, 1) | (2, 2)) {
        let (write, read) = (header[18], header[19]);
        return Some(format!(
            "its header names the formats {write} for writing and {read} for reading, and there is no such pair"
        ));
    }
    if number(44) > LIST_FORMAT_MAX {
        return Some(format!(
            "its header names the schema format {}, and there is none",
            number(44)
        ));
    }
    // Nothing at all where no table was ever made.
    if number(56) > UTF_8 {
        return Some(format!(
            "its header names the text encoding {}, and ours is {UTF_8}",
            number(56)
        ));
    }
    None
}

fn first_bytes(path: &Path) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    let mut file = open_plain(path).ok()?;
    file.read_exact(&mut header).ok()?;
    Some(header)
}

fn read(
    subject: &Subject<'_>,
    depth: impl FnOnce(&Connection) -> rusqlite::Result<Depth>,
) -> rusqlite::Result<Told> {
    let connection = connect(subject)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let mut told = Told {
        version: schema_version(&connection)?,
        ..Told::default()
    };
    let is_newer = told.version > i64::from(subject.known);
    match names(&connection) {
        Ok(names) => told.instead = subject.kind.instead(&names),
        // A newer program may list its tables in its own way.
        Err(_) if is_newer => {}
        Err(error) => return Err(error),
    }
    if is_newer || told.version < 0 || told.instead.is_some() {
        return Ok(told);
    }
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0));
    told.tables = count("SELECT count(*) FROM sqlite_schema")?;
    if count("SELECT count(*) FROM sqlite_schema WHERE name = '_migrations'")? > 0 {
        let last = "SELECT max(version) FROM _migrations";
        told.last_step = connection.query_row(last, [], |row| row.get(0))?;
    }
    let check = match depth(&connection)? {
        Depth::Beginnings => {
            first_rows(&connection)?;
            return Ok(told);
        }
        Depth::Pages => "PRAGMA quick_check(1)",
        Depth::Whole => "PRAGMA integrity_check(1)",
    };
    let verdict = match connection.query_row(check, [], |row| row.get::<_, String>(0)) {
        // An index for searching without its settings is no damage to SQLite, and is checked by nothing all the same.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => error.to_string(),
        verdict => verdict?,
    };
    told.problem = (verdict != "ok").then_some(verdict);
    Ok(told)
}

fn names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut tables = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let names = tables.query_map([], |row| row.get(0))?;
    names.collect()
}

/// Reads from the root of every table down to its first row.
fn first_rows(connection: &Connection) -> rusqlite::Result<()> {
    let mut tables = connection.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'",
    )?;
    let names = tables.query_map([], |row| row.get::<_, String>(0))?;
    for name in names {
        let quoted = name?.replace('"', "\"\"");
        let sql = format!("SELECT * FROM \"{quoted}\" NOT INDEXED LIMIT 1");
        connection.prepare(&sql)?.query([])?.next()?;
    }
    Ok(())
}

/// To be read only, and never to be tidied up when it is closed.
fn connect(subject: &Subject<'_>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // Absolute, as the writer opens it: SQLite would read a name that starts with `file:` as a URI.
    let connection = match subject.vfs {
        None => {
            let path: PathBuf = std::path::absolute(subject.path)
                .map_err(|_| rusqlite::Error::InvalidPath(subject.path.to_owned()))?;
            Connection::open_with_flags(path, flags)?
        }
        Some(vfs) => {
            Connection::open_with_flags_and_vfs(Path::new("/").join(subject.path), flags, vfs)?
        }
    };
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: u32 = 7;

    fn header() -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..16].copy_from_slice(MAGIC);
        header[18..20].copy_from_slice(&[2, 2]);
        header[47] = 4;
        header[59] = 1;
        header
    }

    fn facts() -> Facts {
        Facts {
            bytes: 8192,
            header: Some(header()),
            read: Ok(Told {
                version: i64::from(KNOWN),
                tables: 3,
                instead: None,
                last_step: Some(KNOWN),
                problem: None,
            }),
        }
    }

    fn told(change: impl FnOnce(&mut Told)) -> Facts {
        let mut told = facts().read.unwrap();
        change(&mut told);
        Facts {
            read: Ok(told),
            ..facts()
        }
    }

    fn flipped(at: usize) -> Facts {
        let mut header = header();
        header[at] ^= 0xff;
        Facts {
            header: Some(header),
            ..facts()
        }
    }

    fn failed(is_damage: bool) -> Facts {
        let says = "why".to_owned();
        Facts {
            read: Err(Failure { is_damage, says }),
            ..facts()
        }
    }

    #[test]
    fn every_row_of_the_table() {
        let is = |facts: &Facts| judge(facts, KNOWN, Kind::Store);
        assert_eq!(is(&facts()), Condition::Fit);
        assert_eq!(
            is(&Facts {
                bytes: 0,
                ..facts()
            }),
            Condition::New
        );
        let short = Facts {
            bytes: 99,
            ..facts()
        };
        assert!(matches!(is(&short), Condition::BadHeader(_)));
        for at in [0, 15, 18, 19, 44, 47, 56, 59] {
            assert!(matches!(is(&flipped(at)), Condition::BadHeader(_)), "{at}");
        }
        // What SQLite looks after by itself.
        for at in [24, 28, 40, 63, 68, 92] {
            assert_eq!(is(&flipped(at)), Condition::Fit, "{at}");
        }
        let newer = Condition::Newer {
            found: 8,
            known: KNOWN,
        };
        assert_eq!(is(&told(|told| told.version = 8)), newer);
        // Before its pages, which a newer program may have made in its own way.
        let odd = told(|told| {
            told.version = 8;
            told.problem = Some("x".to_owned());
        });
        assert_eq!(is(&odd), newer);
        // Before its version: that of another schema says nothing.
        let foreign = told(|told| {
            told.version = 8;
            told.instead = Some(Kind::Broker);
        });
        let (found, wanted) = (Kind::Broker, Kind::Store);
        assert_eq!(is(&foreign), Condition::Foreign { found, wanted });
        let negative = told(|told| told.version = i64::from(i32::MIN) + 7);
        assert!(matches!(is(&negative), Condition::BadHeader(why) if why.contains("-2147483641")));
        for version in [0, 6] {
            let less = told(|told| told.version = version);
            assert!(matches!(is(&less), Condition::BadHeader(_)), "{version}");
        }
        let bare = told(|told| *told = Told::default());
        assert_eq!(is(&bare), Condition::New);
        let damaged = told(|told| told.problem = Some("x".to_owned()));
        assert_eq!(is(&damaged), Condition::Damaged("x".to_owned()));
        assert_eq!(is(&failed(true)), Condition::Damaged("why".to_owned()));
        assert_eq!(is(&failed(false)), Condition::Unseen("why".to_owned()));
        // A header that was not read says nothing.
        let unread = Facts {
            header: None,
            ..flipped(18)
        };
        assert_eq!(is(&unread), Condition::Fit);
    }
}
