//! Records of a newer build that stand in the journal: what they say is not known here, so nothing that they may decide is called certain.
//!
//! At the journal's end this build writes nothing behind them. In the middle, behind which the newer build wrote records that this one
//! knows, it goes on; the cache remembers in which segments they are, and whoever must know looks there: a build that
//! understands them by now finds none.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::error::JournalError;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::segments;
use crate::session::Session;

/// Segments that the cache holds; the newest, for what they may have changed is the most.
const SEGMENTS_MAX: usize = 64;

/// The segments among these places that hold some.
pub(crate) fn segments_of(damage: &[(u64, Damage)]) -> BTreeSet<u64> {
    let newer = damage.iter().filter(|(_, damage)| damage.is_newer());
    newer.map(|(segment, _)| *segment).collect()
}

/// What is remembered, with more of them.
pub(crate) fn remembered(known: &[u64], more: BTreeSet<u64>) -> Vec<u64> {
    let all: BTreeSet<u64> = known.iter().copied().chain(more).collect();
    let skipped = all.len().saturating_sub(SEGMENTS_MAX);
    all.into_iter().skip(skipped).collect()
}

/// The last of them: in which file, and its seq; `u64::MAX` where it does not say one as ours do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newer {
    pub(crate) segment: PathBuf,
    pub(crate) seq: u64,
}

impl Journal {
    /// What the cache remembers of them: all, where it is level. None, as a rule, by a look at one small file.
    pub(crate) fn newer_within(&self) -> Result<Option<Newer>, JournalError> {
        self.newer_among(self.cached_lost()?.newer)
    }

    /// The same with what stands at the journal's end.
    pub(crate) fn newer(&self) -> Result<Option<Newer>, JournalError> {
        let mut among = self.cached_lost()?.newer;
        let live = segments::live(self.disk(), &self.layout)?;
        if let Some(active) = live.last() {
            let tail = segments::tail(self.disk(), &self.layout, *active, None)?;
            if tail.is_newer {
                among.push(*active);
            }
        }
        self.newer_among(among)
    }

    fn newer_among(&self, mut among: Vec<u64>) -> Result<Option<Newer>, JournalError> {
        if among.is_empty() {
            return Ok(None);
        }
        let all = self.all_segments()?;
        among.retain(|first| all.binary_search(first).is_ok());
        let mut last = None;
        for first in among {
            let bytes = segments::read(self.disk(), &self.layout, first)?;
            let mut found = Last::default();
            scan(&bytes, 0, &mut found);
            if let Some(seq) = found.0 {
                let segment = self.segment_path(first)?;
                last = Some(Newer { segment, seq });
            }
        }
        Ok(last)
    }

    /// Before anything is done that one of them may decide.
    pub(crate) fn must_know_all(&self) -> Result<(), JournalError> {
        match self.newer()? {
            Some(newer) => Err(JournalError::Newer(newer.segment)),
            None => Ok(()),
        }
    }
}

impl Session<'_> {
    /// The same, by what a session knows already: there are none at the journal's end, or it had not begun.
    pub(crate) fn must_know_all(&self) -> Result<(), JournalError> {
        if self.lost.newer.is_empty() {
            return Ok(());
        }
        self.journal.must_know_all()
    }
}

#[derive(Default)]
struct Last(Option<u64>);

impl<'a> Sink<'a> for Last {
    fn batch(&mut self, _: &[Counted<'a>]) {}

    fn damage(&mut self, damage: Damage) {
        if damage.is_newer() {
            let seq = damage.newer_seq().unwrap_or(u64::MAX);
            self.0 = self.0.max(Some(seq));
        }
    }
}
