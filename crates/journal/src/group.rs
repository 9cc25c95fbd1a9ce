//! Group commit between processes: who holds the lock commits those who wait, in one write and one sync.
//!
//! A waiter leaves its request under `events/queue/` and holds a kernel lock on it, so that a dead
//! waiter's request is never taken for a live one. The leader claims a request by renaming it, commits
//! it with its own, and leaves the answer. A waiter that gets the lock instead finds out from the
//! journal whether a dead leader had committed it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::Mode;
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::BATCH_BYTES_MAX;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::meta::Position;
use crate::mutate::{Change, Committed, Plan, Receipt, Request};
use crate::record::{Record, Text};
use crate::segments;
use crate::session::{Files, Session};

const GUESTS_MAX: usize = 64;
/// Of all requests that ride along.
const GUEST_BYTES_MAX: usize = 1 << 20;
const REQUEST_BYTES_MAX: u64 = BATCH_BYTES_MAX as u64;
const SLEEP_MIN: Duration = Duration::from_micros(100);
const SLEEP_MAX: Duration = Duration::from_millis(2);

const _: () = assert!(GUEST_BYTES_MAX * 2 < BATCH_BYTES_MAX);

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Receipts(Vec<Receipt>),
    NotFound { item_type: String, item_id: String },
    RequestReused { id: String, why: String },
    RequestLost { id: String, seqs: Vec<[u64; 2]> },
    Refused(String),
}

impl Answer {
    fn of(error: JournalError) -> Self {
        match error {
            JournalError::NotFound { item_type, item_id } => Self::NotFound { item_type, item_id },
            JournalError::RequestReused { id, why } => Self::RequestReused { id, why },
            JournalError::RequestLost { id, seqs } => Self::RequestLost { id, seqs },
            other => Self::Refused(other.to_string()),
        }
    }
}

/// The three names of one request.
struct Ticket {
    request: PathBuf,
    taken: PathBuf,
    answer: PathBuf,
}

impl Ticket {
    fn new(journal: &Journal, id: &str) -> Self {
        let queue = journal.layout.queue();
        Self {
            request: queue.join(format!("{id}.req")),
            taken: queue.join(format!("{id}.taken")),
            answer: queue.join(format!("{id}.ans")),
        }
    }

    fn clear(&self, journal: &Journal) {
        for path in [&self.request, &self.taken, &self.answer] {
            // What is not there need not go; what stays is swept by the next leader.
            let _ = journal.disk().remove(path);
        }
    }
}

