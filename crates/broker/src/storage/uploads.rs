//! The upload of a snapshot (local-first §9.3): rows that lie apart until the last of them is there, and become
//! ops of the log in one transaction.
//!
//! **Never half.** What is staged is in no table that anybody reads. The commit takes all of it through the one
//! accept, in the order in which it came, and everybody sees it at once (LF-34).
//!
//! **Of any size.** A commit takes as many rows as fit into a short transaction, deletes them where they were staged,
//! and says [`UploadVerdict::Going`] while some are left: whoever asked asks again. More rows than one transaction takes
//! are hidden, by the first of them, behind the place where the log ended; the last one shows them. A crash in between
//! leaves them hidden, and the next commit goes on. What was heard when its commit began is accepted to its end.
//!
//! **Idempotent and resumable.** A part names the cursor behind which it goes. One that does not fit changes
//! nothing and is told where the upload stands; so is whoever begins it again. A commit that comes again gets
//! the first answer.
//!
//! **Of one member.** Each member has one upload; another begun in its place throws its staged rows away, unless they
//! are being shown: then that comes to its end first ([`UploadVerdict::Ending`]).
//!
//! **Not for ever.** An upload that nobody touched since a time is swept, with all of its rows; one that is being shown
//! is not.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, HistoryId, MemberId, MeshId, OpId};
use heddle_core::limits::BATCH_BYTES_MAX;
use heddle_core::names::MemberName;

use super::contract::Answer;
use super::left_out::LeftOut;
use super::rows::{Accepted, Destination, NewMessage, SendId};
use super::snapshots::{self, Kept, before, hidden};

/// Staged rows that one transaction of a commit takes.
pub(super) const COMMIT_ROWS_AT_ONCE: usize = 512;
/// And so many bytes of their envelopes, but at least one row.
pub(super) const COMMIT_BYTES_AT_ONCE: usize = BATCH_BYTES_MAX;
/// Staged rows that one transaction throws away.
pub(super) const DISCARD_ROWS_AT_ONCE: usize = 4096;
/// The id of an upload that is being thrown away: nobody can go on with it.
pub(super) const DISCARDED: OpId = OpId::from_bytes([0; 16]);

/// Some rows, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadPart {
    /// Where the upload stands for whoever sends it.
    pub after: u64,
    /// Where it stands with these rows; some in between may have been left out.
    pub through: u64,
    pub rows: Vec<NewMessage>,
    pub now: WallMs,
}

/// What makes the staged rows messages of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadEnd {
    /// Everything up to here must have been staged.
    pub through: u64,
    pub sender_name: MemberName,
    pub at: WallMs,
    pub expires_at: Option<WallMs>,
}

impl UploadEnd {
    /// A staged row as a message of now.
    pub(super) fn message(
        &self,
        id: SendId,
        wire_fingerprint: Fingerprint,
        broker_message_id: BrokerMessageId,
        envelope: Box<str>,
    ) -> NewMessage {
        NewMessage {
            is_heard: false,
            id,
            sender_name: self.sender_name.clone(),
            wire_fingerprint,
            broker_message_id,
            destination: Destination::Log,
            priority: Priority::Next,
            mentions: Vec::new(),
            envelope,
            accepted_at: self.at,
            expires_at: self.expires_at,
            limiter: None,
            epoch: None,
            session: None,
        }
    }
}

/// What a commit has shown to everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The place of the first op; where the next one would have gone if every one was known already.
    pub first: HistoryId,
    pub row_count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadVerdict {
    /// It is open, and has everything up to this cursor.
    Through(u64),
    /// Everybody sees it, since now.
    Committed(Shown),
    /// The same, since before.
    Shown(Shown),
    /// There is more to do than one transaction takes: ask again.
    Going,
    /// Another upload of the member is being shown, with everything up to this cursor: its commit comes first.
    Ending(OpId, u64),
    /// Somebody else's snapshot is being shown: later.
    Waits,
    /// Nothing of this id is here: it was swept, replaced, or never begun.
    Unknown,
    /// The member is not heard any more.
    Barred,
}

pub trait Uploads: Send + Sync + 'static {
    fn begin_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        now: WallMs,
    ) -> impl Future<Output = Answer<UploadVerdict>> + Send;

    fn stage_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        part: UploadPart,
    ) -> impl Future<Output = Answer<UploadVerdict>> + Send;

    /// One step of a commit.
    fn commit_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        end: UploadEnd,
    ) -> impl Future<Output = Answer<UploadVerdict>> + Send;

    /// The upload of a member whose commit has begun and not come to its end, with its cursor.
    fn ending_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
    ) -> impl Future<Output = Answer<Option<(OpId, u64)>>> + Send;

    /// What the commit of the member's upload has passed over, so far; nothing where its upload is another one.
    fn upload_left_out(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
    ) -> impl Future<Output = Answer<LeftOut>> + Send;

    /// Throws uploads away that were not touched since a time; how many were still open.
    fn sweep_uploads(
        &self,
        mesh: MeshId,
        before: WallMs,
    ) -> impl Future<Output = Answer<usize>> + Send;
}

