//! How old what a mesh holds certainly is: every so often a note says "everything up to this place existed when the mesh
//! was so old". A message is born at the first note behind it, so it never looks older than it is.
//!
//! Ages are of the age clock (`core::age`), which no wall clock moves (C18, XC-05).

use std::time::Duration;

use heddle_core::ids::HistoryId;

/// The notes of a mesh, in rising order of place and age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Births(Vec<(HistoryId, Duration)>);

impl Births {
    pub(super) fn new(notes: Vec<(HistoryId, Duration)>) -> Self {
        Self(notes)
    }

    /// Whether what stands at this place was kept for longer than it has to be.
    pub(super) fn is_over(&self, place: HistoryId, kept: Duration, age: Duration) -> bool {
        let first = self.0.partition_point(|(through, _)| *through < place);
        let born = self.0.get(first).map(|(_, born)| *born);
        let old = born.and_then(|born| age.checked_sub(born));
        old.is_some_and(|old| old > kept)
    }
}

/// How long a row is kept, by the two times that it was written with.
pub(super) fn kept(first_seen_ms: i64, expires_ms: i64) -> Duration {
    let ms = expires_ms.saturating_sub(first_seen_ms);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A duration as a cell.
pub(super) fn cell(age: Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

/// And back.
pub(super) fn of_cell(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(seq: u64) -> HistoryId {
        HistoryId { epoch: 1, seq }
    }

    #[test]
    fn br_12_xc_05_nothing_is_over_before_its_time_has_certainly_passed() {
        let ms = Duration::from_millis;
        let births = Births::new(vec![(place(3), ms(100)), (place(5), ms(200))]);
        let table = [
            ("younger than every note", 6, 0, 9_999, false),
            ("born with the second note", 4, 50, 250, false),
            ("a moment later", 4, 50, 251, true),
            ("born with the first note", 3, 50, 151, true),
            ("the clock has not come so far", 4, 0, 150, false),
        ];
        for (name, seq, kept, age, expected) in table {
            let is_over = births.is_over(place(seq), ms(kept), ms(age));
            assert_eq!(is_over, expected, "{name}");
        }
        assert!(!Births::default().is_over(place(1), ms(0), Duration::MAX));
        assert_eq!(kept(10, 5), Duration::ZERO);
        assert_eq!(of_cell(cell(ms(7))), ms(7));
    }
}
