//! Bodies of the `/v1` routes, one file per noun. Unknown request fields are refused.

mod agent;
mod data;
mod effect;
mod explain;
mod file;
mod grant;
mod inbox;
mod mesh;
mod message_story;
mod outbox;
mod plain;
mod queue;
mod send;
mod status;
mod story;
mod sync;
mod task;
mod topic;
mod upkeep;
mod vector;

pub use agent::{AgentBody, AgentList, AgentView, PeerList, PeerView};
pub use data::{
    ChangeAnswer, KeyBody, MemoryView, RecallPage, RememberBody, StampView, StatePage,
    StateSetBody, StateView,
};
pub use effect::{
    EffectApproveAnswer, EffectApproveBody, EffectAttempt, EffectBody, EffectCompensateBody,
    EffectCriterion, EffectDecision, EffectEndBody, EffectEvent, EffectList, EffectLog,
    EffectLogLine, EffectOpenRequest, EffectRegisterBody, EffectRequestAnswer, EffectRequestBody,
    EffectResolveBody, EffectRetries, EffectStartBody, EffectStep, EffectStory, EffectSurface,
    EffectVerifyBody, EffectVerifyPlan, EffectView,
};
pub use explain::{
    BrokerView, DeliveryView, ExplainView, Level, LimiterView, LostView, MentionView,
    QueueStateView, ReceiptView,
};
pub use file::{
    EVENT_FILE_SHARED, FileDeleteBody, FilePage, FileShareAnswer, FileShareBody, FileSharedEvent,
    FileView, NewerFile, SweepAnswer, SweepBody,
};
pub use grant::{PeerGrantBody, PeerGrantList, PeerGrantView};
pub use inbox::{
    AckAnswer, AckBody, EVENT_GAP, EVENT_MESSAGE, InboxItem, InboxPage, KnownAnswer, SearchPage,
    SeenAnswer, SeenBody, ShownAnswer, ShownBody, ThreadItem, ThreadPage,
};
pub use mesh::{
    MeshBlockBody, MeshCreateAnswer, MeshCreateBody, MeshGrantBody, MeshInfo, MeshInviteAnswer,
    MeshInviteBody, MeshJoinAnswer, MeshJoinBody, MeshList, MeshMember, MeshPublishBody,
    MeshPublishView, MeshRevokeAnswer, MeshRevokeBody, MeshStandingAnswer, MeshView,
};
pub use message_story::{InboxCopyView, LayerView, LayersView, MessageStory};
pub use outbox::{
    AttemptView, EVENT_OUTBOX_PRESSURE_EASED, EVENT_OUTBOX_PRESSURE_HIGH, OutboxPage, OutboxRow,
    PressureEvent, PruneAnswer, PruneBody, RequeueAnswer, RequeueBody,
};
pub use queue::{
    LeasedBody, QueueItem, QueueList, QueuePushBody, QueueRenewBody, QueueSettleBody,
    QueueTakeBody, QueueTaken, QueueView, SettledItem, SettledItems,
};
pub use send::{SendAnswer, SendBody, SendStatus};
pub use status::{
    Compat, DiskView, Health, InboxFigures, MeshStatus, OutboxFigures, Span, StatusView, Verdict,
    Version,
};
pub use story::{DataArrivalView, DataRequestView, DataRowView, DataStoryView, Story};
pub use sync::{
    ClockView, DoctorAnswer, DoctorView, DumpView, Finding, KeptPage, OpBody, ResumeBody, StuckOp,
    SyncView, TakeBackAnswer, TakeBackBody,
};
pub use task::{
    TaskAnswer, TaskCancelBody, TaskClaimBody, TaskClaimView, TaskCreateBody, TaskEventView,
    TaskPage, TaskSettleBody, TaskStory, TaskView, WarningSide, WarningView, WarningsView,
};
pub use topic::{TopicAnswer, TopicBody, TopicList, TopicPostBody, TopicView};
pub use upkeep::{BackupBody, BackupView, KeptTable, RepairView, RestoreView};
pub use vector::{
    ReEmbedAnswer, ReEmbedBody, VectorDeleteBody, VectorHits, VectorPage, VectorSearchBody,
    VectorStoreBody, VectorView,
};
