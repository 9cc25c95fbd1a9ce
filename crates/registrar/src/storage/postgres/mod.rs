//! The store on PostgreSQL: any number of processes share it, and its unique keys decide their races.

mod catalogue;
mod links;
mod load;
mod migrate;
mod surface;
mod taken;
mod tx;
mod write;

use std::time::Duration;

pub use deadpool_postgres::Pool;
use deadpool_postgres::{
    Manager, ManagerConfig, PoolError, RecyclingMethod, Runtime, TimeoutType, Timeouts,
};
use heddle_core::ids::MeshId;
use tokio_postgres::error::SqlState;
use tokio_postgres::{IsolationLevel, NoTls};

use super::contract::{ListPage, ListPlace, LoggedLine, Reached, Seen, Storage};
use super::error::StorageError;
use super::expected::Expected;
use crate::authority::NonceHash;
use crate::binding::LogicalKey;
use crate::carry::{Part, Taken};
use crate::chain::{Link, Seal};
use crate::command::{Applied, Ask, Command};
use crate::facts::Facts;
use crate::kept::{Bound, Kept};
use crate::rows::{AuditRow, CallRow};
use crate::step::step;
use crate::surface_check::Surface;
use crate::tally::Tally;

use links::Linked;
use tx::Tx;

/// Each lost race means that somebody else's command went through, so there is an end to them.
const RACES_MAX: usize = 8;
const POOL_WAIT: Duration = Duration::from_secs(10);
const POOL_CONNECTIONS_MAX: usize = 16;

#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    /// What every transaction begins with: its schema, its role, its patience.
    prologue: String,
    role: Option<&'static str>,
    expected: Expected,
}

impl Postgres {
    /// Connects without TLS: to a server on this machine, or through a tunnel.
    pub async fn connect(url: &str, schema: &str) -> Result<Self, StorageError> {
        let config: tokio_postgres::Config = url
            .parse()
            .map_err(|error| StorageError::Open(format!("the database's address: {error}")))?;
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(config, NoTls, recycling);
        let timeouts = Timeouts {
            wait: Some(POOL_WAIT),
            create: Some(POOL_WAIT),
            recycle: Some(POOL_WAIT),
        };
        let pool = Pool::builder(manager)
            .max_size(POOL_CONNECTIONS_MAX)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| StorageError::Open(error.to_string()))?;
        Self::open(pool, schema).await
    }

    /// Brings the schema up to date, under a lock that one of many processes holds.
    pub async fn open(pool: Pool, schema: &str) -> Result<Self, StorageError> {
        let schema = migrate::checked_name(schema)?;
        let role = migrate::run(&pool, schema).await?;
        let prologue = migrate::prologue(schema, role);
        Ok(Self {
            pool,
            prologue,
            role,
            expected: Expected::default(),
        })
    }

    async fn connection(&self) -> Result<deadpool_postgres::Object, StorageError> {
        self.pool.get().await.map_err(|error| match error {
            // Others have them all, and give them back.
            PoolError::Timeout(TimeoutType::Wait) => StorageError::Busy,
            error => StorageError::Refused(format!("no connection: {error}")),
        })
    }

    async fn begin<'c>(
        &self,
        client: &'c mut deadpool_postgres::Object,
    ) -> Result<Tx<'c>, StorageError> {
        let transaction = client
            .build_transaction()
            .isolation_level(IsolationLevel::ReadCommitted)
            .start()
            .await?;
        transaction.batch_execute(&self.prologue).await?;
        Ok(Tx::new(transaction))
    }

    /// Whether a commit whose answer was lost took place, only a look-up tells.
    async fn committed(&self, transaction: Tx<'_>, link: Option<Link>) -> Result<(), StorageError> {
        let committed = transaction.commit().await;
        committed.map_err(|error| StorageError::Unavailable(error.to_string()))?;
        self.expected.raise(link);
        Ok(())
    }

    /// One try: None where somebody else was faster.
    async fn try_apply(
        &self,
        mesh: MeshId,
        command: &Command,
    ) -> Result<Option<Applied>, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        if matches!(command.ask, Ask::Request { .. } | Ask::Decide { .. }) {
            // "One live envelope" is not a unique key, so these stand in line.
            write::line_up(&transaction, mesh, &command.key).await?;
        }
        let call = match &command.call {
            None => None,
            Some(call) => load::call(&transaction, mesh, &command.by, &call.id).await?,
        };
        let mut facts = load::facts(&transaction, mesh, &command.key, command.ask.nonce()).await?;
        facts.call = call;
        let stepped = step(&facts, command);
        let facts = facts.with(&stepped.rows);
        let bound = Bound::to(facts.consumed.as_ref().map(|row| row.replay_key));
        for row in &stepped.rows {
            if !write::insert(&transaction, mesh, row, bound).await? {
                transaction.rollback().await?;
                return Ok(None);
            }
        }
        if !stepped.rows.is_empty() {
            let linked = Linked {
                mesh: Some(mesh),
                rows: &stepped.rows,
                more: b"",
                seal: None,
                tally: Tally::of(&command.key, &stepped.rows),
            };
            let link = links::append(&transaction, self.expected.get(), &linked).await?;
            self.committed(transaction, Some(link)).await?;
        }
        Ok(Some(Applied {
            kind: stepped.kind,
            code: stepped.code,
            facts,
        }))
    }
}

