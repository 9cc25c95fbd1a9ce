//! The mesh store: the only client-side SQL, one SQLite file (`data.db`) for all meshes of a home.
//!
//! It holds the outbox, the inbox, the data (memory, state, tasks, files, vectors), the ops of sync, the
//! meshes and their agents; large files are blobs beside it. Every write is one job of the group-commit
//! writer: it is answered after the commit that carries it is on disk. Decisions are
//! made by `heddle-core`; this crate looks rows up, asks, and writes. It never asks a clock: wall
//! times and monotonic times are handed in.

mod agents;
mod backup;
mod blobs;
mod carry;
mod cells;
mod changed_ops;
mod checkup;
mod compact;
mod data;
mod effects_used;
mod error;
mod figures;
mod inbox;
mod invites;
mod meaning;
mod meshes;
mod meshless;
mod missing;
mod outbox;
mod own_refused;
mod park;
#[cfg(test)]
mod plans;
mod repair;
mod roster;
mod schema;
mod search_index;
mod senseless;
mod stamps;
mod steps;
mod store;
mod sync;
mod unclean;
mod undo;
mod unreadable;
mod unsent;
mod waiting;
mod witness;
mod words;

pub use agents::AgentRow;
pub use backup::{
    BackedUp, BackupError, Restored, back_up, check_backup, copy_database, replace_database,
    restore,
};
pub use blobs::{BlobError, BlobReader, Blobs, Hold, Incoming, Landed, Landing, Partial};
pub use checkup::{Checkup, MeshCheck, check_up, problem_in};
pub use compact::{Compacted, compact_database};
pub use data::{
    A_STEP_OF, Applied, Called, ChangeKey, ClockRow, DataStory, DumpPage, FileBefore, FileBytes,
    FileFilter, FileFind, FileRow, HeldTask, IS_CHANGED, KnownChange, Loss, LossAbout, LossKind,
    LossSide, LostValue, MemoryFilter, MemoryMatch, MemoryRow, Merged, MissingBlob, ModelRow,
    NewContent, NewFile, NewTask, Receipt, SaidOfModel, StateFilter, StateRow, StoryArrival,
    StoryLeft, StoryRequest, StoryRow, Swept, Taken, TaskDamage, TaskFilter, TaskRefusal, TaskRow,
    TaskStop, TaskWhich, TaskWish, VectorCount, VectorCursor, VectorFilter, VectorHit, VectorMove,
    VectorQuery, VectorRow, WantedBlob,
};
pub use effects_used::had_effects;
pub use error::StoreError;
pub use figures::Figures;
pub use heddle_sqlite::{
    Condition, Durability, Kind, Look, Misplaced, OpenError, Stats, misplaced, not_a_file,
    open_plain,
};
pub use heddle_sqlite::{StepsTaken, Trial, copies_before_steps, is_out_of_place};
pub use inbox::{
    Acked, AckedItems, BodyOf, DamageLook, DueReceipt, InboxFilter, InboxFind, InboxRow, InboxRows,
    IsReadable, LostInbox, NewInboxRow, OwedHook, PruneStep, ReceiptLevel, Received, RecoveredRow,
    ReplyOf, SearchQuery, SearchQueryError, SessionCursor, SessionKey, Thread,
};
pub use invites::KeptInvite;
pub use meaning::{Spoilt, spoilt_in};
pub use meshes::{Mesh, NewMesh};
pub use meshless::{Meshless, lost_mesh_in, without_home};
pub use outbox::{
    AcceptKey, Accepted, Attempt, DueMoment, DueRow, LostFigures, LostLook, LostMessage, LostRow,
    LostSettle, LostState, NewOutboxRow, OutboxFilter, OutboxFind, OutboxPage, OutboxRow,
    PruneFilter, PruneLook, Requeue, Requeued, Settle, Usage,
};
pub use repair::{
    Kept, MeshHint, RepairHints, Repaired, RepairedRows, RepairedTasks, give_up_lost_log,
    mend_header, repair, want_lost_blobs,
};
pub use steps::{Steps, steps_of};
pub use store::{Store, StoreOptions};
pub use sync::{
    AppliedOps, BegunPublish, Dropped, DueOp, KeptBy, KeptCursor, KeptLook, LostPlaces, MeshKind,
    NewOp, OpSettle, Publish, ReceivedOps, ReplayLook, ReplayRow, Retried, SetAside, SnapshotStep,
    SyncFigures, SyncHead, TakenBack,
};
pub use unclean::{Heals, Outlook, is_bare, outlook};
pub use undo::{Undone, undo_step};
pub use unreadable::{LeftOut, Unread, Unreadable};
pub use waiting::{TRIED_AT_ONCE_BYTES_MAX, TRIED_BYTES_MAX, waiting_steps};
