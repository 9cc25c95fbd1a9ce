//! Which store this is among those that exchange slices. Lives beside the segments, so that a git clone is another one.

use serde::{Deserialize, Serialize};

use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::session::Session;
use crate::stamp::{self, Stamp};

use super::provenance::is_origin_id;

const ORIGIN_BYTES_MAX: u64 = 4096;
const ORIGIN_VERSION: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    v: u8,
    pub origin_id: String,
    /// Raised when the store was restored from a copy: its seqs are then given a second time.
    pub origin_epoch: u64,
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
        let origin: Origin = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if origin.v != ORIGIN_VERSION || !is_origin_id(&origin.origin_id) {
            return Err(damaged(
                "no origin that this build knows; `heddle journal export-slice --new-origin` makes a new one".to_owned(),
            ));
        }
        Ok(Some(origin))
    }
}

impl Session<'_> {
    /// This store's name, made when it is first needed; on the disk before anybody hears of it.
    pub(crate) fn origin(&self, renew: Renew) -> Result<Origin, JournalError> {
        let journal = self.journal;
        let held = match renew {
            // A new name needs no old one, whatever became of it.
            Renew::Origin => None,
            Renew::No | Renew::Epoch => journal.origin()?,
        };
        let fresh = match (held, renew) {
            (Some(origin), Renew::No) => return Ok(origin),
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
        let path = journal.layout.origin();
        let bytes = stamp::stamped(&fresh)?;
        replace(journal.disk(), &path, &bytes, true).at(&path)?;
        Ok(fresh)
    }
}