impl Storage for Postgres {
    async fn apply(&self, mesh: MeshId, mut command: Command) -> Result<Applied, StorageError> {
        for _ in 0..RACES_MAX {
            if let Some(applied) = self.try_apply(mesh, &command).await? {
                return Ok(applied);
            }
            command.ask = command.ask.after_a_lost_race();
        }
        Err(StorageError::Busy)
    }

    async fn facts(
        &self,
        mesh: MeshId,
        key: &LogicalKey,
        nonce: Option<NonceHash>,
    ) -> Result<Facts, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::facts(&transaction, mesh, key, nonce).await
    }

    async fn call(
        &self,
        mesh: MeshId,
        caller: &str,
        id: &str,
    ) -> Result<Option<CallRow>, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::call(&transaction, mesh, caller, id).await
    }

    async fn key_of(&self, mesh: MeshId, id: &str) -> Result<Option<LogicalKey>, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::key_of(&transaction, mesh, id).await
    }

    async fn list(
        &self,
        mesh: MeshId,
        after: Option<ListPlace>,
        limit: usize,
    ) -> Result<ListPage, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::list(&transaction, mesh, after.as_ref(), limit).await
    }

    async fn audit(&self, mesh: MeshId, row: AuditRow) -> Result<(), StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        write::audit(&transaction, mesh, &row).await?;
        Ok(transaction.commit().await?)
    }

    async fn log(
        &self,
        mesh: MeshId,
        key: Option<&LogicalKey>,
        page: (Option<i64>, usize),
    ) -> Result<Vec<LoggedLine>, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::log(&transaction, mesh, key, page).await
    }

    async fn reached(&self, seen: Seen) -> Result<Reached, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::reached(&transaction, seen).await
    }

    fn expect(&self, link: Option<Link>) {
        self.expected.set(link);
    }

    async fn reseal(&self, seal: Seal) -> Result<(), StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        let linked = Linked {
            mesh: None,
            rows: &[],
            more: &seal.0,
            seal: Some(seal),
            tally: Tally::default(),
        };
        let link = links::append(&transaction, self.expected.get(), &linked).await?;
        self.committed(transaction, Some(link)).await
    }

    async fn take_over(&self, mesh: MeshId, part: Part) -> Result<Taken, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        let expected = self.expected.get();
        let (taken, link) = taken::take(&transaction, mesh, &part, expected).await?;
        self.committed(transaction, link).await?;
        Ok(taken)
    }

    async fn taken(&self, mesh: MeshId) -> Result<Taken, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        taken::taken(&transaction, mesh).await
    }

    async fn kept(&self) -> Result<Kept, StorageError> {
        let mut client = self.connection().await?;
        let transaction = self.begin(&mut client).await?;
        load::kept(&transaction).await
    }

    async fn surface(&self) -> Result<Surface, StorageError> {
        let mut client = self.connection().await?;
        let mut transaction = self.begin(&mut client).await?;
        let surface = surface::look(transaction.bare(), self.role).await?;
        transaction.rollback().await?;
        Ok(surface)
    }
}

/// Before a commit every error means that nothing was written: the transaction ends with the connection.
impl From<tokio_postgres::Error> for StorageError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) if *db.code() == SqlState::DISK_FULL => Self::DiskFull,
            Some(db) => Self::Refused(format!("{} ({})", db.message(), db.code().code())),
            None => Self::Refused(error.to_string()),
        }
    }
}
