//! The store on SQLite: one file, one writer, so a command never loses a race inside its transaction.

mod given;
mod kept;
mod links;
mod load;
mod reached;
mod surface;
mod taken;
mod waiting;
mod write;

use std::path::{Path, PathBuf};

use heddle_core::ids::MeshId;
use heddle_sqlite::{
    Condition, Database, Depth, Durability, Kind, Migration, OpenError, Options, ReadError,
    Subject, WriteError, examine,
};
use rusqlite::Connection;

use super::contract::{ListPage, ListPlace, LoggedLine, Reached, Seen, Storage};
use super::error::StorageError;
use super::expected::Expected;
use crate::authority::NonceHash;
use crate::binding::{LogicalKey, ReplayKey};
use crate::carry::{Part, Taken};
use crate::chain::{Link, Seal};
use crate::command::{Applied, Command};
use crate::facts::Facts;
use crate::kept::{Bound, Kept};
use crate::rows::{AuditRow, CallRow, Row};
use crate::step::step;
use crate::surface_check::Surface;
use crate::tally::Tally;

pub use kept::kept_in;
use links::Linked;
pub use reached::look;
pub use surface::lacks;
pub use waiting::{KeptCall, Waited, Waiting, in_words};

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "effects",
        sql: include_str!("schema_v1.sql"),
    },
    Migration {
        version: 2,
        name: "calls",
        sql: include_str!("schema_v2.sql"),
    },
    Migration {
        version: 3,
        name: "append_only",
        sql: include_str!("schema_v3.sql"),
    },
    Migration {
        version: 4,
        name: "chain",
        sql: include_str!("schema_v4.sql"),
    },
    Migration {
        version: 5,
        name: "digests",
        sql: include_str!("schema_v5.sql"),
    },
    Migration {
        version: 6,
        name: "tally",
        sql: include_str!("schema_v6.sql"),
    },
    Migration {
        version: 7,
        name: "decision_digests",
        sql: include_str!("schema_v7.sql"),
    },
    Migration {
        version: 8,
        name: "undigested",
        sql: include_str!("schema_v8.sql"),
    },
    Migration {
        version: 9,
        name: "waiting_digests",
        sql: include_str!("schema_v9.sql"),
    },
];
/// Effects are rare; more that wait than this is a caller gone wild.
const WRITE_QUEUE_MAX: usize = 1024;

#[derive(Clone)]
pub struct Sqlite {
    database: Database,
    expected: Expected,
}

impl Sqlite {
    /// Opens the file, creates it if it is missing. Always synced, whatever the rest of the home does.
    pub fn open(path: PathBuf) -> Result<Self, StorageError> {
        // A step that its index has forgotten would be taken a second time: a file that is not whole
        // decides nothing, and is refused with its bytes unchanged.
        heddle_sqlite::mend_log(&path).map_err(|error| StorageError::Open(error.to_string()))?;
        let found = condition(&path);
        if let Some(refusal) = found.refusal() {
            return Err(open_error(&refusal));
        }
        let mut options = Options::new(path);
        options.durability = Durability::Full;
        options.queue_capacity = WRITE_QUEUE_MAX;
        options.reader_count = 1;
        let database = Database::open(options, MIGRATIONS).map_err(|error| open_error(&error))?;
        let was_seen = matches!(found, Condition::New | Condition::Fit);
        if !was_seen && let Err(error) = database.integrity_check() {
            database.stop();
            return Err(StorageError::Open(error.to_string()));
        }
        Ok(Self {
            database,
            expected: Expected::default(),
        })
    }

    /// Finishes what is queued and closes the file. Blocks until that is done.
    pub fn stop(&self) {
        self.database.stop();
    }

    /// Whether another process keeps this one from writing now.
    pub async fn is_held(&self) -> bool {
        self.database.is_held().await
    }

    /// Why no write is accepted any more, if that is so.
    pub fn poisoned(&self) -> Option<String> {
        self.database.is_poisoned()
    }
}

/// What the file of a home's effects is: the judgement of every start, for whoever only wants to know. Reads only;
/// nobody in this process may have it open.
pub fn condition(path: &Path) -> Condition {
    let subject = Subject {
        kind: Kind::Effects,
        path,
        vfs: None,
        known: MIGRATIONS.last().map_or(0, |step| step.version),
        alone: true,
    };
    examine(&subject, |_| Ok(Depth::Whole))
}

fn open_error(error: &OpenError) -> StorageError {
    match error {
        OpenError::NewerSchema { found, known } => StorageError::Newer {
            found: *found,
            known: *known,
        },
        error => StorageError::Open(error.to_string()),
    }
}

impl Storage for Sqlite {
    async fn apply(&self, mesh: MeshId, command: Command) -> Result<Applied, StorageError> {
        let expected = self.expected.get();
        let applied = self.database.write(move |connection| {
            let mut facts = load::facts(connection, mesh, &command.key, command.ask.nonce())?;
            if let Some(call) = &command.call {
                facts.call = load::call(connection, mesh, &command.by, &call.id)?;
            }
            let stepped = step(&facts, &command);
            let facts = facts.with(&stepped.rows);
            let of = facts.consumed.as_ref().map(|row| row.replay_key);
            let whose = (mesh, &command.key, of);
            let link = written(connection, whose, &stepped.rows, expected)?;
            let applied = Applied {
                kind: stepped.kind,
                code: stepped.code,
                facts,
            };
            Ok::<_, StorageError>((applied, link))
        });
        let (applied, link) = applied.await?;
        self.expected.raise(link);
        Ok(applied)
    }

    async fn facts(
        &self,
        mesh: MeshId,
        key: &LogicalKey,
        nonce: Option<NonceHash>,
    ) -> Result<Facts, StorageError> {
        let key = key.clone();
        let found = self
            .database
            .read(move |connection| load::facts(connection, mesh, &key, nonce));
        Ok(found.await?)
    }