/// An upload as a store holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Upload {
    pub(super) id: OpId,
    pub(super) through: u64,
    pub(super) row_count: u64,
    pub(super) byte_count: u64,
    pub(super) touched_at: WallMs,
    /// What its commit has accepted so far.
    pub(super) shown: Option<Shown>,
    /// Rows of it are staged.
    pub(super) has_rows: bool,
}

impl Upload {
    /// Its commit has begun, and some rows are left.
    pub(super) fn is_ending(&self) -> bool {
        self.shown.is_some() && self.has_rows
    }

    /// The head while its rows are thrown away.
    pub(super) fn discarded(self) -> Self {
        Self {
            id: DISCARDED,
            through: 0,
            shown: None,
            ..self
        }
    }

    fn verdict(&self) -> UploadVerdict {
        match self.shown {
            Some(shown) if !self.has_rows => UploadVerdict::Shown(shown),
            _ => UploadVerdict::Through(self.through),
        }
    }
}

/// Whether a step of a commit takes another row behind so many.
pub(super) fn takes_more(rows: usize, bytes: usize) -> bool {
    rows == 0 || (rows < COMMIT_ROWS_AT_ONCE && bytes < COMMIT_BYTES_AT_ONCE)
}

/// What a store does about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Todo {
    /// Nothing but to answer.
    Answer(UploadVerdict),
    /// To keep this in the place of what is there, and what the step brings.
    Keep(Upload),
}

/// A begin. IMPORTANT: where it keeps something, staged rows of the member go first.
pub(super) fn begun(kept: Option<Upload>, id: OpId, now: WallMs) -> Todo {
    match kept {
        Some(kept) if kept.id == id => Todo::Answer(kept.verdict()),
        Some(kept) if kept.is_ending() => {
            Todo::Answer(UploadVerdict::Ending(kept.id, kept.through))
        }
        _ => Todo::Keep(Upload {
            id,
            through: 0,
            row_count: 0,
            byte_count: 0,
            touched_at: now,
            shown: None,
            has_rows: false,
        }),
    }
}

/// A part: kept behind what is there, or not at all.
pub(super) fn staged(kept: Option<Upload>, id: OpId, part: &UploadPart) -> Todo {
    let Some(kept) = kept.filter(|kept| kept.id == id) else {
        return Todo::Answer(UploadVerdict::Unknown);
    };
    if kept.shown.is_some() || part.after != kept.through || part.through <= part.after {
        return Todo::Answer(kept.verdict());
    }
    let bytes = part.rows.iter().map(|row| row.envelope.len());
    Todo::Keep(Upload {
        through: part.through,
        row_count: kept.row_count + count(part.rows.len()),
        byte_count: kept.byte_count + bytes.map(count).sum::<u64>(),
        touched_at: part.now,
        ..kept
    })
}

/// Somebody else's snapshot is open.
pub(super) struct HasToWait;

/// What becomes of the mesh's snapshot with a step of a commit.
pub(super) fn fence(
    open: Option<Kept>,
    (id, by): (OpId, MemberId),
    next: HistoryId,
    has_more: bool,
) -> Result<Option<Kept>, HasToWait> {
    if has_more {
        hidden(open, id, by, before(next))
            .map(Some)
            .ok_or(HasToWait)
    } else {
        Ok(snapshots::committed(open, id, by).1)
    }
}

/// A step of a commit: the upload whose next rows are to be accepted now, or the answer.
pub(super) fn committed(
    kept: Option<Upload>,
    id: OpId,
    end: &UploadEnd,
) -> Result<Upload, UploadVerdict> {
    match kept.filter(|kept| kept.id == id) {
        None => Err(UploadVerdict::Unknown),
        Some(kept) if kept.through != end.through => Err(kept.verdict()),
        Some(kept) if kept.shown.is_some() && !kept.has_rows => Err(kept.verdict()),
        Some(kept) => Ok(kept),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// What the accept made of staged rows so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    first: Option<HistoryId>,
    row_count: u64,
    is_barred: bool,
    left_out: LeftOut,
}

impl Outcome {
    /// What the steps before have accepted.
    pub(super) fn of(shown: Option<Shown>) -> Self {
        let accepted = shown.filter(|shown| shown.row_count > 0);
        Self {
            first: accepted.map(|shown| shown.first),
            row_count: accepted.map_or(0, |shown| shown.row_count),
            ..Self::default()
        }
    }

    /// One whose id is known, or that the tables refuse, is passed over. Where it is not known as what it is, it is noted: a
    /// home that sends it by itself hears why, and whoever uploads by hand is told with the commit.
    pub(super) fn add<'i>(
        &mut self,
        ids: impl IntoIterator<Item = &'i SendId>,
        accepted: &[Accepted],
    ) {
        for (id, one) in ids.into_iter().zip(accepted) {
            match one {
                Accepted::Created { history_id, .. } => {
                    self.first.get_or_insert(*history_id);
                    self.row_count += 1;
                }
                Accepted::Barred(_) => self.is_barred = true,
                other => self.left_out.note(id, other),
            }
        }
    }

    /// All rows are of one member: it is barred with the first or not at all.
    pub(super) fn is_barred(&self) -> bool {
        self.is_barred
    }

    /// Of this step.
    pub(super) fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    pub(super) fn shown(&self, next: HistoryId) -> Shown {
        Shown {
            first: self.first.unwrap_or(next),
            row_count: self.row_count,
        }
    }
}
