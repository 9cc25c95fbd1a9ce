//! Which reservations hold, where records may be lost: a table, and what it is asked about.
//!
//! The list is written before a reservation's record and the file behind it, so each of them still knows of one whose record is
//! lost. Whoever asks is told too much rather than too little: a path that is reserved in vain is free again when its time ends.

use std::collections::BTreeSet;

use heddle_core::clock::WallMs;

use super::{CLAIM, Reservation, live};
use crate::error::JournalError;
use crate::journal::Journal;

/// What a witness says of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Says {
    Nothing,
    Holds,
    /// Given back, over, or deleted.
    Over,
}

/// Of one reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    journal: Says,
    file: Says,
    is_listed: bool,
    /// Records are lost, and nobody has accepted that.
    is_lossy: bool,
    /// The revision index has seen another document of it than the file: an older copy, or one that somebody edited.
    is_other: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Verdict {
    Free,
    AsRecorded,
    /// Its record is lost.
    AsFiled,
    /// Its record is lost, and no file is left that says what was in it.
    Unsure,
}

#[allow(clippy::match_same_arms, reason = "each row has a reason of its own")]
fn decide(seen: Seen) -> Verdict {
    match (seen.journal, seen.file, seen.is_lossy) {
        (Says::Holds, _, _) => Verdict::AsRecorded,
        // The list has it and so has a file of ours: there was a record, whoever lost it. A file alone is one that git brought.
        (Says::Nothing, Says::Holds, false) if seen.is_listed => Verdict::AsFiled,
        (_, _, false) => Verdict::Free,
        // The newest record is lost, and the file is not what it said: neither whether it holds nor what.
        (_, Says::Holds | Says::Over, true) if seen.is_other => Verdict::Unsure,
        // The record that made it hold again may be among the lost.
        (_, Says::Holds, true) => Verdict::AsFiled,
        // The file is the newest that was recorded.
        (_, Says::Over, true) => Verdict::Free,
        (_, Says::Nothing, true) if seen.is_listed => Verdict::Unsure,
        (_, Says::Nothing, true) => Verdict::Free,
    }
}

/// What is reserved, and how sure that is.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// With their ids.
    pub(super) claims: Vec<(String, Reservation)>,
    /// Lost places, where a reservation may have been among them that nothing else knows.
    pub(super) unsure: Option<Vec<[u64; 2]>>,
}

impl Held {
    /// Fails where there may be more than this.
    pub(super) fn sure(self) -> Result<Vec<(String, Reservation)>, JournalError> {
        match self.unsure {
            Some(lost) => Err(JournalError::ReservationsLost(lost)),
            None => Ok(self.claims),
        }
    }
}

impl Journal {
    pub(super) fn held(&self) -> Result<Held, JournalError> {
        let now = self.now();
        let listed = self.listed_claims()?;
        let mut held = Held::default();
        // Neither held nor known to be over by a journal that is whole.
        let mut doubtful = Vec::new();
        for id in self.claim_ids(listed.as_ref())? {
            // Through to the newest durable state, also while somebody writes (J3).
            match self.observe(CLAIM, &id) {
                Ok(shown) => match live(&shown.payload, now) {
                    Some(reservation) => held.claims.push((id, reservation)),
                    None => doubtful.push((id, Says::Over)),
                },
                Err(JournalError::NotFound { .. }) if self.is_known_gone(CLAIM, &id) => {
                    doubtful.push((id, Says::Over));
                }
                Err(JournalError::NotFound { .. } | JournalError::Lost { .. }) => {
                    doubtful.push((id, Says::Nothing));
                }
                Err(error) => return Err(error),
            }
        }
        self.judge(&mut held, doubtful, listed.as_ref(), now)?;
        held.claims.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(held)
    }

