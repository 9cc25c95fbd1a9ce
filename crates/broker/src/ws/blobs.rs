//! Bytes of large files pass from one member to another through here, and none of them is kept.
//!
//! A member asks for a part and names who may have it; that member is asked, and its answer is passed on.
//! Nobody waits in a lane meanwhile: an open question is an entry of a small table, answered once, by the
//! one who was asked. Whether the bytes are the right ones is for the asker to find out: it knows the hash.
//!
//! Asker and holder may be at different brokers of one store: then each of them has an entry, and what passes between
//! the brokers is an [`Errand`] (`ws/errands`).

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
use crate::storage::{PartAsk, PartOutcome};

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
    asker: Asker,
    /// `None`: another broker was told to ask.
    holder: Option<Seat>,
    length: u32,
    since: Duration,
}

/// Where the answer goes.
enum Asker {
    Here {
        seat: Seat,
        request: u64,
        to: WeakOutbox,
        /// The asker's place for one part on its way; given back when the answer is written.
        permit: OwnedSemaphorePermit,
    },
    /// To the broker that asked for it.
    Elsewhere(PartAsk),
}

/// What another broker is to be told; the bytes first.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) ask: PartAsk,
    pub(super) result: Result<Vec<u8>, PartOutcome>,
}

/// How a question went.
enum Went {
    Passed(PartBytes),
    Absent,
    Busy,
}

impl Open {
    #[must_use]
    fn answer(self, went: Went) -> Option<Errand> {
        match self.asker {
            Asker::Here {
                request,
                to,
                permit,
                ..
            } => {
                count(&went);
                let result = result_of(went);
                // Its box is full or gone: it asks again after its own time.
                let _ = to.offer(&ServerFrame::Reply { request, result }, Some(permit));
                None
            }
            Asker::Elsewhere(ask) => {
                let result = match went {
                    Went::Passed(data) => Ok(data.0),
                    Went::Absent => Err(PartOutcome::Absent),
                    Went::Busy => Err(PartOutcome::Busy),
                };
                Some(Errand { ask, result })
            }
        }
    }

    fn is_of(&self, gone: Seat) -> bool {
        let asks = matches!(&self.asker, Asker::Here { seat, .. } if *seat == gone);
        asks || self.holder == Some(gone)
    }
}

impl Relays {
    /// Asks `holder` on behalf of `asker`. The answer goes to `to`, now or when there is one. Where the holder is at
    /// another broker, the question that is to be told there.
    #[must_use]
    pub(super) fn ask(
        &self,
        asker: &Session,
        (request, to): (u64, WeakOutbox),
        holder: Found,
        part: BlobPlace,
        now: Duration,
    ) -> Option<PartAsk> {
        self.end_late(now);
        let Ok(permit) = Arc::clone(&asker.parts).try_acquire_owned() else {
            let result = busy();
            let _ = to.offer(&ServerFrame::Reply { request, result }, None);
            count(&Went::Busy);
            return None;
        };
        let open = Open {
            asker: Asker::Here {
                seat: seat(asker),
                request,
                to,
                permit,
            },
            holder: None,
            length: part.length,
            since: now,
        };
        match holder {
            Found::Nowhere => drop(open.answer(Went::Absent)),
            Found::Here(holder) => drop(self.put_to(&holder, open, part)),
            Found::Elsewhere => {
                return Some(PartAsk {
                    mesh: asker.mesh,
                    asker: asker.member,
                    generation: asker.generation,
                    number: self.lock().insert(open),
                });
            }
        }
        None
    }

    /// The same on behalf of a member at another broker.
    #[must_use]
    pub(super) fn ask_for_other(
        &self,
        ask: PartAsk,
        holder: &Session,
        part: BlobPlace,
        now: Duration,
    ) -> Option<Errand> {
        self.end_late(now);
        let open = Open {
            asker: Asker::Elsewhere(ask),
            holder: None,
            length: part.length,
            since: now,
        };
        self.put_to(holder, open, part)
    }

