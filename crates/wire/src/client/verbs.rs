//! The routes as methods, so that no door spells a path.

use std::time::Duration;

use heddle_core::limits::{QUEUE_WAIT_MAX, VECTOR_PROVIDER_TIMEOUT_MAX};

use super::{Client, ClientError, percent_encode, target};
use crate::ipc::{
    AckAnswer, AckBody, AgentBody, AgentList, AgentView, BackupBody, BackupView, ChangeAnswer,
    ClockView, DoctorAnswer, DoctorView, DumpView, ExplainView, InboxPage, KeptPage, KeyBody,
    KnownAnswer, MeshBlockBody, MeshCreateAnswer, MeshCreateBody, MeshGrantBody, MeshInfo,
    MeshInviteAnswer, MeshInviteBody, MeshJoinAnswer, MeshJoinBody, MeshList, MeshPublishBody,
    MeshPublishView, MeshRevokeAnswer, MeshRevokeBody, MeshStandingAnswer, OpBody, OutboxPage,
    OutboxRow, PeerGrantBody, PeerGrantList, PeerGrantView, PeerList, PruneAnswer, PruneBody,
    QueueList, QueuePushBody, QueueRenewBody, QueueSettleBody, QueueTakeBody, QueueTaken,
    ReEmbedAnswer, ReEmbedBody, RecallPage, RememberBody, RequeueAnswer, RequeueBody, ResumeBody,
    SearchPage, SeenAnswer, SeenBody, SendAnswer, SendBody, SettledItems, ShownAnswer, ShownBody,
    StatePage, StateSetBody, StateView, StatusView, Story, TakeBackAnswer, TakeBackBody,
    TaskAnswer, TaskCancelBody, TaskClaimBody, TaskCreateBody, TaskPage, TaskSettleBody, TaskStory,
    ThreadPage, TopicAnswer, TopicBody, TopicList, VectorDeleteBody, VectorHits, VectorPage,
    VectorSearchBody, VectorStoreBody, Version, WarningsView,
};

/// Reading every file of a home, or writing a copy of it, may take this long.
const FILES_READ_MAX: Duration = Duration::from_secs(15 * 60);

impl Client {
    /// Sends under the id in the body. The same id again is safe, whatever happened to the first.
    pub fn send(&self, body: &SendBody) -> Result<SendAnswer, ClientError> {
        self.post("/v1/send", None, body)
    }

    /// What an id or a key stands for, whatever that is.
    pub fn story(&self, id: &str, query: &[(&str, &str)]) -> Result<Story, ClientError> {
        self.get(&format!("/v1/explain/{}", percent_encode(id)), query)
    }

    /// The whole story of a send; `query` may hold `wait` and `timeout_seconds`.
    pub fn explain(&self, id: &str, query: &[(&str, &str)]) -> Result<ExplainView, ClientError> {
        self.get(&format!("/v1/explain/{}", percent_encode(id)), query)
    }

    pub fn inbox(&self, query: &[(&str, &str)]) -> Result<InboxPage, ClientError> {
        self.get("/v1/inbox", query)
    }

    pub fn ack(&self, body: &AckBody) -> Result<AckAnswer, ClientError> {
        self.post("/v1/inbox/ack", None, body)
    }

    pub fn known(&self, query: &[(&str, &str)]) -> Result<KnownAnswer, ClientError> {
        self.get("/v1/inbox/known", query)
    }

    pub fn search(&self, query: &[(&str, &str)]) -> Result<SearchPage, ClientError> {
        self.get("/v1/inbox/search", query)
    }

    /// A reply thread, by the id of any of its messages.
    pub fn thread(&self, query: &[(&str, &str)]) -> Result<ThreadPage, ClientError> {
        self.get("/v1/inbox/thread", query)
    }

    /// These items were put before their agent.
    pub fn shown(&self, body: &ShownBody) -> Result<ShownAnswer, ClientError> {
        self.post("/v1/inbox/shown", None, body)
    }

