//! The tables in SQLite, behind the one group-commit writer of `heddle-sqlite`.
//!
//! A batch is one job of the writer, which merges jobs of all connections into one transaction; a
//! savepoint around each message undoes that message alone.

mod accept;
mod ages;
mod claims;
mod columns;
mod deliveries;
#[cfg(test)]
mod dump;
mod effects;
mod error;
mod expiry;
mod grants;
mod health;
mod held;
mod history;
mod log;
mod look;
mod members;
mod mend;
mod orphans;
mod parting;
mod presence;
mod queues;
mod retention;
mod roster;
mod schema;
mod schema_members;
mod schema_v2;
mod schema_v3;
mod snapshots;
mod story;
#[cfg(test)]
mod tests;
mod traffic;
mod upkeep;
mod uploads;

use std::sync::Arc;

pub use health::condition;
use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{MemberName, MeshName, TopicName};
use heddle_core::pressure::log_pages;
use heddle_sqlite::{Database, LogBounds, WriteError};
pub use heddle_sqlite::{Durability, OpenError, Options, Stats};
use rusqlite::Connection;

use super::contract::Storage;
use super::error::StorageError;
use super::parts::Parts;
use super::rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, HistoryRow, Look, NewMessage, PageLimit,
    Roster, SendId,
};
use super::wakes::Wakes;
use claims::Claims;
use error::JobError;

/// Cheap to clone; the last clone stops the writer.
#[derive(Clone)]
pub struct SqliteStorage {
    database: Database,
    log_bounds: Arc<LogBounds>,
    claims: Claims,
}

impl SqliteStorage {
    /// Opens the file, creates it if it is missing, and brings its schema up to date. Blocks.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let log_bounds = Arc::clone(&options.log_bounds);
        let claims = Claims::of(&options);
        let database = Database::open(options, &schema::MIGRATIONS)?;
        Ok(Self {
            database,
            log_bounds,
            claims,
        })
    }

    /// The same for the one that holds the folder: a damaged file is refused with its bytes unchanged.
    pub fn open_checked(options: Options) -> Result<Self, OpenError> {
        health::check(&options)?;
        Self::open(options)
    }

    /// Finishes what is queued and closes the file. Blocks until that is done.
    pub fn stop(&self) {
        self.database.stop();
        self.claims.give_all_back();
    }

    /// Why no write is taken any more, if that is so.
    pub fn is_poisoned(&self) -> Option<String> {
        self.database.is_poisoned()
    }

    /// The same, after a look whether the file that is open is still the one in its place.
    pub fn look_at_place(&self) -> Option<String> {
        self.database.look_at_place()
    }

    /// Whether another process keeps this one from writing now.
    pub async fn is_held(&self) -> bool {
        self.database.is_held().await
    }

    pub fn stats(&self) -> Stats {
        self.database.stats()
    }

    /// The log stays as short as a disk with this much room wants it.
    pub fn bound_log(&self, free_bytes: u64) {
        let (idle_pages, hard_pages) = log_pages(free_bytes);
        self.log_bounds.set(idle_pages, hard_pages);
    }

    /// From now on the file grows by no more than this: a message that needs more is told that the disk is full.
    /// `None` lets it grow as it likes.
    pub async fn bound_growth(&self, bytes: Option<u64>) -> Result<(), StorageError> {
        let bounded = self.database.write_relaxed(move |connection| {
            Ok::<_, JobError>(heddle_sqlite::bound_growth(connection, bytes)?)
        });
        Ok(bounded.await?)
    }

    /// A write on a mesh that exists.
    async fn write<T, F>(&self, mesh: MeshId, job: F) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, JobError> + Send + 'static,
    {
        let written = self.database.write(move |connection| {
            roster::require_mesh(connection, mesh)?;
            job(connection)
        });
        Ok(written.await?)
    }

    /// A read on a mesh that exists.
    async fn read<T, F>(&self, mesh: MeshId, job: F) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, JobError> + Send + 'static,
    {
        let read = self.database.read(move |connection| {
            roster::require_mesh(connection, mesh)?;
            job(connection)
        });
        Ok(read.await?)
    }

    /// The same for a few rows by their key, which the caller reads where it stands.
    async fn read_few<T, F>(&self, mesh: MeshId, job: F) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, JobError> + Send + 'static,
    {
        let read = self.database.read_few(move |connection| {
            roster::require_mesh(connection, mesh)?;
            job(connection)
        });
        Ok(read.await?)
    }
}

