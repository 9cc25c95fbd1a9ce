//! Which store this is among those that exchange slices. Lives beside the segments, so that a git clone is another one.

use serde::{Deserialize, Serialize};

use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::SEQ_MAX;
use crate::journal::Journal;
use crate::session::Session;
use crate::stamp::{self, Stamp};

use super::provenance::is_origin_id;

const ORIGIN_BYTES_MAX: u64 = 4096;
const ORIGIN_VERSION: u8 = 1;
/// How far ahead of the records it is said up to where seqs are given, and how often that is looked at.
const GIVEN_AHEAD: u64 = 1 << 15;
const GIVEN_STEP: u64 = 1 << 13;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    v: u8,
    pub origin_id: String,
    /// Raised when the store was restored from a copy: its seqs are then given a second time.
    pub origin_epoch: u64,
}

/// The file: the name, and up to where this store may have given seqs.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    origin: Origin,
    /// Ahead of the records, so that it is written once in thousands of them. Of an older build there is none.
    #[serde(default)]
    given_to: u64,
}

/// Whether a store becomes another one before it exports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Renew {
    #[default]
    No,
    /// It was restored from a copy.
    Epoch,
    /// It is a copy that lives on beside the first one.
    Origin,
}

impl Journal {
    /// None where this store never exchanged a slice.
    pub fn origin(&self) -> Result<Option<Origin>, JournalError> {
        Ok(self.kept_origin()?.map(|kept| kept.origin))
    }

    /// No seq behind this one was ever given; 0 where nobody says.
    pub(crate) fn given_to(&self) -> u64 {
        let kept = self.kept_origin().ok().flatten();
        kept.map_or(0, |kept| kept.given_to)
    }

    fn kept_origin(&self) -> Result<Option<Kept>, JournalError> {
        let path = self.layout.origin();
        let Some(bytes) = read_if_there(self.disk(), &path, ORIGIN_BYTES_MAX).at(&path)? else {
            return Ok(None);
        };
        let damaged = |reason: String| JournalError::Damaged {
            path: path.clone(),
            reason,
        };
        if stamp::look(&bytes) == Stamp::Wrong {
            // One flipped bit would be another store's name: all that this one ever shared would come a second time.
            return Err(damaged(
                "its checksum does not match; put a copy of it back, or `heddle journal export-slice --new-origin` makes a new one".to_owned(),
            ));
        }
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        let origin = &kept.origin;
        let is_known = origin.v == ORIGIN_VERSION && kept.given_to <= SEQ_MAX + GIVEN_AHEAD;
        if !is_known || !is_origin_id(&origin.origin_id) {
            return Err(damaged(
                "no origin that this build knows; `heddle journal export-slice --new-origin` makes a new one".to_owned(),
            ));
        }
        Ok(Some(kept))
    }
}

impl Session<'_> {
    /// This store's name, made when it is first needed; on the disk before anybody hears of it.
    pub(crate) fn origin(&self, renew: Renew) -> Result<Origin, JournalError> {
        let journal = self.journal;
        let held = match renew {
            // A new name needs no old one, whatever became of it.
            Renew::Origin => None,
            Renew::No | Renew::Epoch => journal.kept_origin()?,
        };
        let (held, given_to) = held.map_or((None, 0), |kept| (Some(kept.origin), kept.given_to));
        let fresh = match (held, renew) {
            (Some(origin), Renew::No) if self.is_given(given_to) => return Ok(origin),
            (Some(origin), Renew::No) => origin,
            (Some(origin), Renew::Epoch) => Origin {
                origin_epoch: origin.origin_epoch + 1,
                ..origin
            },
            (None, _) | (Some(_), Renew::Origin) => {
                let mut nonce = [0; 8];
                journal.world.ids.fill(&mut nonce);
                let digits: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
                Origin {
                    v: ORIGIN_VERSION,
                    origin_id: format!("org_{digits}"),
                    origin_epoch: 1,
                }
            }
        };
        self.put_origin(fresh.clone())?;
        Ok(fresh)
    }

    fn put_origin(&self, origin: Origin) -> Result<(), JournalError> {
        let journal = self.journal;
        let given_to = journal.given_to().max(self.next_seq + GIVEN_AHEAD);
        let path = journal.layout.origin();
        let bytes = stamp::stamped(&Kept { origin, given_to })?;
        replace(journal.disk(), &path, &bytes, true).at(&path)
    }

    /// Behind an answer, before the seqs come near to what the name says of them. It is synced, once in thousands of records.
    pub(crate) fn give_more(&self, first_seq: u64) -> Result<(), JournalError> {
        if first_seq / GIVEN_STEP == self.next_seq / GIVEN_STEP {
            return Ok(());
        }
        self.give_on()
    }

    /// The same, wherever the seqs are.
    pub(crate) fn give_on(&self) -> Result<(), JournalError> {
        // One that is damaged is told to whoever needs the name, and keeps nobody from recording.
        match self.journal.kept_origin().ok().flatten() {
            Some(kept) if !self.is_given(kept.given_to) => self.put_origin(kept.origin),
            _ => Ok(()),
        }
    }

    /// Whether that lasts for a while.
    fn is_given(&self, given_to: u64) -> bool {
        given_to >= self.next_seq + GIVEN_STEP * 2
    }
}