    /// A session has been given everything up to there.
    pub fn seen(&self, body: &SeenBody) -> Result<SeenAnswer, ClientError> {
        self.post("/v1/inbox/seen", None, body)
    }

    /// `verb` is create, subscribe or unsubscribe.
    pub fn topic(&self, verb: &str, body: &TopicBody) -> Result<TopicAnswer, ClientError> {
        self.post(&format!("/v1/topic/{verb}"), None, body)
    }

    pub fn topics(&self, query: &[(&str, &str)]) -> Result<TopicList, ClientError> {
        self.get("/v1/topic/list", query)
    }

    /// Pushes under the id in the body; the same id again is safe.
    pub fn push(&self, body: &QueuePushBody) -> Result<SendAnswer, ClientError> {
        self.post("/v1/queue/push", None, body)
    }

    /// Takes work, and waits for it as long as the body says.
    pub fn take(&self, body: &QueueTakeBody) -> Result<QueueTaken, ClientError> {
        let wait = Duration::from_secs(body.wait_seconds.unwrap_or(0)).min(QUEUE_WAIT_MAX);
        self.clone()
            .waiting(wait)
            .post("/v1/queue/take", None, body)
    }

    /// `verb` is ack or release.
    pub fn settle(&self, verb: &str, body: &QueueSettleBody) -> Result<SettledItems, ClientError> {
        self.post(&format!("/v1/queue/{verb}"), None, body)
    }

    pub fn renew(&self, body: &QueueRenewBody) -> Result<SettledItems, ClientError> {
        self.post("/v1/queue/renew", None, body)
    }

    pub fn queues(&self, query: &[(&str, &str)]) -> Result<QueueList, ClientError> {
        self.get("/v1/queue/list", query)
    }

    pub fn register_agent(&self, body: &AgentBody) -> Result<AgentView, ClientError> {
        self.post("/v1/agent/register", None, body)
    }

    pub fn agents(&self, query: &[(&str, &str)]) -> Result<AgentList, ClientError> {
        self.get("/v1/agent/list", query)
    }

    pub fn peers(&self, query: &[(&str, &str)]) -> Result<PeerList, ClientError> {
        self.get("/v1/peers", query)
    }

    pub fn status(&self) -> Result<StatusView, ClientError> {
        self.get("/v1/status", &[])
    }

    pub fn version(&self) -> Result<Version, ClientError> {
        self.get("/v1/version", &[])
    }

    pub fn outbox_row(&self, id: &str, query: &[(&str, &str)]) -> Result<OutboxRow, ClientError> {
        self.get(&format!("/v1/outbox/{}", percent_encode(id)), query)
    }

    pub fn outbox(&self, query: &[(&str, &str)]) -> Result<OutboxPage, ClientError> {
        self.get("/v1/outbox", query)
    }

    /// `query` narrows down a client id that several senders used.
    pub fn requeue(
        &self,
        id: &str,
        query: &[(&str, &str)],
        body: &RequeueBody,
    ) -> Result<RequeueAnswer, ClientError> {
        let path = format!("/v1/outbox/{}/requeue", percent_encode(id));
        self.post(&target(&path, query), None, body)
    }

    /// One part of a prune; the answer's cursor says whether there is another.
    pub fn prune(&self, body: &PruneBody) -> Result<PruneAnswer, ClientError> {
        self.post("/v1/outbox/prune", None, body)
    }

    /// Keeps it under the id in the body; the same id again is safe. So for the other changes below.
    pub fn remember(&self, body: &RememberBody) -> Result<ChangeAnswer, ClientError> {
        self.post("/v1/memory/remember", None, body)
    }

    pub fn forget(&self, body: &KeyBody) -> Result<ChangeAnswer, ClientError> {
        self.post("/v1/memory/forget", None, body)
    }

    pub fn warnings(&self, query: &[(&str, &str)]) -> Result<WarningsView, ClientError> {
        self.get("/v1/warnings", query)
    }

