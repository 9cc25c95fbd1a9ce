//! The tables in PostgreSQL: any number of brokers share them.
//!
//! A write stands in the line of its mesh ([`line`]), which commits many at once; a read goes straight to a
//! connection of its own. To add an operation: its statement as a const in the file of its room, then
//! `self.write(mesh, input, …)` for what changes something, `self.snapshot(input, …)` for several
//! statements that must agree, or `self.reader()` for one.

mod accept;
mod acks;
mod ages;
mod claims;
mod columns;
mod connect;
mod deliveries;
#[cfg(test)]
mod dump;
mod error;
mod exposure;
mod grants;
mod held;
mod hint_text;
mod history;
mod job;
mod line;
mod look;
mod looks;
mod members;
mod mend;
mod migrate;
mod opening;
mod orphans;
mod pace;
mod parting;
mod parts;
mod presence;
mod queues;
mod record;
mod retention;
mod roster;
mod settings;
mod snapshots;
mod sql;
mod story;
#[cfg(test)]
mod tests;
mod tls;
mod traffic;
mod trial;
mod upkeep;
mod uploads;
mod wires;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool, Transaction};
use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{MemberName, MeshName, TopicName};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_postgres::IsolationLevel;

use super::contract::Storage;
use super::error::StorageError;
use super::job_locks::JobLocks;
use super::rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, HistoryRow, Look, NewMessage, PageLimit,
    Roster, SendId,
};
use connect::Pools;
pub use connect::PostgresOptions;
use error::JobError;
use job::{Running, Write};
use line::{Lines, Waiting};
use looks::Looks;
pub use migrate::Migrated;
pub use opening::{OpenError, Opening};
use tls::Tls;
use wires::Wires;

/// How long a read may take, whatever the server or the network do.
const READ_WAIT: Duration = Duration::from_secs(20);
const TAKES_WRITES: &str =
    "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'";

/// For a look at everything: no bound in time, and the plans of a report. IMPORTANT: no loop over loops. A database that was just
/// restored has no statistics, so its planner takes a mesh for a few rows and would hold all of a table against each row of another.
const SURVEY: &str = "SET LOCAL statement_timeout = 0; SET LOCAL enable_seqscan = on; SET LOCAL enable_nestloop = off; \
    SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL enable_material = on";

/// Cheap to clone.
#[derive(Clone)]
pub struct PostgresStorage {
    pools: Arc<Pools>,
    lines: Arc<Lines>,
    looks: Arc<Looks>,
    wires: Arc<Wires>,
    claims: JobLocks<ClientWrapper>,
    migrated: Migrated,
    exposed: Vec<&'static str>,
}

