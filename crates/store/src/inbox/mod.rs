//! The inbox: what the brokers delivered to this home's agents. One verb, one file.

mod copies;
mod cursor;
mod damage;
mod find;
mod hook;
mod index;
mod lost;
mod page;
mod query;
mod receipt;
mod receive;
mod retention;
mod row;
mod scan;
mod search;
mod session;
mod thread;

#[cfg(test)]
pub(crate) use {
    copies::{COPY, IS_KNOWN},
    cursor::{CURSOR, LAST_ARRIVAL},
    damage::LOOK_THROUGH,
    find::{FIND, PAST},
    hook::{ENDED, GIVE_UP, HOOKS_THROUGH, OWED, STARTED},
    index::{INDEX, INDEXED_THROUGH, MARK_INDEXED, NEXT_TO_INDEX},
    lost::{ASK_AGAIN, LOST, MARK_LEVELS, MOVE_LOST},
    page::{EVERYTHING, EVERYTHING_UNREAD, MAILBOX, MAILBOX_UNREAD},
    receipt::{ACK, CONFIRM, DUE as RECEIPTS_DUE, KNOWN, LET_GO, QUEUE, QUEUE_AT, SHOW},
    receive::{AT_PLACE, HAS_KEY, INSERT, RAISE_CURSOR, SET_ASIDE, UNSAY},
    retention::{FORGET_HOOKS, LEAVE_IDS, LOOK, MARK_PRUNED, PRUNE_CUTOFF, TAKE},
    search::SEARCH,
    session::{ENTER, MOVE, OLDEST_UNREAD, SESSION},
    thread::{RECEIVED, RECEIVED_ONE, SENT, SENT_ONE},
};

pub(crate) use cursor::{last_arrival, read_cursor};
pub(crate) use damage::damaged;
pub use damage::{DamageLook, IsReadable};
pub use find::InboxFind;
pub use hook::OwedHook;
pub use index::BodyOf;
pub(crate) use lost::mark_all;
pub use lost::{LostInbox, RecoveredRow};
pub use page::{AckedItems, InboxFilter, InboxRows};
pub use query::{SearchQuery, SearchQueryError};
pub(crate) use receipt::QUEUE_ALL;
pub use receipt::{Acked, DueReceipt, ReceiptLevel};
pub use receive::Received;
pub use retention::PruneStep;
pub use row::{InboxRow, NewInboxRow};
pub use session::{SessionCursor, SessionKey};
pub use thread::{ReplyOf, Thread};