impl Journal {
    pub(crate) fn commit(&self, request: Request) -> Result<Committed<'_>, JournalError> {
        // One at a time: a request that a dead leader took over is found by its writer's name.
        let line = self.line.lock();
        let _line = line.unwrap_or_else(std::sync::PoisonError::into_inner);
        let committed = match self.try_session_with(Files::Behind)? {
            Some(mut session) => {
                session.phases.wait.note(Duration::ZERO);
                session.lead(&request)
            }
            None => self.wait_in_line(&request),
        }?;
        checked(&request, self.mode, committed.receipts())?;
        Ok(committed)
    }

    fn wait_in_line(&self, request: &Request) -> Result<Committed<'_>, JournalError> {
        let queue = self.layout.queue();
        self.disk().create_dir(&queue).at(&queue)?;
        let since = self.end_now()?;
        let ticket = Ticket::new(self, &self.world.ids.ulid().to_string());
        // IMPORTANT: the lock first. A request without a living owner is swept.
        let owner = self.disk().try_lock(&ticket.taken.with_extension("own"));
        let owner = owner.at(&ticket.request)?;
        let bytes = serde_json::to_vec(request).map_err(JournalError::refused)?;
        replace(self.disk(), &ticket.request, &bytes, false).at(&ticket.request)?;
        let outcome = self.await_answer(&ticket, request, since);
        ticket.clear(self);
        let _ = self.disk().remove(&ticket.taken.with_extension("own"));
        drop(owner);
        outcome
    }

    fn await_answer(
        &self,
        ticket: &Ticket,
        request: &Request,
        since: Option<Position>,
    ) -> Result<Committed<'_>, JournalError> {
        let mut sleep = SLEEP_MIN;
        let mut waited = Duration::ZERO;
        loop {
            if let Some(answer) = self.answer(ticket)? {
                return answer;
            }
            if let Some(mut session) = self.try_session_with(Files::Behind)? {
                session.phases.wait.note(waited);
                // The leader may have answered between the two looks.
                if let Some(answer) = self.answer(ticket)? {
                    return answer;
                }
                let is_claimed = self.disk().len(&ticket.taken).at(&ticket.taken)?.is_some();
                if is_claimed && let Some(receipts) = self.found_since(since, request)? {
                    return Ok(Committed::done(receipts));
                }
                ticket.clear(self);
                return session.lead(request);
            }
            if waited >= self.settings.lock_wait {
                // Whoever removes the request first decides: we, and nothing happens; or the leader.
                if self.disk().remove(&ticket.request).is_ok() {
                    return Err(self.busy(waited));
                }
                return Err(JournalError::Unknown(Box::new(self.busy(waited))));
            }
            std::thread::sleep(sleep);
            waited += sleep;
            sleep = (sleep * 2).min(SLEEP_MAX);
        }
    }

    fn answer(
        &self,
        ticket: &Ticket,
    ) -> Result<Option<Result<Committed<'_>, JournalError>>, JournalError> {
        let bytes =
            read_if_there(self.disk(), &ticket.answer, REQUEST_BYTES_MAX).at(&ticket.answer)?;
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let answer = serde_json::from_slice(&bytes).map_err(|error| JournalError::Damaged {
            path: ticket.answer.clone(),
            reason: error.to_string(),
        })?;
        Ok(Some(match answer {
            Answer::Receipts(receipts) => Ok(Committed::done(receipts)),
            Answer::NotFound { item_type, item_id } => {
                Err(JournalError::NotFound { item_type, item_id })
            }
            Answer::RequestReused { id, why } => Err(JournalError::RequestReused { id, why }),
            Answer::RequestLost { id, seqs } => Err(JournalError::RequestLost { id, seqs }),
            Answer::Refused(reason) => Err(JournalError::Refused(reason)),
        }))
    }

    /// Where the journal ends now, seen without the lock.
    fn end_now(&self) -> Result<Option<Position>, JournalError> {
        let Some(segment) = segments::live(self.disk(), &self.layout)?.last().copied() else {
            return Ok(None);
        };
        let path = self.layout.segment(segment);
        let length = self.disk().len(&path).at(&path)?.unwrap_or(0);
        let byte = segments::end(self.disk(), &path, length)?;
        Ok(Some(Position { segment, byte }))
    }

    /// The records of a request behind a place: it was committed by a leader that died.
    fn found_since(
        &self,
        since: Option<Position>,
        request: &Request,
    ) -> Result<Option<Vec<Receipt>>, JournalError> {
        let mut mine = Mine {
            request,
            receipts: None,
        };
        let from = since.map_or(0, |since| since.segment);
        let live = segments::live(self.disk(), &self.layout)?;
        for first in live.into_iter().filter(|first| *first >= from) {
            let byte = since.filter(|s| s.segment == first).map_or(0, |s| s.byte);
            if let Some(bytes) = segments::read_from(self.disk(), &self.layout, first, byte)? {
                scan(&bytes, byte, &mut mine);
            }
        }
        Ok(mine.receipts)
    }
}

/// Finds the records of one request. IMPORTANT: the writer's name alone does not tell them: what this same
/// process noted when it took the lock (`seq_repair`, a torn tail) carries it too.
struct Mine<'r> {
    request: &'r Request,
    receipts: Option<Vec<Receipt>>,
}

impl Mine<'_> {
    /// The record that a change became.
    fn is_of(change: &Change, record: &Record<'_>) -> bool {
        let is_same = record.item_type.as_str() == change.item_type
            && record.item_id.as_ref().map(Text::as_str) == change.item_id.as_deref();
        is_same && change.action.is_none_or(|action| action == record.action)
    }
}

impl<'a> Sink<'a> for Mine<'_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        let writer = &self.request.writer;
        let mut left: Vec<&Record<'_>> = batch
            .iter()
            .map(|counted| &counted.record)
            .filter(|record| record.writer.as_str() == writer)
            .collect();
        let is_ours = |record: &&Record<'_>| {
            let mut changes = self.request.changes.iter();
            changes.any(|change| Self::is_of(change, record))
        };
        if left.is_empty() || !left.iter().all(is_ours) {
            return;
        }
        // A change of nothing but ephemeral fields became no record.
        let receipt = |change: &Change| {
            let at = left.iter().position(|record| Self::is_of(change, record));
            let record = at.map(|at| left.remove(at));
            Receipt {
                seq: record.map(|record| record.seq),
                writer: writer.clone(),
                entity_rev: record.and_then(|record| record.entity_rev),
                batch: record.map(|record| record.batch.id.as_str().to_owned()),
                duplicate: false,
            }
        };
        self.receipts = Some(self.request.changes.iter().map(receipt).collect());
    }

    fn damage(&mut self, _: Damage) {}
}