impl PostgresStorage {
    /// Looks whether the server keeps what it is given, brings the tables up to date, and opens the pools.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        Self::open_for(options, Opening::Make).await
    }

    /// The same, for those who take the tables as they are, too.
    pub async fn open_for(options: &PostgresOptions, opening: Opening) -> Result<Self, OpenError> {
        let schema = migrate::checked_name(&options.schema)?;
        let mut config = connect::config(options)?;
        let tls = Tls::choose(&mut config, options.ca_file.as_deref())?;
        let pools = connect::pools(&config, &tls)?;
        let first = pools.writers.get().await;
        let mut client = first.map_err(|error| opening::failed(&error, &config))?;
        let migrated = match opening {
            Opening::Make => migrate::run(&mut client, schema).await?,
            Opening::Change => {
                migrate::found(&client, schema).await?;
                migrate::run(&mut client, schema).await?
            }
            Opening::Look => migrate::current(&client, schema).await?,
        };
        let exposed = exposure::of(&client, &config)
            .await
            .map_err(|error| OpenError::Unreachable(error::words(&error)))?;
        drop(client);
        Ok(Self {
            lines: Lines::new(pools.writers.clone()),
            looks: Looks::new(pools.readers.clone()),
            wires: Wires::start(config, tls, format!("heddle_{schema}")),
            pools: Arc::new(pools),
            claims: JobLocks::default(),
            migrated,
            exposed,
        })
    }

    /// Who else could reach the tables, in sentences for whoever starts a broker (T-32); nothing where nobody can.
    pub fn exposed(&self) -> &[&'static str] {
        &self.exposed
    }

    /// What opening did to the tables.
    pub fn migrated(&self) -> Migrated {
        self.migrated
    }

    /// Whether the database answers now, and would take a write: one that was made a standby takes none, nor does one whose
    /// disk is full or whose tables somebody holds.
    pub async fn ping(&self) -> Result<(), StorageError> {
        let mut client = self.reader().await?;
        let asked = timeout(READ_WAIT, client.query_one(TAKES_WRITES, &[])).await;
        let asked = asked.map_err(|_| JobError::TimedOut(READ_WAIT.as_secs()))?;
        let takes_writes: bool = asked
            .and_then(|row| row.try_get(0))
            .map_err(JobError::from)?;
        if takes_writes {
            return self.lines.trouble().look(&mut client).await;
        }
        let why =
            "the database is read-only by now: a standby, or default_transaction_read_only is on";
        Err(StorageError::Unavailable(why.to_owned()))
    }

    /// Connections for the tables of the effects, which are no tables of ours; none is open before its use.
    pub fn effects_pool(&self) -> Pool {
        self.pools.effects.clone()
    }

    /// Finishes what is in line and closes the connections.
    pub async fn stop(&self) {
        self.looks.stop().await;
        self.lines.stop().await;
        self.claims.give_all_back();
        self.wires.stop().await;
        self.pools.writers.close();
        self.pools.readers.close();
        self.pools.effects.close();
    }

    async fn writer(&self) -> Result<Object, StorageError> {
        let client = self.pools.writers.get().await;
        Ok(client.map_err(JobError::from)?)
    }

    /// A connection for one statement.
    async fn reader(&self) -> Result<Object, StorageError> {
        let client = self.pools.readers.get().await;
        Ok(client.map_err(JobError::from)?)
    }

    /// A write on a mesh that exists: it takes its place in line now, and runs whether or not anybody waits.
    fn write<D, F, T>(
        &self,
        mesh: MeshId,
        input: D,
        run: F,
    ) -> impl Future<Output = Result<T, StorageError>> + Send
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'t> Fn(&'t Transaction<'t>, &'t D) -> Running<'t, T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job = Write {
            input,
            run,
            output: None,
            answer: sender,
        };
        let entered = self.lines.enter(mesh, Waiting::Job(Box::new(job)));
        async move {
            entered?;
            line::awaited(receiver).await
        }
    }

    /// A write about the names of meshes. Not in a mesh's line: there may be no mesh yet. A lock of its own keeps names apart.
    /// It runs whether or not anybody waits.
    async fn write_names<D, F, T>(&self, input: D, run: F) -> Result<T, StorageError>
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
        F: for<'t> Fn(&'t Transaction<'t>, &'t D) -> Running<'t, T> + Send + Sync + 'static,
    {
        let this = self.clone();
        let written = tokio::spawn(async move {
            let mut client = this.writer().await?;
            let transaction = client.transaction().await.map_err(JobError::from)?;
            let answer = run(&transaction, &input).await?;
            transaction.commit().await.map_err(JobError::from)?;
            Ok(answer)
        });
        let lost = |_| StorageError::Unavailable("the write was given up".to_owned());
        written.await.map_err(lost)?
    }

    /// Several statements that see the same rows. Changes nothing.
    async fn snapshot<D, F, T>(&self, input: D, run: F) -> Result<T, StorageError>
    where
        D: Send + Sync,
        F: for<'t> Fn(&'t Transaction<'t>, &'t D) -> Running<'t, T> + Send,
    {
        let mut client = self.reader().await?;
        let read = timeout(READ_WAIT, in_snapshot(&mut client, &input, run, None)).await;
        match read {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                drop(Object::take(client));
                Err(JobError::TimedOut(READ_WAIT.as_secs()).into())
            }
        }
    }

    /// The same for a look at everything, which takes its time.
    async fn survey<D, F, T>(&self, input: D, run: F) -> Result<T, StorageError>
    where
        D: Send + Sync,
        F: for<'t> Fn(&'t Transaction<'t>, &'t D) -> Running<'t, T> + Send,
    {
        let mut client = self.reader().await?;
        Ok(in_snapshot(&mut client, &input, run, Some(SURVEY)).await?)
    }
}

async fn in_snapshot<D, F, T>(
    client: &mut Object,
    input: &D,
    run: F,
    settings: Option<&str>,
) -> Result<T, JobError>
where
    F: for<'t> Fn(&'t Transaction<'t>, &'t D) -> Running<'t, T>,
{
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    if let Some(settings) = settings {
        transaction.batch_execute(settings).await?;
    }
    let answer = run(&transaction, input).await?;
    transaction.commit().await?;
    Ok(answer)
}

