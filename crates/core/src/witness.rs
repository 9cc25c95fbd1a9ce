//! Whether a history is the one that somebody has seen: places, and which message stood there.
//!
//! A place is given out once. Where another message stands at a place that somebody knows, or where the history has not come
//! as far as somebody has seen, its past was replaced by an older one, and it has gone on from there. Behind the last place
//! at which both agree, nobody can tell the places of the one past from those of the other.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fingerprint::hex;
use crate::ids::{HistoryId, IdKey};

/// So many are named at once; more are refused.
pub const WITNESSES_MAX: usize = 64;
/// The newest ones are all named.
const NEWEST: u64 = 16;

/// A place, and the id of the message that stood there when it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Witness {
    pub place: HistoryId,
    pub id: IdKey,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a place with the id that stood there")]
pub struct NotAWitness;

/// `EPOCH.SEQ=KEY`, the key in hex.
impl From<Witness> for String {
    fn from(witness: Witness) -> Self {
        format!("{}={}", witness.place, hex(&witness.id.0))
    }
}

impl TryFrom<String> for Witness {
    type Error = NotAWitness;

    fn try_from(text: String) -> Result<Self, NotAWitness> {
        text.parse()
    }
}

impl FromStr for Witness {
    type Err = NotAWitness;

    fn from_str(text: &str) -> Result<Self, NotAWitness> {
        let (place, key) = text.split_once('=').ok_or(NotAWitness)?;
        let place: HistoryId = place.parse().map_err(|_| NotAWitness)?;
        let mut id = [0; 24];
        if !place.is_possible() || !key.is_ascii() || key.len() != id.len() * 2 {
            return Err(NotAWitness);
        }
        for (index, byte) in id.iter_mut().enumerate() {
            let two = key.get(index * 2..index * 2 + 2).ok_or(NotAWitness)?;
            *byte = u8::from_str_radix(two, 16).map_err(|_| NotAWitness)?;
        }
        let id = IdKey(id);
        Ok(Self { place, id })
    }
}

/// Of all that somebody knows, as many as are worth naming: the newest ones, and ever fewer of the older ones, so that a
/// history that parted long ago still agrees with one of them soon before.
pub fn choose(mut known: Vec<Witness>) -> Vec<Witness> {
    known.sort_unstable();
    known.dedup_by_key(|one| one.place);
    known.reverse();
    let ranks = distances().map_while(|rank| usize::try_from(rank).ok());
    let chosen = ranks.map_while(|rank| known.get(rank).copied());
    chosen.take(WITNESSES_MAX).collect()
}

/// Adds a place to those that are remembered, newest first, and lets go of what is not worth keeping beside it. However
/// many are added one by one: the newest are all there, the first one stays, and behind any place there is one not much
/// further away.
///
/// IMPORTANT: not by [`choose`], which goes by rank. Each one that is added pushes all others on by one, and so through a
/// rank that is not chosen: nothing would grow old.
pub fn remember(known: &mut Vec<Witness>, one: Witness) {
    known.push(one);
    known.sort_unstable_by(|a, b| b.cmp(a));
    known.dedup_by_key(|one| one.place);
    let newest = usize::try_from(NEWEST).unwrap_or(usize::MAX);
    let mut age: u64 = known.windows(2).take(newest - 1).map(gap).sum();
    let mut index = newest;
    while let (Some(near), Some(far)) = (known.get(index - 1..=index), known.get(index..=index + 1))
    {
        let (near, far) = (gap(near), gap(far));
        if near.saturating_add(far) <= age {
            known.remove(index);
        } else {
            age = age.saturating_add(near);
            index += 1;
        }
    }
    // Beyond any history that there will be.
    while known.len() > WITNESSES_MAX {
        known.remove(newest);
    }
}

