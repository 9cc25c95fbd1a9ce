//! The outbox: what this home's agents have asked to send, from accept to its end. One verb, one file.

mod accept;
mod age;
mod attempts;
mod find;
mod identity;
mod insert;
mod lost;
mod page;
mod parked;
mod prune;
mod reach;
mod recover;
mod requeue;
mod row;
mod senders;
mod settle;
mod take;
mod turns;

#[cfg(test)]
pub(crate) use {
    age::{
        BORN_BY, FORGET_BIRTHS, MARK_BIRTH, MOVE_BIRTH, NEWEST_BIRTHS, OVER_AGE, READ_MARK,
        WRITE_MARK,
    },
    attempts::{NOTE, OF_ROW, TRIM},
    find::{BY_PREDECESSOR, BY_ROW_ID},
    insert::{INSERT, INSERT_IF_FREE},
    lost::{
        COUNTS, DROPPED, LIST, LOOK as LOST_LOOK, MOVED, NOT_LOST, NOTE as NOTE_LOST, OF_ARRIVAL,
        SET_STATE, WAITING, WAS_TAKEN,
    },
    page::{ALL, EXCEPTIONAL, PENDING},
    parked::{COUNT, PARK},
    prune::{EMPTY, HAS_DEAD, INFLIGHT_BYTES, LOOK, PENDING_BYTES, RETIRE},
    reach::{LOOKED, MOVED_AWAY, REACHED, READ as REACH, SINCE},
    recover::{NOTE_INTERRUPTED, RECOVER_INFLIGHT, RECOVER_OPS, RECOVER_PENDING},
    requeue::ABORT,
    row::BY_ID_KEY,
    senders::{NOTE_SENDER, SENDERS},
    settle::{
        DEAD, DEAD_IS_DONE, DEAD_REASON, DEAD_UNKNOWN, DONE, MESH_OF, PARK as PARK_INFLIGHT, RETRY,
        RETRY_IN_PLACE,
    },
    take::{BY_ARRIVAL, DUE, MARK_INFLIGHT, NEXT_DUE, ONE, URGENT, WINDOW},
};

pub(crate) use age::NEWEST_ROW;
pub(crate) use attempts::note as note_attempt;
pub(crate) use identity::{Identity, Looked, look as look_at_identities};
pub(crate) use parked::{NEVER, OP_DUE};
pub(crate) use reach::{answered_since, reached};
pub(crate) use row::{read_shown as read_outbox_row, select_row};
pub(crate) use senders::{NotedSenders, note_sender};
pub(crate) use settle::ms_up;
pub(crate) use turns::Turns;

pub use accept::{AcceptKey, Accepted};
pub use attempts::Attempt;
pub use find::OutboxFind;
pub use insert::NewOutboxRow;
pub use lost::{LostFigures, LostLook, LostMessage, LostRow, LostSettle, LostState};
pub use page::{OutboxFilter, OutboxPage};
pub use prune::{PruneFilter, PruneLook, Usage};
pub use requeue::{Requeue, Requeued};
pub use row::OutboxRow;
pub use settle::Settle;
pub use take::{DueMoment, DueRow};