impl Storage for PostgresStorage {
    async fn ensure_mesh(&self, mesh: MeshId, name: &MeshName) -> Result<bool, StorageError> {
        let name = name.clone();
        self.write_names((mesh, name), |transaction, (mesh, name)| {
            Box::pin(roster::ensure_mesh(transaction, *mesh, name))
        })
        .await
    }

    async fn mesh_named(
        &self,
        name: &MeshName,
        fresh: MeshId,
    ) -> Result<(MeshId, bool), StorageError> {
        let name = name.clone();
        self.write_names((name, fresh), |transaction, (name, fresh)| {
            Box::pin(roster::mesh_named(transaction, name, *fresh))
        })
        .await
    }

    async fn mesh_name(&self, mesh: MeshId) -> Result<MeshName, StorageError> {
        let client = self.reader().await?;
        Ok(roster::mesh_name(&client, mesh).await?)
    }

    async fn ensure_member(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
    ) -> Result<bool, StorageError> {
        let input = (mesh, member, name.clone());
        self.write(mesh, input, |tx, (mesh, member, name)| {
            Box::pin(roster::ensure_member(tx, *mesh, *member, name))
        })
        .await
    }

    async fn register_agent(&self, mesh: MeshId, agent: &Party) -> Result<bool, StorageError> {
        self.write(mesh, (mesh, agent.clone()), |tx, (mesh, agent)| {
            Box::pin(roster::register_agent(tx, *mesh, agent))
        })
        .await
    }

    async fn create_topic(&self, mesh: MeshId, topic: &TopicName) -> Result<bool, StorageError> {
        self.write(mesh, (mesh, topic.clone()), |tx, (mesh, topic)| {
            Box::pin(roster::create_topic(tx, *mesh, topic))
        })
        .await
    }

    async fn subscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        let input = (mesh, topic.clone(), agent.clone());
        self.write(mesh, input, |tx, (mesh, topic, agent)| {
            Box::pin(roster::subscribe(tx, *mesh, topic, agent))
        })
        .await
    }

    async fn unsubscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        let input = (mesh, topic.clone(), agent.clone());
        self.write(mesh, input, |tx, (mesh, topic, agent)| {
            Box::pin(roster::unsubscribe(tx, *mesh, topic, agent))
        })
        .await
    }

    async fn roster(&self, mesh: MeshId) -> Result<Roster, StorageError> {
        self.snapshot(mesh, |tx, mesh| Box::pin(roster::read(tx, *mesh)))
            .await
    }

    async fn known(&self, mesh: MeshId, ids: Vec<SendId>) -> Result<Vec<Look>, StorageError> {
        self.looks.known(mesh, ids).await
    }

    async fn status(&self, mesh: MeshId, id: SendId) -> Result<Option<Consumed>, StorageError> {
        // A write that changes nothing: it stands in line behind every accept, those of other brokers too.
        self.write(mesh, (mesh, id), |tx, (mesh, id)| {
            Box::pin(look::status(tx, *mesh, id))
        })
        .await
    }

    async fn accept(
        &self,
        mesh: MeshId,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, StorageError> {
        let (work, answer) = line::accept_job(messages);
        self.lines.enter(mesh, work)?;
        line::awaited(answer).await
    }

    async fn deliveries_after(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: DeliveryCursor,
        limit: PageLimit,
    ) -> Result<Vec<Delivery>, StorageError> {
        let client = self.reader().await?;
        let page = deliveries::after(&client, mesh, member, &after, limit).await?;
        drop(client);
        self.lines.seen().note_read(mesh, &page);
        Ok(page)
    }

    async fn ack(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Ack>,
        at: WallMs,
    ) -> Result<usize, StorageError> {
        let (work, answer) = line::ack_job(member, items, at);
        self.lines.enter(mesh, work)?;
        line::awaited(answer).await
    }

    async fn epoch(&self, mesh: MeshId) -> Result<u64, StorageError> {
        let client = self.reader().await?;
        Ok(history::epoch(&client, mesh).await?)
    }

    async fn raise_epoch_beyond(
        &self,
        mesh: MeshId,
        seen: HistoryId,
    ) -> Result<bool, StorageError> {
        self.write(mesh, (mesh, seen), |tx, (mesh, seen)| {
            Box::pin(roster::raise_epoch_beyond(tx, *mesh, *seen))
        })
        .await
    }

    async fn history_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        rows_max: usize,
    ) -> Result<Vec<HistoryRow>, StorageError> {
        let client = self.reader().await?;
        Ok(history::after(&client, mesh, after, rows_max).await?)
    }
}
