//! The outbox: what this home's agents have asked to send, from accept to its end. One verb, one file.

mod accept;
mod find;
mod insert;
mod page;
mod recover;
mod requeue;
mod row;
mod senders;
mod settle;
mod take;

#[cfg(test)]
pub(crate) use {
    find::{BY_PREDECESSOR, BY_ROW_ID},
    insert::INSERT,
    page::{ALL, EXCEPTIONAL, PENDING},
    recover::{RECOVER_INFLIGHT, RECOVER_PENDING},
    requeue::ABORT,
    row::BY_ID_KEY,
    senders::{NOTE_SENDER, SENDERS},
    settle::{DEAD, DONE, RETRY},
    take::{DUE, MARK_INFLIGHT, NEXT_DUE, ONE},
};

pub(crate) use senders::NotedSenders;

pub use accept::{AcceptKey, Accepted};
pub use find::OutboxFind;
pub use insert::NewOutboxRow;
pub use page::{OutboxFilter, OutboxPage};
pub use requeue::{Requeue, Requeued};
pub use row::OutboxRow;
pub use settle::Settle;
pub use take::DueRow;