    pub fn recall(&self, query: &[(&str, &str)]) -> Result<RecallPage, ClientError> {
        self.get("/v1/memory/recall", query)
    }

    pub fn set_state(&self, body: &StateSetBody) -> Result<ChangeAnswer, ClientError> {
        self.post("/v1/state/set", None, body)
    }

    pub fn delete_state(&self, body: &KeyBody) -> Result<ChangeAnswer, ClientError> {
        self.post("/v1/state/delete", None, body)
    }

    pub fn get_state(&self, query: &[(&str, &str)]) -> Result<StateView, ClientError> {
        self.get("/v1/state/get", query)
    }

    pub fn list_state(&self, query: &[(&str, &str)]) -> Result<StatePage, ClientError> {
        self.get("/v1/state/list", query)
    }

    pub fn create_task(&self, body: &TaskCreateBody) -> Result<TaskAnswer, ClientError> {
        self.post("/v1/task/create", None, body)
    }

    pub fn claim_task(&self, body: &TaskClaimBody) -> Result<TaskAnswer, ClientError> {
        self.post("/v1/task/claim", None, body)
    }

    /// `verb` is release or complete.
    pub fn settle_task(
        &self,
        verb: &str,
        body: &TaskSettleBody,
    ) -> Result<TaskAnswer, ClientError> {
        self.post(&format!("/v1/task/{verb}"), None, body)
    }

    pub fn cancel_task(&self, body: &TaskCancelBody) -> Result<TaskAnswer, ClientError> {
        self.post("/v1/task/cancel", None, body)
    }

    pub fn tasks(&self, query: &[(&str, &str)]) -> Result<TaskPage, ClientError> {
        self.get("/v1/task/list", query)
    }

    pub fn task(&self, query: &[(&str, &str)]) -> Result<TaskStory, ClientError> {
        self.get("/v1/task/get", query)
    }

    /// Where the clock of a mesh's data stands.
    pub fn clock(&self, query: &[(&str, &str)]) -> Result<ClockView, ClientError> {
        self.get("/v1/mesh/clock", query)
    }

    /// A page of the canonical dump.
    pub fn dump(&self, query: &[(&str, &str)]) -> Result<DumpView, ClientError> {
        self.get("/v1/mesh/dump", query)
    }

    /// A page of what the log has lost and this home has of others.
    pub fn kept(&self, query: &[(&str, &str)]) -> Result<KeptPage, ClientError> {
        self.get("/v1/mesh/kept", query)
    }

    pub fn take_back(&self, body: &TakeBackBody) -> Result<TakeBackAnswer, ClientError> {
        self.post("/v1/mesh/take-back", None, body)
    }

    pub fn let_be(&self, body: &ResumeBody) -> Result<DoctorAnswer, ClientError> {
        self.post("/v1/doctor/let-be", None, body)
    }

    /// It reads all of the home's files, which takes its time.
    pub fn doctor(&self) -> Result<DoctorView, ClientError> {
        self.knock()?;
        let patient = self.clone().waiting(FILES_READ_MAX);
        patient.get("/v1/doctor", &[])
    }

    /// Whether anybody answers at all, before an answer is waited for that may take minutes.
    fn knock(&self) -> Result<(), ClientError> {
        self.clone().hasty().version().map(drop)
    }

    /// A copy of the store, made by the daemon.
    pub fn back_up(&self, body: &BackupBody) -> Result<BackupView, ClientError> {
        self.knock()?;
        let patient = self.clone().waiting(FILES_READ_MAX);
        patient.post("/v1/doctor/backup", None, body)
    }

    /// `verb` is retry or drop.
    pub fn doctor_op(&self, verb: &str, body: &OpBody) -> Result<DoctorAnswer, ClientError> {
        self.post(&format!("/v1/doctor/{verb}"), None, body)
    }