    async fn call(
        &self,
        mesh: MeshId,
        caller: &str,
        id: &str,
    ) -> Result<Option<CallRow>, StorageError> {
        let (caller, id) = (caller.to_owned(), id.to_owned());
        let found = self
            .database
            .read(move |connection| load::call(connection, mesh, &caller, &id));
        Ok(found.await?)
    }

    async fn key_of(&self, mesh: MeshId, id: &str) -> Result<Option<LogicalKey>, StorageError> {
        let id = id.to_owned();
        let found = self
            .database
            .read(move |connection| load::key_of(connection, mesh, &id));
        Ok(found.await?)
    }

    async fn list(
        &self,
        mesh: MeshId,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<ListPage, StorageError> {
        let found = self
            .database
            .read(move |connection| load::list(connection, mesh, after.as_ref(), limit));
        Ok(found.await?)
    }

    async fn audit(&self, mesh: MeshId, row: AuditRow) -> Result<(), StorageError> {
        let written = self
            .database
            .write(move |connection| write::audit(connection, mesh, &row));
        Ok(written.await?)
    }

    async fn log(
        &self,
        mesh: MeshId,
        key: Option<&LogicalKey>,
        page: (Option<i64>, usize),
    ) -> Result<Vec<LoggedLine>, StorageError> {
        let key = key.cloned();
        let found = self
            .database
            .read(move |connection| load::log(connection, mesh, key.as_ref(), page));
        Ok(found.await?)
    }

    async fn reached(&self, seen: Seen) -> Result<Reached, StorageError> {
        let found = self
            .database
            .read(move |connection| reached::reached(connection, seen));
        Ok(found.await?)
    }

    fn expect(&self, link: Option<Link>) {
        self.expected.set(link);
    }

    async fn reseal(&self, seal: Seal) -> Result<(), StorageError> {
        let expected = self.expected.get();
        let linked = self.database.write(move |connection| {
            let linked = Linked {
                mesh: None,
                rows: &[],
                more: &seal.0,
                seal: Some(seal),
                tally: Tally::default(),
            };
            links::append(connection, expected, &linked)
        });
        self.expected.raise(Some(linked.await?));
        Ok(())
    }

    async fn take_over(&self, mesh: MeshId, part: Part) -> Result<Taken, StorageError> {
        let expected = self.expected.get();
        let taken = self
            .database
            .write(move |connection| taken::take(connection, mesh, &part, expected));
        let (taken, link) = taken.await?;
        self.expected.raise(link);
        Ok(taken)
    }

    async fn taken(&self, mesh: MeshId) -> Result<Taken, StorageError> {
        let found = self
            .database
            .read(move |connection| taken::taken(connection, mesh));
        Ok(found.await?)
    }

    async fn kept(&self) -> Result<Kept, StorageError> {
        Ok(self.database.read(kept::kept).await?)
    }

    async fn surface(&self) -> Result<Surface, StorageError> {
        // The probe always ends as a failed job, so that its savepoint takes everything back.
        let probed = self
            .database
            .write(|connection| Err::<(), _>(surface::probe(connection)))
            .await;
        match probed {
            Err(WriteError::Job(surface)) => surface,
            Ok(()) => Err(StorageError::Corrupt("a probe was not rolled back".into())),
            Err(WriteError::Busy) => Err(StorageError::Busy),
            Err(WriteError::DiskFull) => Err(StorageError::DiskFull),
            Err(error) => Err(StorageError::Unavailable(format!("{error:?}"))),
        }
    }
}

/// The rows of a decision, with their link; none where there are no rows.
fn written(
    connection: &Connection,
    (mesh, key, of): (MeshId, &LogicalKey, Option<ReplayKey>),
    rows: &[Row],
    expected: Option<Link>,
) -> Result<Option<Link>, StorageError> {
    if rows.is_empty() {
        return Ok(None);
    }
    if given::is_given(connection, mesh)? {
        return Err(StorageError::GivenAway);
    }
    for row in rows {
        write::insert(connection, mesh, row, Bound::to(of))?;
    }
    let linked = Linked {
        mesh: Some(mesh),
        rows,
        more: b"",
        seal: None,
        tally: Tally::of(key, rows),
    };
    links::append(connection, expected, &linked).map(Some)
}

/// A cell that is not what its column holds was not written so.
impl From<rusqlite::Error> for StorageError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error::{
            FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error,
        };
        match error {
            FromSqlConversionFailure(..)
            | IntegralValueOutOfRange(..)
            | InvalidColumnType(..)
            | Utf8Error(..) => Self::Corrupt(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<WriteError<StorageError>> for StorageError {
    fn from(error: WriteError<StorageError>) -> Self {
        match error {
            WriteError::Busy => Self::Busy,
            WriteError::DiskFull => Self::DiskFull,
            WriteError::Job(error) => error,
            WriteError::Commit(reason) => Self::Refused(reason),
            WriteError::Held => Self::Refused(error.to_string()),
            WriteError::Panicked(what) => Self::Refused(format!("the write panicked: {what}")),
            WriteError::Stopped => Self::Refused("the store is stopped".into()),
            WriteError::Poisoned(reason) => Self::Unavailable(reason),
        }
    }
}

impl From<ReadError<StorageError>> for StorageError {
    fn from(error: ReadError<StorageError>) -> Self {
        match error {
            ReadError::Busy => Self::Busy,
            ReadError::Job(error) => error,
            ReadError::Stopped => Self::Refused("the store is stopped".into()),
            ReadError::Unreadable(reason) | ReadError::Panicked(reason) => {
                Self::Unavailable(reason)
            }
        }
    }
}