impl Wakes for SqliteStorage {}

impl Parts for SqliteStorage {}

impl Storage for SqliteStorage {
    async fn ensure_mesh(&self, mesh: MeshId, name: &MeshName) -> Result<bool, StorageError> {
        let name = name.clone();
        let written = self
            .database
            .write(move |connection| roster::ensure_mesh(connection, mesh, &name));
        Ok(written.await?)
    }

    async fn mesh_named(
        &self,
        name: &MeshName,
        fresh: MeshId,
    ) -> Result<(MeshId, bool), StorageError> {
        let name = name.clone();
        let written = self
            .database
            .write(move |connection| roster::mesh_named(connection, &name, fresh));
        Ok(written.await?)
    }

    async fn mesh_name(&self, mesh: MeshId) -> Result<MeshName, StorageError> {
        self.read(mesh, move |c| roster::mesh_name(c, mesh)).await
    }

    async fn ensure_member(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
    ) -> Result<bool, StorageError> {
        let name = name.clone();
        self.write(mesh, move |c| roster::ensure_member(c, mesh, member, &name))
            .await
    }

    async fn register_agent(&self, mesh: MeshId, agent: &Party) -> Result<bool, StorageError> {
        let agent = agent.clone();
        self.write(mesh, move |c| roster::register_agent(c, mesh, &agent))
            .await
    }

    async fn create_topic(&self, mesh: MeshId, topic: &TopicName) -> Result<bool, StorageError> {
        let topic = topic.clone();
        self.write(mesh, move |c| roster::create_topic(c, mesh, &topic))
            .await
    }

    async fn subscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        let (topic, agent) = (topic.clone(), agent.clone());
        self.write(mesh, move |c| roster::subscribe(c, mesh, &topic, &agent))
            .await
    }

    async fn unsubscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> Result<bool, StorageError> {
        let (topic, agent) = (topic.clone(), agent.clone());
        self.write(mesh, move |c| roster::unsubscribe(c, mesh, &topic, &agent))
            .await
    }

    async fn roster(&self, mesh: MeshId) -> Result<Roster, StorageError> {
        self.read(mesh, move |c| roster::read(c, mesh)).await
    }

    async fn known(&self, mesh: MeshId, ids: Vec<SendId>) -> Result<Vec<Look>, StorageError> {
        self.read_few(mesh, move |c| look::known(c, mesh, &ids))
            .await
    }

    async fn status(&self, mesh: MeshId, id: SendId) -> Result<Option<Consumed>, StorageError> {
        // A write that changes nothing: it stands in line behind every accept that is queued.
        self.write(mesh, move |c| Ok(look::Consumption::on(c, mesh)?.of(&id)?))
            .await
    }

    async fn accept(
        &self,
        mesh: MeshId,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Accepted>, StorageError> {
        let written = self
            .database
            .write(move |connection| accept::accept(connection, mesh, &messages));
        match written.await {
            Err(WriteError::Job(JobError::Only(reason))) => Ok(vec![Accepted::Failed(reason)]),
            other => Ok(other?),
        }
    }

    async fn deliveries_after(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: DeliveryCursor,
        limit: PageLimit,
    ) -> Result<Vec<Delivery>, StorageError> {
        self.read_few(mesh, move |c| {
            deliveries::after(c, mesh, member, &after, limit)
        })
        .await
    }

    async fn ack(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Ack>,
        at: WallMs,
    ) -> Result<usize, StorageError> {
        self.write(mesh, move |c| deliveries::ack(c, mesh, member, &items, at))
            .await
    }

    async fn epoch(&self, mesh: MeshId) -> Result<u64, StorageError> {
        let line = self.read(mesh, move |c| Ok(history::Line::of(c, mesh)?));
        line.await?
            .map(|line| line.epoch)
            .ok_or(StorageError::UnknownMesh(mesh))
    }

    async fn raise_epoch_beyond(
        &self,
        mesh: MeshId,
        seen: HistoryId,
    ) -> Result<bool, StorageError> {
        self.write(mesh, move |c| roster::raise_epoch_beyond(c, mesh, seen))
            .await
    }

    async fn history_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        rows_max: usize,
    ) -> Result<Vec<HistoryRow>, StorageError> {
        self.read(mesh, move |c| history::after(c, mesh, after, rows_max))
            .await
    }
}