    pub fn resume_sync(&self, body: &ResumeBody) -> Result<DoctorAnswer, ClientError> {
        self.post("/v1/doctor/resume-sync", None, body)
    }

    /// An embedding may have to be made elsewhere first, which takes its time. So for the others below.
    pub fn store_vector(&self, body: &VectorStoreBody) -> Result<ChangeAnswer, ClientError> {
        let patient = self.clone().waiting(VECTOR_PROVIDER_TIMEOUT_MAX);
        patient.post("/v1/vector/store", None, body)
    }

    pub fn search_vectors(&self, body: &VectorSearchBody) -> Result<VectorHits, ClientError> {
        let patient = self.clone().waiting(VECTOR_PROVIDER_TIMEOUT_MAX);
        patient.post("/v1/vector/search", None, body)
    }

    /// One step of moving to another model.
    pub fn re_embed(&self, body: &ReEmbedBody) -> Result<ReEmbedAnswer, ClientError> {
        let patient = self.clone().waiting(VECTOR_PROVIDER_TIMEOUT_MAX * 2);
        patient.post("/v1/vector/re_embed", None, body)
    }

    pub fn delete_vector(&self, body: &VectorDeleteBody) -> Result<ChangeAnswer, ClientError> {
        self.post("/v1/vector/delete", None, body)
    }

    pub fn list_vectors(&self, query: &[(&str, &str)]) -> Result<VectorPage, ClientError> {
        self.get("/v1/vector/list", query)
    }

    /// Under a key: the same key again gives the same link.
    pub fn invite(
        &self,
        key: &str,
        body: &MeshInviteBody,
    ) -> Result<MeshInviteAnswer, ClientError> {
        self.post("/v1/mesh/invite", Some(key), body)
    }

    /// Shares a personal mesh, and says how far that has come; the same again only says so.
    pub fn publish(&self, body: &MeshPublishBody) -> Result<MeshPublishView, ClientError> {
        self.post("/v1/mesh/publish", None, body)
    }

    /// Takes up an invitation; the same again is safe, whatever happened to the first.
    pub fn join(&self, body: &MeshJoinBody) -> Result<MeshJoinAnswer, ClientError> {
        self.post("/v1/mesh/join", None, body)
    }

    pub fn revoke(&self, body: &MeshRevokeBody) -> Result<MeshRevokeAnswer, ClientError> {
        self.post("/v1/mesh/revoke", None, body)
    }

    pub fn block(&self, body: &MeshBlockBody) -> Result<MeshStandingAnswer, ClientError> {
        self.post("/v1/mesh/block", None, body)
    }

    pub fn grant(&self, body: &MeshGrantBody) -> Result<MeshStandingAnswer, ClientError> {
        self.post("/v1/mesh/grant", None, body)
    }

    /// What this home lets a peer send it: `grant`, `revoke` or `block`.
    pub fn peer_grant(
        &self,
        verb: &str,
        body: &PeerGrantBody,
    ) -> Result<PeerGrantView, ClientError> {
        self.post(&format!("/v1/peers/{verb}"), None, body)
    }

    pub fn peer_grants(&self, query: &[(&str, &str)]) -> Result<PeerGrantList, ClientError> {
        self.get("/v1/peers/grants", query)
    }

    pub fn create_mesh(&self, body: &MeshCreateBody) -> Result<MeshCreateAnswer, ClientError> {
        self.post("/v1/mesh/create", None, body)
    }

    pub fn meshes(&self) -> Result<MeshList, ClientError> {
        self.get("/v1/mesh/list", &[])
    }

    pub fn mesh_info(&self, query: &[(&str, &str)]) -> Result<MeshInfo, ClientError> {
        self.get("/v1/mesh/info", query)
    }

    /// Asks the daemon to drain and stop.
    pub fn shutdown(&self) -> Result<serde_json::Value, ClientError> {
        self.post("/v1/shutdown", None, &serde_json::json!({}))
    }
}
