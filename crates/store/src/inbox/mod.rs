//! The inbox: what the brokers delivered to this home's agents. One verb, one file.

mod ack;
mod cursor;
mod page;
mod receive;
mod row;

#[cfg(test)]
pub(crate) use {
    ack::{ACK, KNOWN},
    cursor::{CURSOR, LAST_ARRIVAL},
    page::{EVERYTHING, EVERYTHING_UNREAD, MAILBOX, MAILBOX_UNREAD},
    receive::{HAS_KEY, INSERT, RAISE_CURSOR},
};

pub use ack::Acked;
pub use page::InboxFilter;
pub use receive::Received;
pub use row::{InboxRow, NewInboxRow};