    fn judge(
        &self,
        held: &mut Held,
        mut doubtful: Vec<(String, Says)>,
        listed: Option<&BTreeSet<String>>,
        now: WallMs,
    ) -> Result<(), JournalError> {
        let mut lost = self.losses()?;
        let is_unknown = |(_, says): &(String, Says)| *says == Says::Nothing;
        if doubtful.iter().any(is_unknown) || !lost.is_empty() && !doubtful.is_empty() {
            // Rare, and worth a look at all of it: a record may be lost of which no cache knows yet, or be here again.
            let rebuilt = self.rebuild(0)?;
            let gaps = rebuilt.replay.gaps.open().into_iter();
            let fresh: Vec<[u64; 2]> = gaps.filter(|gap| !lost.contains(gap)).collect();
            lost.extend(fresh);
            // A record that was put back is not in the index yet, and counts.
            doubtful.retain_mut(|(id, says)| {
                let Some(entity) = rebuilt.replay.get(CLAIM, id) else {
                    return true;
                };
                *says = Says::Over;
                let document = self.document(CLAIM, &entity.body).ok();
                let found = document.and_then(|document| live(&document, now));
                let is_over = found.is_none();
                held.claims.extend(found.map(|held| (id.clone(), held)));
                is_over
            });
        }
        for (id, journal) in doubtful {
            let filed = self.projection(CLAIM, &id)?.and_then(Result::ok);
            let reservation = filed.as_ref().and_then(|document| live(document, now));
            let file = match (&filed, &reservation) {
                (None, _) => Says::Nothing,
                (Some(_), Some(_)) => Says::Holds,
                (Some(_), None) => Says::Over,
            };
            let is_listed = listed.is_some_and(|ids| ids.contains(&id));
            let newest = filed
                .as_ref()
                .and_then(|filed| self.is_newest_seen(CLAIM, &id, filed));
            let seen = Seen {
                journal,
                file,
                is_listed,
                is_lossy: !lost.is_empty(),
                // Without an index nobody knows whether it came from before.
                is_other: newest.map_or(is_listed && file == Says::Over, |is_newest| !is_newest),
            };
            match decide(seen) {
                Verdict::Free | Verdict::AsRecorded => {}
                Verdict::AsFiled => held.claims.extend(reservation.map(|held| (id, held))),
                Verdict::Unsure => {
                    held.claims.extend(reservation.map(|held| (id, held)));
                    held.unsure = Some(lost.clone());
                }
            }
        }
        if listed.is_none() && !lost.is_empty() {
            // Nothing is left that would have known of each of them.
            held.unsure = Some(lost);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_combination_frees_a_path_that_a_witness_of_a_lossy_journal_calls_held() {
        let says = [Says::Nothing, Says::Holds, Says::Over];
        let mut seen_count = 0;
        for journal in says {
            for file in says {
                for bits in 0..8_u8 {
                    let seen = Seen {
                        journal,
                        file,
                        is_listed: bits & 1 != 0,
                        is_lossy: bits & 2 != 0,
                        is_other: bits & 4 != 0,
                    };
                    let verdict = decide(seen);
                    seen_count += 1;
                    let is_free = verdict == Verdict::Free;
                    assert_eq!(verdict == Verdict::AsRecorded, journal == Says::Holds);
                    if seen.is_lossy && file == Says::Holds {
                        assert!(!is_free, "{seen:?}");
                    }
                    // A whole journal is believed, but for a reservation that two others know and it does not.
                    if !seen.is_lossy && journal == Says::Over {
                        assert!(is_free, "{seen:?}");
                    }
                    if verdict == Verdict::Unsure {
                        let is_nowhere = seen.is_listed && file == Says::Nothing;
                        assert!(seen.is_lossy && (is_nowhere || seen.is_other), "{seen:?}");
                    }
                    // An older file, or one that was edited, proves nothing.
                    if seen.is_lossy && seen.is_other && file != Says::Nothing {
                        assert!(!is_free, "{seen:?}");
                    }
                    if verdict == Verdict::AsFiled {
                        assert_eq!(file, Says::Holds, "{seen:?}");
                    }
                }
            }
        }
        assert_eq!(seen_count, 72);
    }
}
