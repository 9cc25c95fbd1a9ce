//! A batch: drafts become lines, one buffer, one write, one sync.

use std::sync::Arc;

use crate::action::Action;
use crate::error::JournalError;
use crate::format::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, ENVELOPE_VERSION, SEQ_MAX};
use crate::journal::{Journal, Who};
use crate::meta::Position;
use crate::notes::MetaPayload;
use crate::record::{Batch, PayloadRef, Record, RequestRef};
use crate::registry::JOURNAL;
use crate::requests::Key;
use crate::session::Session;

/// A record without its payload; only what is reserved hangs on it.
const ENVELOPE_BYTES_USUAL: usize = 512;

/// A record that is about to be written; the session gives it seq, time and batch.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) action: Action,
    pub(crate) item_type: String,
    pub(crate) item_id: Option<String>,
    pub(crate) entity_rev: Option<u64>,
    pub(crate) summary: Option<String>,
    /// The text of a document, as [`to_text`](crate::text::to_text) writes it.
    pub(crate) payload: Option<String>,
    pub(crate) blob: Option<(String, u64)>,
    /// The request that it answers.
    pub(crate) key: Option<Key>,
    pub(crate) by: Arc<By>,
}

/// Who writes; one for all records of a request.
#[derive(Debug)]
pub(crate) struct By {
    pub(crate) who: Who,
    pub(crate) writer: String,
}

impl By {
    pub(crate) fn of(journal: &Journal) -> Arc<Self> {
        Self::of_who(journal, journal.who.clone())
    }

    pub(crate) fn of_who(journal: &Journal, who: Who) -> Arc<Self> {
        let writer = journal.writer.clone();
        Arc::new(Self { who, writer })
    }
}

/// A batch that is on the disk.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) batch: String,
    pub(crate) first_seq: u64,
    pub(crate) buffer: Vec<u8>,
    /// Where the buffer begins.
    pub(crate) base: Position,
}

impl Session<'_> {
    pub(crate) fn meta_draft(&self, payload: &MetaPayload) -> Result<Draft, JournalError> {
        let text = payload.to_json().map_err(JournalError::refused)?;
        Ok(Draft {
            action: payload.action(),
            item_type: JOURNAL.to_owned(),
            item_id: None,
            entity_rev: None,
            summary: None,
            payload: Some(text),
            blob: None,
            key: None,
            by: By::of(self.journal),
        })
    }

    /// One buffer, one write, one sync. When this returns, the batch is on the disk.
    pub(crate) fn write(&mut self, drafts: &[Draft]) -> Result<Written, JournalError> {
        if drafts.len() > BATCH_RECORDS_MAX {
            return Err(JournalError::Refused(format!(
                "a mutation has at most {BATCH_RECORDS_MAX} records"
            )));
        }
        if self.next_seq + drafts.len() as u64 > SEQ_MAX + 1 {
            return Err(JournalError::refused(
                "the next seq would be larger than any can be: a file of .heddle/events has a forged name or content; `ls .heddle/events/checkpoints` shows one whose number is far too large, which is moved away",
            ));
        }
        self.leave_sealed()?;
        let written = self.encode(drafts)?;
        self.append(&written.buffer)?;
        self.bytes += written.buffer.len() as u64;
        self.next_seq += drafts.len() as u64;
        self.recorded_to = self.next_seq - 1;
        Ok(written)
    }

    fn encode(&self, drafts: &[Draft]) -> Result<Written, JournalError> {
        let batch = self.journal.world.ids.ulid().to_string();
        let ts = self.journal.world.clock.wall().to_rfc3339();
        let n = u32::try_from(drafts.len()).unwrap_or(u32::MAX);
        let texts = drafts.iter().filter_map(|draft| draft.payload.as_ref());
        let texts: usize = texts.map(String::len).sum();
        let mut buffer = Vec::with_capacity(texts + drafts.len() * ENVELOPE_BYTES_USUAL);
        for (i, draft) in (0..n).zip(drafts) {
            let record = Record {
                v: ENVELOPE_VERSION,
                seq: self.next_seq + u64::from(i),
                ts: ts.as_str().into(),
                writer: draft.by.writer.as_str().into(),
                agent: draft.by.who.agent.as_str().into(),
                agent_id: draft.by.who.agent_id.as_deref().map(Into::into),
                user: draft.by.who.user.as_deref().map(Into::into),
                action: draft.action,
                item_type: draft.item_type.as_str().into(),
                item_id: draft.item_id.as_deref().map(Into::into),
                entity_rev: draft.entity_rev,
                summary: draft.summary.as_deref().map(Into::into),
                payload: None,
                payload_ref: draft.blob.as_ref().map(|(sha256, bytes)| PayloadRef {
                    sha256: sha256.as_str().into(),
                    bytes: *bytes,
                }),
                redacted: None,
                request: draft.key.as_ref().map(|key| RequestRef {
                    id: key.id.as_str().into(),
                    sha256: Some(key.sha256.as_str().into()),
                }),
                batch: Batch {
                    id: batch.as_str().into(),
                    i,
                    n,
                },
            };
            record.check_with(draft.payload.is_some(), self.journal.mode)?;
            record.encode_with(draft.payload.as_deref(), &mut buffer)?;
        }
        if buffer.len() > BATCH_BYTES_MAX {
            return Err(JournalError::Refused(format!(
                "the mutation has {} bytes; the most is {BATCH_BYTES_MAX}",
                buffer.len()
            )));
        }
        Ok(Written {
            batch,
            first_seq: self.next_seq,
            buffer,
            base: self.end(),
        })
    }
}
