//! A registrar on one of the three stores, with a clock that moves when told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{Clock as _, Ids as _, ManualClock, ManualIds, WallMs};
use heddle_core::ids::MeshId;
use heddle_registrar::authority::Nonce;
use heddle_registrar::binding::{Effect, LogicalKey};
use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Call, Kind};
use heddle_registrar::facts::Facts;
use heddle_registrar::policy::Policy;
use heddle_registrar::registrar::{Caller, RegisterAsk};
use heddle_registrar::rows::{Outcome, Purpose};
use heddle_registrar::storage::memory::Memory;
use heddle_registrar::storage::postgres::Postgres;
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_registrar::storage::{Storage, StorageError};
use heddle_registrar::{Registrar, RegistrarError};

/// The same cases on every store: `memory::…`, `sqlite::…`, `postgres::…`.
#[macro_export]
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() { super::$case($crate::world::memory().await).await; })*
        }
        $crate::on_both_databases!($($case),*);
    };
}

#[macro_export]
macro_rules! on_both_databases {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $case() { super::$case($crate::world::sqlite().await).await; })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $case() { super::$case($crate::world::postgres().await).await; })*
        }
    };
}

pub(crate) struct World<S> {
    pub(crate) registrar: Registrar<S>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) raw: Raw,
}

/// The way past the registrar, to see what the database itself says.
pub(crate) enum Raw {
    None,
    Sqlite {
        file: PathBuf,
        _folder: tempfile::TempDir,
    },
    Postgres {
        url: String,
        schema: String,
    },
}

pub(crate) const START: WallMs = WallMs(1_790_000_000_000);

pub(crate) fn mesh() -> MeshId {
    MeshId(ManualIds::seeded(99).ulid())
}

pub(crate) async fn with_policy<S: Storage>(
    storage: S,
    raw: Raw,
    seed: u64,
    policy: &str,
) -> Result<World<S>, RegistrarError> {
    let clock = Arc::new(ManualClock::at(START));
    let ids = Arc::new(ManualIds::seeded(seed));
    let policy = Policy::parse(policy).unwrap();
    let registrar = Registrar::open(storage, clock.clone(), ids, policy, mesh()).await?;
    Ok(World {
        registrar,
        clock,
        raw,
    })
}

pub(crate) async fn memory() -> World<Memory> {
    with_policy(Memory::default(), Raw::None, 1, "")
        .await
        .unwrap()
}

pub(crate) async fn sqlite() -> World<Sqlite> {
    sqlite_of(2).await
}

/// With other ids than those of the stores that are compared with it.
pub(crate) async fn sqlite_of(seed: u64) -> World<Sqlite> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("effects.db");
    let storage = Sqlite::open(file.clone()).unwrap();
    let raw = Raw::Sqlite {
        file,
        _folder: folder,
    };
    with_policy(storage, raw, seed, "").await.unwrap()
}

pub(crate) fn postgres_url() -> String {
    std::env::var("HEDDLE_TEST_POSTGRES_URL")
        .expect("HEDDLE_TEST_POSTGRES_URL is not set: run the tests through ./scripts/test")
}

/// A schema of its own for every test.
pub(crate) fn fresh_schema() -> String {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    format!("effects_{}_{nanos}", std::process::id())
}

pub(crate) async fn postgres() -> World<Postgres> {
    let (url, schema) = (postgres_url(), fresh_schema());
    let storage = Postgres::connect(&url, &schema).await.unwrap();
    with_policy(storage, Raw::Postgres { url, schema }, 3, "")
        .await
        .unwrap()
}

impl Raw {
    /// One statement past everything.
    pub(crate) async fn run(&self, sql: &str) -> Result<u64, String> {
        match self {
            Raw::None => panic!("memory has no SQL"),
            Raw::Sqlite { file, .. } => {
                let connection = rusqlite::Connection::open(file).unwrap();
                connection.busy_timeout(Duration::from_secs(10)).unwrap();
                let done = connection.execute(sql, []);
                done.map(|n| n as u64).map_err(|error| error.to_string())
            }
            Raw::Postgres { url, schema } => {
                let client = raw_client(url, schema).await;
                let done = client.execute(sql, &[]).await;
                done.map_err(|error| {
                    let db = error.as_db_error();
                    db.map_or_else(|| error.to_string(), |db| db.message().to_owned())
                })
            }
        }
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        match self {
            Raw::None => panic!("memory has no SQL"),
            Raw::Sqlite { file, .. } => {
                let connection = rusqlite::Connection::open(file).unwrap();
                connection.query_row(&sql, [], |row| row.get(0)).unwrap()
            }
            Raw::Postgres { url, schema } => {
                let client = raw_client(url, schema).await;
                client.query_one(&sql, &[]).await.unwrap().get(0)
            }
        }
    }
}

pub(crate) async fn raw_client(url: &str, schema: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let path = format!("SET search_path TO {schema}");
    client.batch_execute(&path).await.unwrap();
    client
}

/// Back to the step before this one, as a store of an earlier version is; `undo` is what the later ones have made (but for the
/// newest one of SQLite, which every earlier store is without). Nobody
/// may have a file open.
pub(crate) async fn taken_back<S>(w: &World<S>, step: i64, undo: &[&str]) {
    match &w.raw {
        Raw::None => panic!("memory has no steps"),
        Raw::Sqlite { file, .. } => {
            let connection = rusqlite::Connection::open(file).unwrap();
            let before = format!(
                "DROP TRIGGER effect_migration_keep; DELETE FROM _migrations WHERE version >= {step};
                ALTER TABLE effect_waiting DROP COLUMN digest;
                {}; PRAGMA user_version = {};
                CREATE TRIGGER effect_migration_keep BEFORE DELETE ON _migrations
    BEGIN SELECT RAISE(ABORT, '_migrations is append-only'); END",
                undo.join("; "),
                step - 1
            );
            connection.execute_batch(&before).unwrap();
        }
        Raw::Postgres { .. } => {
            let version = format!("DELETE FROM effect_migration WHERE version >= {step}");
            without_references(w, "effect_migration", &version).await;
            for later in undo {
                w.raw.run(later).await.unwrap();
            }
        }
    }
}