/// JN-01: a change of an entity is never answered without its revision; whoever asks is told that it is not known.
fn checked(request: &Request, mode: Mode, receipts: &[Receipt]) -> Result<(), JournalError> {
    let is_answered = |(change, receipt): (&Change, &Receipt)| {
        receipt.seq.is_none() || receipt.entity_rev.is_some() || !change.is_of_entity(mode)
    };
    let mut pairs = request.changes.iter().zip(receipts);
    if receipts.len() == request.changes.len() && pairs.all(is_answered) {
        return Ok(());
    }
    let reason = "its answer names no revision".to_owned();
    Err(JournalError::Unknown(Box::new(JournalError::Refused(
        reason,
    ))))
}

impl<'j> Session<'j> {
    /// Commits a request and those of the processes that wait.
    pub(crate) fn lead(mut self, own: &Request) -> Result<Committed<'j>, JournalError> {
        if self.bytes >= self.journal.settings.roll_bytes {
            self.roll()?;
        }
        let mut plan = Plan::default();
        self.index = self.revisions();
        if let Some(index) = &mut self.index {
            index.hold(own.changes.len());
        }
        let own = self.admit(&mut plan, own)?;
        let mut guests = Vec::new();
        for (ticket, request) in self.guests()? {
            match self.admit(&mut plan, &request) {
                Ok(admitted) => guests.push((ticket, admitted)),
                Err(error) => self.tell(&ticket, &Answer::of(error)),
            }
        }
        self.index = None;
        let written = if plan.drafts.is_empty() {
            None
        } else {
            Some(self.write(&plan.drafts)?)
        };
        for (ticket, admitted) in guests {
            let receipts = admitted.receipts(&plan, written.as_ref());
            self.tell(&ticket, &Answer::Receipts(receipts));
        }
        self.unannotated += plan.unannotated;
        let receipts = own.receipts(&plan, written.as_ref());
        Ok(Committed::new(self, written, plan.ephemeral, receipts))
    }

    /// A waiter that gets no answer finds out from the journal, so a failed answer is no failure.
    fn tell(&self, ticket: &Ticket, answer: &Answer) {
        if let Ok(bytes) = serde_json::to_vec(answer) {
            let _ = replace(self.journal.disk(), &ticket.answer, &bytes, false);
        }
    }

    /// Claims the requests of living processes, oldest first; those of the dead go.
    fn guests(&self) -> Result<Vec<(Ticket, Request)>, JournalError> {
        let journal = self.journal;
        let queue = journal.layout.queue();
        let mut guests = Vec::new();
        let mut bytes_left = GUEST_BYTES_MAX;
        for entry in journal.disk().list(&queue).at(&queue)? {
            let Some((id, kind)) = entry.name.split_once('.') else {
                continue;
            };
            let ticket = Ticket::new(journal, id);
            let own = ticket.taken.with_extension("own");
            if kind == "own" {
                // Its owner is gone when the lock can be had.
                if let Ok(Some(guard)) = journal.disk().try_lock(&own) {
                    ticket.clear(journal);
                    let _ = journal.disk().remove(&own);
                    drop(guard);
                }
                continue;
            }
            if matches!(kind, "ans" | "taken") {
                // Its owner, who was there before it asked, gave up before the answer came.
                if journal.disk().len(&own).at(&own)?.is_none() {
                    ticket.clear(journal);
                }
                continue;
            }
            if kind != "req" || guests.len() >= GUESTS_MAX {
                continue;
            }
            let Ok(Some(bytes)) = read_if_there(journal.disk(), &ticket.request, bytes_left as u64)
            else {
                continue;
            };
            let Ok(request) = serde_json::from_slice::<Request>(&bytes) else {
                continue;
            };
            if journal.disk().len(&own).at(&own)?.is_some()
                && journal
                    .disk()
                    .rename(&ticket.request, &ticket.taken)
                    .is_ok()
            {
                bytes_left -= bytes.len();
                guests.push((ticket, request));
            }
        }
        Ok(guests)
    }
}