    fn put_to(&self, holder: &Session, mut open: Open, part: BlobPlace) -> Option<Errand> {
        let asked = Some(seat(holder));
        open.holder = asked;
        let mut table = self.lock();
        let questions = table.open.values().filter(|one| one.holder == asked);
        if questions.count() >= BLOB_ASKED_MAX {
            drop(table);
            return open.answer(Went::Busy);
        }
        let ask = table.insert(open);
        drop(table);
        if holder.offer(&ServerFrame::BlobAsked { ask, part }) {
            return None;
        }
        let open = self.lock().open.remove(&ask)?;
        open.answer(Went::Busy)
    }

    /// What a member answered. Only the one that was asked is heard, and only once.
    #[must_use]
    pub(super) fn answer(
        &self,
        holder: &Session,
        ask: u64,
        data: Option<PartBytes>,
    ) -> Option<Errand> {
        let open = self.take_if(ask, |open| open.holder == Some(seat(holder)))?;
        open.settle(data)
    }

    /// Whether a question to another broker is still open here.
    pub(super) fn awaits(&self, ask: &PartAsk) -> bool {
        let table = self.lock();
        let open = table.open.get(&ask.number);
        open.is_some_and(|open| open.is_asked_elsewhere(ask))
    }

    /// What another broker had for one of our questions.
    pub(super) fn given(&self, ask: &PartAsk, result: Result<Option<Vec<u8>>, PartOutcome>) {
        let Some(open) = self.take_if(ask.number, |open| open.is_asked_elsewhere(ask)) else {
            return;
        };
        drop(match result {
            Err(PartOutcome::Busy) => open.answer(Went::Busy),
            Err(_) => open.answer(Went::Absent),
            Ok(data) => open.settle(data.map(PartBytes)),
        });
    }

    /// A connection ends: what it was asked for comes from nobody, and what it asked for is of no use.
    #[must_use]
    pub(super) fn leave(&self, session: &Session) -> Vec<Errand> {
        let gone = seat(session);
        let left = self.lock().take(|one| one.is_of(gone));
        let answered = left.into_iter().map(|open| open.answer(Went::Absent));
        answered.flatten().collect()
    }

    /// Whoever asked from elsewhere has its own clock.
    fn end_late(&self, now: Duration) {
        let is_late = |one: &Open| now.saturating_sub(one.since) >= BLOB_PART_TIMEOUT;
        let late = self.lock().take(is_late);
        for open in late {
            drop(open.answer(Went::Absent));
        }
    }

    fn take_if(&self, ask: u64, is_it: impl Fn(&Open) -> bool) -> Option<Open> {
        let mut table = self.lock();
        let found = table.open.get(&ask).is_some_and(is_it);
        found.then(|| table.open.remove(&ask)).flatten()
    }

    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the member that is asked has its connection.
pub(super) enum Found {
    Here(Arc<Session>),
    /// At another broker of the same store.
    Elsewhere,
    Nowhere,
}

impl Open {
    fn is_asked_elsewhere(&self, ask: &PartAsk) -> bool {
        let asker = (ask.mesh, ask.asker, ask.generation);
        let is_asker = matches!(&self.asker, Asker::Here { seat, .. } if *seat == asker);
        is_asker && self.holder.is_none()
    }

    /// More than was asked for, or nothing at all, is nothing.
    #[must_use]
    fn settle(self, data: Option<PartBytes>) -> Option<Errand> {
        let most = self.length as usize;
        let data = data.filter(|data| !data.0.is_empty() && data.0.len() <= most);
        self.answer(data.map_or(Went::Absent, Went::Passed))
    }
}

impl Table {
    fn insert(&mut self, open: Open) -> u64 {
        self.next += 1;
        self.open.insert(self.next, open);
        self.next
    }

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

fn result_of(went: Went) -> ReplyResult {
    match went {
        Went::Passed(data) => ReplyResult::BlobPart { data },
        Went::Absent => ReplyResult::Absent,
        Went::Busy => busy(),
    }
}

fn busy() -> ReplyResult {
    ReplyResult::Refused(Refused {
        code: ErrorCode::DaemonBusy.as_str().to_owned(),
        detail: "too many parts of files are on their way already".to_owned(),
        retry_after_ms: None,
    })
}

fn count(went: &Went) {
    let outcome = match went {
        Went::Passed(_) => "passed",
        Went::Absent => "absent",
        Went::Busy => "busy",
    };
    metrics::counter!("heddle_broker_blob_parts_total", "outcome" => outcome).increment(1);
}