/// As a disk changes it, which knows of no triggers and no references.
pub(crate) async fn without_references<S>(w: &World<S>, table: &str, statement: &str) {
    match &w.raw {
        Raw::None => panic!("memory has no disk"),
        Raw::Sqlite { file, .. } => {
            let connection = rusqlite::Connection::open(file).unwrap();
            let sql =
                "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1";
            let mut all = connection.prepare(sql).unwrap();
            let made = all.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)));
            let made: Vec<(String, String)> = made.unwrap().map(Result::unwrap).collect();
            connection
                .execute_batch("PRAGMA foreign_keys = OFF")
                .unwrap();
            for (name, _) in &made {
                let drop = format!("DROP TRIGGER {name}");
                connection.execute_batch(&drop).unwrap();
            }
            assert!(
                connection.execute(statement, []).unwrap() > 0,
                "{statement}"
            );
            for (_, sql) in &made {
                connection.execute_batch(sql).unwrap();
            }
        }
        Raw::Postgres { url, schema } => {
            let client = raw_client(url, schema).await;
            let bare = "SET session_replication_role = replica";
            client.batch_execute(bare).await.unwrap();
            assert!(
                client.execute(statement, &[]).await.unwrap() > 0,
                "{statement}"
            );
        }
    }
}

pub(crate) fn person() -> Caller {
    Caller::new("alice", "alice")
}

pub(crate) fn agent() -> Caller {
    Caller::new("planner", "alice")
}

/// Another one, in the same home.
pub(crate) fn worker() -> Caller {
    Caller::new("worker", "alice")
}

/// The agent, with an id of its own for the request; `nth` stands for what it asks.
pub(crate) fn calling(id: &str, nth: u8) -> Caller {
    let call = Call {
        id: id.to_owned(),
        fingerprint: [nth; 32],
    };
    Caller {
        call: Some(call),
        ..agent()
    }
}

pub(crate) fn effect(key: &str) -> Effect {
    Effect::new(key, "migrate", "prod", &"0".repeat(64), "r1").unwrap()
}

pub(crate) fn key(text: &str) -> LogicalKey {
    LogicalKey::parse(text).unwrap()
}

pub(crate) fn ended(exit_code: i32) -> Outcome {
    Outcome {
        exit_code: Some(exit_code),
        stdout: "done\n".into(),
        stderr: String::new(),
        truncated: false,
    }
}

impl<S: Storage> World<S> {
    /// Asks as the agent; the envelope's id.
    pub(crate) async fn request(&self, effect: &Effect) -> String {
        let applied = self
            .registrar
            .request(effect.clone(), &agent())
            .await
            .unwrap();
        let live = applied.facts.live_envelope(self.registrar.now());
        live.expect("a live envelope").row.envelope_id.clone()
    }

    pub(crate) async fn approve(&self, envelope: &str) -> Nonce {
        let approved = self
            .registrar
            .approve(envelope, &person(), Purpose::Register, None)
            .await;
        approved.unwrap().unwrap().nonce.expect("shown once")
    }

    /// A good nonce for this effect.
    pub(crate) async fn nonce(&self, effect: &Effect) -> Nonce {
        let envelope = self.request(effect).await;
        self.approve(&envelope).await
    }

    /// Registers as the agent, who cannot approve.
    pub(crate) async fn register(&self, effect: &Effect, nonce: Option<&Nonce>) -> Applied {
        self.try_register(effect, nonce, None).await.unwrap()
    }

    pub(crate) async fn try_register(
        &self,
        effect: &Effect,
        nonce: Option<&Nonce>,
        attempt: Option<&str>,
    ) -> Result<Applied, StorageError> {
        self.register_as(&agent(), effect, nonce, attempt).await
    }

    pub(crate) async fn register_as(
        &self,
        by: &Caller,
        effect: &Effect,
        nonce: Option<&Nonce>,
        attempt: Option<&str>,
    ) -> Result<Applied, StorageError> {
        let ask = RegisterAsk {
            effect: effect.clone(),
            approval: None,
            nonce: nonce.cloned(),
            said_attempt: attempt.map(str::to_owned),
            verify: None,
            command_hash: None,
        };
        self.registrar.register(ask, by).await
    }

    /// Registered with a nonce of its own.
    pub(crate) async fn registered(&self, key: &str) -> Applied {
        let effect = effect(key);
        let nonce = self.nonce(&effect).await;
        let applied = self.register(&effect, Some(&nonce)).await;
        assert_eq!((applied.kind, applied.code), (Kind::Fresh, None));
        applied
    }

    pub(crate) async fn facts(&self, of: &str) -> Facts {
        self.registrar.facts(&key(of)).await.unwrap()
    }

    pub(crate) fn pass(&self, by: Duration) {
        self.clock.advance(by);
        assert!(self.clock.wall() > START);
    }
}

pub(crate) fn refused(applied: &Applied, code: Code) {
    assert_eq!((applied.kind, applied.code), (Kind::Refused, Some(code)));
}

pub(crate) fn prior(applied: &Applied, code: Code) {
    assert_eq!((applied.kind, applied.code), (Kind::Prior, Some(code)));
}
