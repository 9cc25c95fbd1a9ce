//! The way out of drift: every projection anew from the journal; whatever stood there is kept aside.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::verify::{Cause, Divergence};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Entities that the journal holds.
    pub entities: u64,
    /// Files and index entries that were not as the journal has them.
    pub mended: u64,
    /// Blobs that were lost or damaged, and were put back from a copy.
    #[serde(skip_serializing_if = "is_zero")]
    pub blobs: u64,
    /// What stood in the wrong place, now under `.heddle/events/quarantine/`.
    pub kept_aside: Vec<String>,
    /// What no rebuild mends: content that is lost and of which no copy is left, a type that is not here, records that contradict
    /// each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmended: Vec<Divergence>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Journal {
    /// Files and revision index as the journal has them. Nothing is thrown away, and no record is changed.
    pub fn restore(&self) -> Result<Restored, JournalError> {
        self.must_be_on()?;
        let mut session = self.session()?;
        let before = self.quarantined()?;
        let found = self.verify_once()?.divergent;
        let rebuilt = self.rebuild(0)?;
        if let Some(path) = self.lost_base(&rebuilt.replay.gaps)? {
            // IMPORTANT: what it held would be moved aside as a file that nobody knows.
            return Err(JournalError::BaseGone(path));
        }
        // IMPORTANT: before the files. One of them may be the last copy.
        let blobs = self.heal_blobs(&rebuilt.replay)?;
        let rebuilt = if blobs > 0 {
            // A checkpoint that names one of them can be built on again.
            self.rebuild(0)?
        } else {
            rebuilt
        };
        for (folder, name) in self.strangers(&rebuilt.replay)? {
            let id = name.strip_suffix(".json").unwrap_or(&name);
            if self.is_lost_hold(&rebuilt.replay, &folder, id)? {
                continue;
            }
            self.park_as(&self.layout.family(&folder).join(&name), &folder, &name)?;
        }
        // One that is sound is asked about what the journal has lost, and about nothing else.
        let index = self.layout.revisions();
        let is_sound = session.revisions().is_some_and(|old| old.is_readable());
        if !is_sound && self.disk().len(&index).at(&index)?.is_some() {
            self.disk().remove(&index).at(&index)?;
        }
        session.reconcile_anew()?;
        let now = self.quarantined()?;
        let unmended = self.verify_once()?.divergent;
        let is_drift = |one: &&Divergence| one.cause == Cause::File && !unmended.contains(one);
        Ok(Restored {
            entities: rebuilt.replay.live_count(),
            mended: found.iter().filter(is_drift).count() as u64,
            blobs,
            unmended,
            kept_aside: now.difference(&before).cloned().collect(),
        })
    }

    fn quarantined(&self) -> Result<BTreeSet<String>, JournalError> {
        let folder = self.layout.quarantine();
        let entries = self.disk().list(&folder).at(&folder)?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }
}
