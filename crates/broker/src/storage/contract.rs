//! What the broker needs from a store, and what every store promises.
//!
//! **One mesh, one line.** Accepts of a mesh are decided one after the other. Each sees everything
//! that was accepted before it, across batches and connections, and takes its place in history
//! inside its transaction: commit order is `(epoch, seq)` order, and no reader ever sees a gap (C4).
//!
//! **All or nothing, per message.** A message has its five effects (dedupe, message, history,
//! deliveries, mentions) or none of them, whatever happens (BR-01, BR-02). One that fails takes no
//! neighbour of its batch along and leaves no hole in the sequence.
//!
//! **Answered means durable.** `Ok` is given after the commit. After `Unavailable` the outcome is
//! unknown and only a look-up tells; after every other error nothing was written.
//!
//! **First polled, first decided.** A write takes its place in line when its future is first
//! polled, and from then on it runs whether or not anybody waits for it.
//!
//! **Meshes are apart.** No row, key or answer of one mesh depends on another (BR-17). Every
//! operation but `ensure_mesh` answers `UnknownMesh` for a mesh that was never ensured.
//!
//! Times and ids are handed in; a store knows no clock.
//!
//! The log, members and what they grant each other, presence, queues, snapshots and their uploads, parts of files between brokers, the story of a message and upkeep are traits of their own, with their promises
//! beside them; a store is all of them.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{HistoryId, MemberId, MeshId, Party};
use heddle_core::names::{MemberName, MeshName, TopicName};

use super::error::StorageError;
use super::log::Log;
use super::parts::Parts;
use super::presence::Presence;
use super::queues::Queues;
use super::rows::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, HistoryRow, Look, NewMessage, PageLimit,
    Roster, SendId,
};
use super::snapshots::Snapshots;
use super::story::Story;
use super::upkeep::Upkeep;
use super::uploads::Uploads;
use super::wakes::Wakes;
use crate::members::{Grants, Members};

/// Shorthand for what every operation returns.
pub(super) type Answer<T> = Result<T, StorageError>;

pub trait Storage:
    Grants + Log + Members + Parts + Presence + Queues + Snapshots + Story + Upkeep + Uploads + Wakes
{
    /// Makes the mesh exist, at epoch 1, and names it; a name that another mesh has gets a number behind
    /// it. True if that changed anything.
    fn ensure_mesh(
        &self,
        mesh: MeshId,
        name: &MeshName,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// The mesh of that name, and whether it was made now, under this id. However many ask at once, at whichever broker,
    /// there is one of that name, and one of them made it.
    fn mesh_named(
        &self,
        name: &MeshName,
        fresh: MeshId,
    ) -> impl Future<Output = Answer<(MeshId, bool)>> + Send;

    /// What the mesh is called here.
    fn mesh_name(&self, mesh: MeshId) -> impl Future<Output = Answer<MeshName>> + Send;

    /// Makes the member exist and names it; a renamed member keeps its id and all that is its own.
    /// True if that changed anything.
    fn ensure_member(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Gives the member a mailbox. True if it is new.
    fn register_agent(
        &self,
        mesh: MeshId,
        agent: &Party,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// True if it is new.
    fn create_topic(
        &self,
        mesh: MeshId,
        topic: &TopicName,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Subscribes a registered agent, and creates the topic if it is missing. True if it was not
    /// subscribed before. A topic that has `RECIPIENTS_MAX` subscribers takes no further one (T-29).
    fn subscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// True if it was subscribed. Deliveries that wait for it stay.
    fn unsubscribe(
        &self,
        mesh: MeshId,
        topic: &TopicName,
        agent: &Party,
    ) -> impl Future<Output = Answer<bool>> + Send;

    fn roster(&self, mesh: MeshId) -> impl Future<Output = Answer<Roster>> + Send;

    /// B0: what the store holds of these ids, in their order, from one snapshot that has every
    /// accept answered before the call. Writes nothing.
    fn known(
        &self,
        mesh: MeshId,
        ids: Vec<SendId>,
    ) -> impl Future<Output = Answer<Vec<Look>>> + Send;

    /// The same for one id, but in line with the writes: every accept that was polled before this
    /// call is decided before it is answered. Whoever gives up on a message asks here, because
    /// "absent" must not turn into "committed" a moment later (C5, C32).
    fn status(
        &self,
        mesh: MeshId,
        id: SendId,
    ) -> impl Future<Output = Answer<Option<Consumed>>> + Send;

    /// B2 and B3 for a batch: one answer for each message, in order. Deliveries go to the agents
    /// that the transaction sees subscribed (the sender too, if it is one of them), or to the one
    /// agent of a direct message, each once (BR-03), but not to a member that has not granted the sender
    /// what the message needs (`Grants`); mentions to those that exist. A message to a
    /// queue gets one row there, and the queue is made if it is missing. An op goes to the log, which
    /// always exists; one that names another epoch than the running one is not accepted.
    fn accept(
        &self,
        mesh: MeshId,
        messages: Vec<NewMessage>,
    ) -> impl Future<Output = Answer<Vec<Accepted>>> + Send;

    /// Deliveries of this member that wait to be held by it, after the cursor: `now` before `next`
    /// before `low`, within one priority in the order of `(epoch, seq, agent)`. An empty page means
    /// that there is none. A cursor that is moved past every row of every page skips nothing, however
    /// accepts come between: new rows stand behind the old ones of their priority.
    fn deliveries_after(
        &self,
        mesh: MeshId,
        member: MemberId,
        after: DeliveryCursor,
        limit: PageLimit,
    ) -> impl Future<Output = Answer<Vec<Delivery>>> + Send;

    /// Marks deliveries of this member as held by it (delivered); returns how many were still
    /// waiting. Others are passed over.
    fn ack(
        &self,
        mesh: MeshId,
        member: MemberId,
        items: Vec<Ack>,
        at: WallMs,
    ) -> impl Future<Output = Answer<usize>> + Send;

    fn epoch(&self, mesh: MeshId) -> impl Future<Output = Answer<u64>> + Send;

    /// Begins a new epoch if somebody whom the caller trusts has seen a place that this history has
    /// not reached: its past was replaced by an older one, and its places would be given out twice.
    /// The leases of queues end with the epoch. True if it did.
    fn raise_epoch_beyond(
        &self,
        mesh: MeshId,
        seen: HistoryId,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// History after this place, in order.
    fn history_after(
        &self,
        mesh: MeshId,
        after: HistoryId,
        rows_max: usize,
    ) -> impl Future<Output = Answer<Vec<HistoryRow>>> + Send;
}
