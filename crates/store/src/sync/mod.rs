//! Sync of data ops with the log of a mesh. What goes out stands in the outbox, what comes in in a table
//! of its own; both are read and written here, one verb a file. Decisions are `core::sync`'s.

mod again;
mod apply;
mod came_again;
mod doctor;
mod head;
mod incoming;
mod kept;
mod outgoing;
mod page;
mod publish;
mod replay;

#[cfg(test)]
pub(crate) use {
    again::{APPLIED as APPLIED_FROM, FORGET as FORGET_APPLIED},
    apply::{APPLIED, LISTED, OPEN, REFUSED_FOR_GOOD, SET_ASIDE},
    doctor::{ABORT_OP, RELEASE, UNQUEUE},
    head::{HEAD, OPEN_COUNTS, REFUSED_OUT, WAITING_OUT},
    incoming::{INSERT as INSERT_INCOMING, KNOWN_BY_ID, MOVED as MOVED_INCOMING},
    kept::{BYTES_OF, EPOCHS_READ, LET_BE, LET_BE_HOLE, PLACES_OF},
    outgoing::{CONFIRM_DONE, CONFIRM_INFLIGHT, DUE_OPS, PUT_OFF, REFUSED, UNQUEUE_OP, UPLOAD_OPS},
    page::NOT_APPLIED,
    publish::{
        ADVANCE, BEGIN, CURSOR, FIND as PUBLISHED, FINISH, MOVE as MOVE_PUBLISH, SHARE, SNAPSHOT,
        UNSENT,
    },
    replay::{LOOK as REPLAY_LOOK, MOVED},
};

pub(crate) use again::read_anew;
pub(crate) use apply::is_of_this_op;
pub(crate) use head::read as read_head;

pub use apply::{AppliedOps, SetAside};
pub use doctor::{Dropped, Retried};
pub use head::{MeshKind, SyncFigures, SyncHead};
pub use incoming::{NewOp, ReceivedOps};
pub use kept::{KeptBy, KeptCursor, KeptLook, LostPlaces, TakenBack};
pub use outgoing::{DueOp, OpSettle};
pub use publish::{BegunPublish, Publish, SnapshotStep};
pub use replay::{ReplayLook, ReplayRow};
