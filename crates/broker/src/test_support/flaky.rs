//! A store that fails when told, before or after the commit of the store inside it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{MemberName, MeshName, TopicName};
use tokio::sync::Notify;

use super::Dump;
use crate::storage::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, HistoryRow, Look, NewMessage, PageLimit,
    Roster, SendId, Storage, StorageError,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Nothing is written, and this is the answer.
    BeforeCommit(StorageError),
    /// Everything is written, and this is the answer all the same.
    AfterCommit(StorageError),
    /// The look-up of B0 fails.
    Look(StorageError),
    /// An accept waits for [`Flaky::release`] before it commits.
    Hold,
}

pub(crate) struct Flaky<S> {
    pub(super) inner: Arc<S>,
    fault: Mutex<Fault>,
    accepts: AtomicUsize,
    released: Notify,
}

type Answer<T> = Result<T, StorageError>;

impl<S> Flaky<S> {
    pub(crate) fn around(inner: Arc<S>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fault: Mutex::new(Fault::None),
            accepts: AtomicUsize::new(0),
            released: Notify::new(),
        })
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// Lets one held accept go on.
    pub(crate) fn release(&self) {
        self.released.notify_one();
    }

    /// Lets every held accept go on.
    pub(crate) fn release_all(&self) {
        self.released.notify_waiters();
    }

    /// Waits until so many accepts were asked for.
    pub(crate) async fn accepts_reached(&self, count: usize) {
        while self.accept_count() < count {
            tokio::task::yield_now().await;
        }
    }

    fn fault(&self) -> Fault {
        self.fault.lock().unwrap().clone()
    }

    /// How many accept transactions were asked for.
    pub(crate) fn accept_count(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }
}

impl<S: Dump> Dump for Flaky<S> {
    async fn dump(&self) -> Vec<String> {
        self.inner.dump().await
    }

    async fn spoil_telemetry(&self) {
        self.inner.spoil_telemetry().await;
    }
}

impl<S: Storage> Storage for Flaky<S> {
    async fn ensure_mesh(&self, mesh: MeshId, name: &MeshName) -> Answer<bool> {
        self.inner.ensure_mesh(mesh, name).await
    }

    async fn mesh_named(&self, name: &MeshName, fresh: MeshId) -> Answer<(MeshId, bool)> {
        self.inner.mesh_named(name, fresh).await
    }

    async fn mesh_name(&self, mesh: MeshId) -> Answer<MeshName> {
        self.inner.mesh_name(mesh).await
    }

    async fn ensure_member(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
    ) -> Answer<bool> {
        self.inner.ensure_member(mesh, member, name).await
    }

    async fn register_agent(&self, mesh: MeshId, agent: &Party) -> Answer<bool> {
        self.inner.register_agent(mesh, agent).await
    }

    async fn create_topic(&self, mesh: MeshId, topic: &TopicName) -> Answer<bool> {
        self.inner.create_topic(mesh, topic).await
    }

    async fn subscribe(&self, mesh: MeshId, topic: &TopicName, agent: &Party) -> Answer<bool> {
        self.inner.subscribe(mesh, topic, agent).await
    }

    async fn unsubscribe(&self, mesh: MeshId, topic: &TopicName, agent: &Party) -> Answer<bool> {
        self.inner.unsubscribe(mesh, topic, agent).await
    }

    async fn roster(&self, mesh: MeshId) -> Answer<Roster> {
        self.inner.roster(mesh).await
    }

    async fn known(&self, mesh: MeshId, ids: Vec<SendId>) -> Answer<Vec<Look>> {
        if let Fault::Look(error) = self.fault() {
            return Err(error);
        }
        self.inner.known(mesh, ids).await
    }

    async fn status(&self, mesh: MeshId, id: SendId) -> Answer<Option<Consumed>> {
        self.inner.status(mesh, id).await
    }

    async fn accept(&self, mesh: MeshId, messages: Vec<NewMessage>) -> Answer<Vec<Accepted>> {
        self.accepts.fetch_add(1, Ordering::SeqCst);
        match self.fault() {
            Fault::BeforeCommit(error) => Err(error),
            Fault::AfterCommit(error) => {
                self.inner.accept(mesh, messages).await.unwrap();
                Err(error)
            }
            Fault::Hold => {
                self.released.notified().await;
                self.inner.accept(mesh, messages).await
            }
            Fault::None | Fault::Look(_) => self.inner.accept(mesh, messages).await,
        }
    }

    async fn deliveries_after(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: DeliveryCursor,
        limit: PageLimit,
    ) -> Answer<Vec<Delivery>> {
        self.inner
            .deliveries_after(mesh, member, after, limit)
            .await
    }

    async fn ack(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Ack>,
        at: WallMs,
    ) -> Answer<usize> {
        self.inner.ack(mesh, member, items, at).await
    }

    async fn epoch(&self, mesh: MeshId) -> Answer<u64> {
        self.inner.epoch(mesh).await
    }

    async fn raise_epoch_beyond(&self, mesh: MeshId, seen: HistoryId) -> Answer<bool> {
        self.inner.raise_epoch_beyond(mesh, seen).await
    }

    async fn history_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        rows_max: usize,
    ) -> Answer<Vec<HistoryRow>> {
        self.inner.history_after(mesh, after, rows_max).await
    }
}
