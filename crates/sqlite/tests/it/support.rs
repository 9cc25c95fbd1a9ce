//! A database with one little table, and a gate that holds the writer still.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use heddle_sqlite::{Database, Migration, Options, WriteError};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const SCHEMA: &[Migration] = &[Migration {
    version: 1,
    name: "notes",
    sql: "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE)",
}];

pub(crate) type Written = Result<(), WriteError<rusqlite::Error>>;

pub(crate) struct Home {
    pub(crate) folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home {
            folder: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("data.db")
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(self.path())
    }

    pub(crate) fn open(&self) -> Database {
        open(self.options())
    }
}

pub(crate) fn open(options: Options) -> Database {
    Database::open(options, SCHEMA).unwrap()
}

pub(crate) fn insert(
    body: impl Into<String>,
) -> impl FnOnce(&Connection) -> Result<(), rusqlite::Error> + Send + 'static {
    let body = body.into();
    move |connection| {
        connection
            .prepare_cached("INSERT INTO notes (body) VALUES (?1)")?
            .execute([body])
            .map(drop)
    }
}

/// What is stored, in the order in which it was written.
pub(crate) fn bodies(database: &Database) -> Vec<String> {
    database
        .read_blocking(|connection| {
            connection
                .prepare("SELECT body FROM notes ORDER BY id")?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<String>>>()
        })
        .unwrap()
}

/// Holds the writer inside a job until it is opened, so that a test decides what is queued behind it.
pub(crate) struct Gate {
    open: mpsc::Sender<()>,
    held: JoinHandle<Written>,
}

impl Gate {
    pub(crate) fn close(database: &Database) -> Gate {
        let (open, wait) = mpsc::channel();
        let (entered, inside) = mpsc::channel();
        let database = database.clone();
        let held = thread::spawn(move || {
            database.write_blocking(move |_| {
                entered.send(()).unwrap();
                wait.recv().unwrap();
                Ok(())
            })
        });
        inside.recv().unwrap();
        Gate { open, held }
    }

    pub(crate) fn open(self) {
        assert_eq!(self.open_and_ask(), Ok(()));
    }

    /// Opens the gate and hands on what its own write was told.
    pub(crate) fn open_and_ask(self) -> Written {
        self.open.send(()).unwrap();
        self.held.join().unwrap()
    }
}

/// Runs a future on a small runtime of its own.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Polls a future once, which queues its write, and hands it back still waiting.
pub(crate) fn queue<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
    let mut future = Box::pin(future);
    let polled = future
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(polled.is_pending(), "answered before it could have run");
    future
}