/// How many places lie between two that follow on each other, the newer one first. Of an epoch that ended nobody knows here
/// how long it was: at least as much as came since.
fn gap(pair: &[Witness]) -> u64 {
    match pair {
        [near, far] if near.place.epoch == far.place.epoch => near.place.seq - far.place.seq,
        [near, ..] => near.place.seq,
        [] => 0,
    }
}

/// How far from the newest one each of them is.
pub fn distances() -> impl Iterator<Item = u64> {
    let next = |distance: &u64| {
        let step = (distance.saturating_sub(NEWEST - 2) / 2).max(1);
        distance.checked_add(step)
    };
    std::iter::successors(Some(0), next)
}

/// Where a history and what somebody has seen of it are not the same any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parting {
    /// The last place at which they agree.
    pub after: HistoryId,
    /// The first one at which they do not.
    pub at: HistoryId,
}

/// `None` where nothing speaks against a history. `head` is how far it has come, `at` says whose message stands at a place, if
/// that is known.
pub fn parting(
    witnesses: &[Witness],
    head: HistoryId,
    at: impl Fn(HistoryId) -> Option<IdKey>,
) -> Option<Parting> {
    let is_against =
        |one: &&Witness| one.place > head || at(one.place).is_some_and(|stands| stands != one.id);
    let first = witnesses
        .iter()
        .filter(is_against)
        .map(|one| one.place)
        .min()?;
    let agreed = witnesses
        .iter()
        .filter(|one| one.place < first && at(one.place) == Some(one.id));
    Some(Parting {
        after: agreed.map(|one| one.place).max().unwrap_or(HistoryId::ZERO),
        at: first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(epoch: u64, seq: u64) -> HistoryId {
        HistoryId { epoch, seq }
    }

    fn witness(epoch: u64, seq: u64, id: u8) -> Witness {
        Witness {
            place: place(epoch, seq),
            id: IdKey([id; 24]),
        }
    }

    /// A history of epoch 1 whose places hold the ids of `ids`, in order; 0 where the message is gone.
    fn parted(ids: &[u8], epoch: u64, seen: &[Witness]) -> Option<HistoryId> {
        let end = u64::try_from(ids.len()).unwrap();
        let head = place(epoch, if epoch == 1 { end } else { 0 });
        let parted = parting(seen, head, |at| {
            let index = usize::try_from(at.seq).unwrap().checked_sub(1)?;
            let id = ids.get(index).filter(|id| at.epoch == 1 && **id != 0)?;
            Some(IdKey([*id; 24]))
        })?;
        assert!(parted.at > parted.after);
        Some(parted.after)
    }

    #[test]
    fn lf_16_a_history_parts_where_it_last_agreed_with_what_was_seen() {
        let seen = [witness(1, 2, 2), witness(1, 4, 4), witness(1, 5, 5)];
        for (what, ids, epoch, expected) in [
            ("the same", &[1, 2, 3, 4, 5, 6][..], 1, None),
            ("just as far", &[1, 2, 3, 4, 5], 1, None),
            ("older", &[1, 2, 3], 1, Some(place(1, 2))),
            (
                "older, and gone on as far",
                &[1, 2, 3, 9, 8],
                1,
                Some(place(1, 2)),
            ),
            (
                "older, and gone on further",
                &[1, 2, 3, 9, 8, 7, 6],
                1,
                Some(place(1, 2)),
            ),
            (
                "older, and gone on a little",
                &[1, 2, 3, 9],
                1,
                Some(place(1, 2)),
            ),
            ("another one", &[9, 8, 7, 6, 5], 1, Some(HistoryId::ZERO)),
            ("empty", &[], 1, Some(HistoryId::ZERO)),
            // Its epoch ended before them: that is known, and its members have heard of it.
            ("older, in a new epoch", &[1, 2, 3], 2, None),
            (
                "gone on, and in a new epoch",
                &[1, 2, 3, 9],
                2,
                Some(place(1, 2)),
            ),
            // What was pruned says nothing.
            ("pruned", &[0, 0, 0, 0, 0, 6], 1, None),
            (
                "pruned before, and gone on",
                &[0, 0, 0, 9, 8],
                1,
                Some(HistoryId::ZERO),
            ),
        ] {
            assert_eq!(parted(ids, epoch, &seen), expected, "{what}");
        }
        assert_eq!(parted(&[1], 1, &[]), None);
    }

    #[test]
    fn the_newest_are_all_named_and_older_ones_at_ever_longer_distances() {
        let known = |count: u64| (1..=count).map(|seq| witness(1, seq, 1)).collect();
        for count in [0, 1, 5, NEWEST] {
            let chosen = choose(known(count));
            assert_eq!(u64::try_from(chosen.len()), Ok(count));
            assert!(chosen.is_sorted_by(|a, b| a.place > b.place));
        }
        let chosen = choose(known(100_000));
        assert!(chosen.len() < WITNESSES_MAX, "{}", chosen.len());
        let newest = chosen.iter().take(16).map(|one| one.place.seq);
        assert!(newest.eq((0..NEWEST).map(|rank| 100_000 - rank)));
        let last = chosen.last().unwrap().place.seq;
        assert!(last < 50_000, "{last}");
        // Behind any place there is one not much further away than it is from the end.
        for pair in chosen.windows(2) {
            let (near, far) = (100_000 - pair[0].place.seq, 100_000 - pair[1].place.seq);
            assert!(far <= near * 2 + 1, "{near} {far}");
        }
    }

    /// Over months, one by one: a history that parted long ago still agrees with one that was kept.
    #[test]
    fn lf_16_what_is_remembered_one_by_one_reaches_back_to_the_first() {
        for step in [1, 7, 1_000] {
            let mut known = Vec::new();
            let (mut epoch, mut seq, mut passed) = (1, 0, 0);
            for count in 1..=20_000_u64 {
                seq += step;
                passed += step;
                remember(&mut known, witness(epoch, seq, 1));
                assert!(known.len() <= WITNESSES_MAX, "{}", known.len());
                assert!(known.is_sorted_by(|a, b| a.place > b.place));
                // The newest are all there, and behind any place there is one not much further away than it is.
                let newest = known.iter().take(16).map(|one| one.place.seq);
                assert!(
                    count < 30 || epoch > 1 || newest.eq((0..16).map(|back| seq - back * step))
                );
                if count == 19_000 {
                    assert_eq!(known.last(), Some(&witness(1, step, 1)), "the first of all");
                    for pair in known.windows(2) {
                        let (near, far) = (passed - pair[0].place.seq, passed - pair[1].place.seq);
                        assert!(far <= near * 2 + 16 * step, "{near} {far}");
                    }
                    (epoch, seq) = (2, 0);
                }
            }
            assert_eq!(known.last(), Some(&witness(1, step, 1)), "in another epoch");
        }
        let mut known = vec![witness(1, 5, 1)];
        remember(&mut known, witness(1, 5, 1));
        remember(&mut known, witness(1, 4, 1));
        assert_eq!(known, [witness(1, 5, 1), witness(1, 4, 1)]);
    }

    #[test]
    fn a_witness_is_read_as_it_was_written_and_nothing_else_is_one() {
        let one = witness(3, 14, 0xab);
        let text = String::from(one);
        assert_eq!(text, format!("3.14={}", "ab".repeat(24)));
        assert_eq!(text.parse(), Ok(one));
        let key = "ab".repeat(24);
        for bad in [
            String::new(),
            "3.14".to_owned(),
            format!("3.14={}", &key[2..]),
            format!("3.14={key}00"),
            format!("3.14={}", "zz".repeat(24)),
            format!("3.14={}é", &key[2..]),
            format!("x={key}"),
            format!("18446744073709551615.1={key}"),
        ] {
            assert_eq!(bad.parse::<Witness>(), Err(NotAWitness), "{bad}");
        }
    }
}
