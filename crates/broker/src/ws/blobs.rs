//! Bytes of large files pass from one member to another through here, and none of them is kept.
//!
//! A member asks for a part and names who may have it; that member is asked, and its answer is passed on.
//! Nobody waits in a lane meanwhile: an open question is an entry of a small table, answered once, by the
//! one who was asked. Whether the bytes are the right ones is for the asker to find out: it knows the hash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::limits::{BLOB_ASKED_MAX, BLOB_PART_TIMEOUT};
use heddle_wire::broker::{BlobPlace, PartBytes, Refused, ReplyResult, ServerFrame};
use tokio::sync::OwnedSemaphorePermit;

use super::hub::Session;
use super::writer::WeakOutbox;

/// Which connection: a member's, by its generation.
type Seat = (MeshId, MemberId, u64);

/// The open questions of all connections.
#[derive(Default)]
pub(super) struct Relays {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Open>,
}

/// A part that somebody was asked for.
struct Open {
    asker: Seat,
    request: u64,
    to: WeakOutbox,
    holder: Seat,
    length: u32,
    since: Duration,
    /// The asker's place for one part on its way; given back when the answer is written.
    permit: OwnedSemaphorePermit,
}

impl Open {
    fn answer(self, result: ReplyResult) {
        let request = self.request;
        let reply = ServerFrame::Reply { request, result };
        // Its box is full or gone: it asks again after its own time.
        let _ = self.to.offer(&reply, Some(self.permit));
    }
}

/// How a question went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    Passed,
    Absent,
    Busy,
}

impl Relays {
    /// Asks `holder` on behalf of `asker`. The answer goes to `to`, now or when there is one.
    pub(super) fn ask(
        &self,
        asker: &Session,
        request: u64,
        to: WeakOutbox,
        holder: Option<Arc<Session>>,
        part: BlobPlace,
        now: Duration,
    ) {
        let Ok(permit) = Arc::clone(&asker.parts).try_acquire_owned() else {
            let _ = to.offer(&reply(request, busy()), None);
            return count(Went::Busy);
        };
        let open = |holder: Seat| Open {
            asker: seat(asker),
            request,
            to,
            holder,
            length: part.length,
            since: now,
            permit,
        };
        let Some(holder) = holder else {
            open(seat(asker)).answer(ReplyResult::Absent);
            return count(Went::Absent);
        };
        let open = open(seat(&holder));
        let mut table = self.lock();
        let late = table.take(|one| now.saturating_sub(one.since) >= BLOB_PART_TIMEOUT);
        let asked = table.open.values().filter(|one| one.holder == open.holder);
        if asked.count() >= BLOB_ASKED_MAX {
            drop(table);
            open.answer(busy());
            return count(Went::Busy);
        }
        table.next += 1;
        let ask = table.next;
        table.open.insert(ask, open);
        drop(table);
        if !holder.offer(&ServerFrame::BlobAsked { ask, part })
            && let Some(open) = self.lock().open.remove(&ask)
        {
            open.answer(busy());
            count(Went::Busy);
        }
        for open in late {
            open.answer(ReplyResult::Absent);
        }
    }

    /// What a member answered. Only the one that was asked is heard, and only once.
    pub(super) fn answer(&self, holder: &Session, ask: u64, data: Option<PartBytes>) {
        let mut table = self.lock();
        let is_asked = table
            .open
            .get(&ask)
            .is_some_and(|open| open.holder == seat(holder));
        let Some(open) = is_asked.then(|| table.open.remove(&ask)).flatten() else {
            return;
        };
        drop(table);
        let most = open.length as usize;
        match data.filter(|data| !data.0.is_empty() && data.0.len() <= most) {
            Some(data) => {
                open.answer(ReplyResult::BlobPart { data });
                count(Went::Passed);
            }
            None => {
                open.answer(ReplyResult::Absent);
                count(Went::Absent);
            }
        }
    }

    /// A connection ends: what it was asked for comes from nobody, and what it asked for is of no use.
    pub(super) fn leave(&self, session: &Session) {
        let gone = seat(session);
        let left = self
            .lock()
            .take(|one| one.holder == gone || one.asker == gone);
        for open in left {
            open.answer(ReplyResult::Absent);
        }
    }

    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self, which: impl Fn(&Open) -> bool) -> Vec<Open> {
        let asks: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| which(open))
            .map(|(ask, _)| *ask)
            .collect();
        asks.iter()
            .filter_map(|ask| self.open.remove(ask))
            .collect()
    }
}

fn seat(session: &Session) -> Seat {
    (session.mesh, session.member, session.generation)
}

fn reply(request: u64, result: ReplyResult) -> ServerFrame {
    ServerFrame::Reply { request, result }
}

fn busy() -> ReplyResult {
    ReplyResult::Refused(Refused {
        code: ErrorCode::DaemonBusy.as_str().to_owned(),
        detail: "too many parts of files are on their way already".to_owned(),
    })
}

fn count(went: Went) {
    let outcome = match went {
        Went::Passed => "passed",
        Went::Absent => "absent",
        Went::Busy => "busy",
    };
    metrics::counter!("heddle_broker_blob_parts_total", "outcome" => outcome).increment(1);
}
