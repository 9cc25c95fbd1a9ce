//! A run of grouped writes over the real database. Attempts and answers are marked in the disk's log, so
//! the ledger is kept by the disk and not by the code under test.

use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;

use heddle_sqlite::{Database, Durability, Migration, OpenError, Options, WriteError};
use rusqlite::Connection;
use sim::crash_vfs::CrashDisk;

pub(crate) const SCHEMA: &[Migration] = &[
    Migration {
        version: 1,
        name: "notes",
        sql: "CREATE TABLE notes (id INTEGER PRIMARY KEY, body BLOB NOT NULL UNIQUE)",
    },
    Migration {
        version: 2,
        name: "twins",
        sql: "CREATE TABLE twins (id INTEGER PRIMARY KEY)",
    },
];

pub(crate) type Answer = Result<(), WriteError<rusqlite::Error>>;

pub(crate) fn open(disk: &CrashDisk, durability: Durability) -> Result<Database, OpenError> {
    let mut options = Options::new("data.db");
    options.vfs = Some(disk.vfs());
    options.durability = durability;
    options.reader_count = 1;
    // So short that one run holds several checkpoints, also where nobody finds a pause to move the log beside commits: it is
    // waited for once it is twice as long.
    options.checkpoint_idle_pages = 12;
    options.checkpoint_hard_pages = 12;
    Database::open(options, SCHEMA)
}

/// The body of a note is a function of its id, so a wrong byte shows.
pub(crate) fn body(id: u32) -> Vec<u8> {
    let length = 10 + (id as usize * 97) % 180;
    id.to_le_bytes().repeat(length)
}

/// Two rows in two tables: a write that is there by half shows.
pub(crate) fn insert(
    id: u32,
) -> impl FnOnce(&Connection) -> Result<(), rusqlite::Error> + Send + 'static {
    move |connection| {
        connection
            .prepare_cached("INSERT INTO notes (id, body) VALUES (?1, ?2)")?
            .execute((id, body(id)))?;
        connection
            .prepare_cached("INSERT INTO twins (id) VALUES (?1)")?
            .execute([id])
            .map(drop)
    }
}

/// One write by one caller, marked before it is asked for and after it is answered.
pub(crate) fn write(disk: &CrashDisk, database: &Database, id: u32) -> Answer {
    disk.mark(format!("try {id}"));
    let answer = database.write_blocking(insert(id));
    note(disk, id, &answer);
    answer
}

/// Several writes that wait together and so share one commit.
pub(crate) fn write_group(disk: &CrashDisk, database: &Database, ids: &[u32]) -> Vec<Answer> {
    let (release, hold) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let gate = {
        let database = database.clone();
        thread::spawn(move || {
            database.write_blocking(move |_| {
                let _ = entered.send(());
                let _ = hold.recv();
                Ok::<_, rusqlite::Error>(())
            })
        })
    };
    // A poisoned or stopped database refuses the gate, and the writes below with it.
    let _ = inside.recv();
    let mut waiting = Vec::new();
    for &id in ids {
        disk.mark(format!("try {id}"));
        let mut answer = Box::pin(database.write(insert(id)));
        let now = answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        waiting.push((id, answer, now));
    }
    drop(release);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let answers = waiting.into_iter().map(|(id, answer, now)| {
        let answer = match now {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => runtime.block_on(answer),
        };
        note(disk, id, &answer);
        answer
    });
    let answers = answers.collect();
    let _ = gate.join().unwrap();
    answers
}

fn note(disk: &CrashDisk, id: u32, answer: &Answer) {
    let word = if answer.is_ok() { "ok" } else { "refused" };
    disk.mark(format!("{word} {id}"));
}

/// The run whose every I/O is cut: groups of different sizes, checkpoints, a clean stop in the middle
/// and a second start.
pub(crate) fn run(disk: &CrashDisk, durability: Durability, groups: &[usize]) {
    let mut next = 1;
    for half in groups.chunks(groups.len().div_ceil(2)) {
        let database = open(disk, durability).unwrap();
        for &size in half {
            let ids: Vec<u32> = (next..).take(size).collect();
            next += u32::try_from(size).unwrap();
            for answer in write_group(disk, &database, &ids) {
                assert_eq!(answer, Ok(()));
            }
        }
        database.stop();
        let stats = database.stats();
        assert!(
            stats.checkpoints > 0 && stats.largest_batch > 4,
            "a tame run: {stats:?}"
        );
    }
}

/// A run of tasks that lead by themselves, so that the writer's thread moves the log while they commit.
pub(crate) fn run_beside(disk: &Arc<CrashDisk>, durability: Durability) {
    const TASKS: u32 = 3;
    const EACH_MIN: u32 = 16;
    const EACH_MAX: u32 = 200;
    let database = open(disk, durability).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (disk, database) = (Arc::clone(disk), database.clone());
            runtime.spawn(async move {
                for n in 0..EACH_MAX {
                    // Where the thread was not quick enough to move anything beside them, they go on.
                    if n >= EACH_MIN && database.stats().moves_beside > 0 {
                        break;
                    }
                    let id = 1 + task * EACH_MAX + n;
                    disk.mark(format!("try {id}"));
                    let answer = database.write(insert(id)).await;
                    note(&disk, id, &answer);
                    assert_eq!(answer, Ok(()));
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    database.stop();
    let stats = database.stats();
    assert!(stats.moves_beside > 0, "a tame run: {stats:?}");
}
