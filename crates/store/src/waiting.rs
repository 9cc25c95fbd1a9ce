//! The steps of the schema that wait for a store, looked at without changing a byte: whether a start can take them.

use std::path::Path;

use heddle_sqlite::{Trial, try_steps};

use crate::schema;

/// A store up to this size is tried with its rows by whoever wants an answer at once.
pub const TRIED_AT_ONCE_BYTES_MAX: u64 = 4 << 20;
/// And by whoever reads every page of it anyway.
pub const TRIED_BYTES_MAX: u64 = 64 << 20;

/// What a start would make of the steps that wait; `None` where none does. `bytes_max`: a larger store is tried without
/// its rows.
pub fn waiting_steps(data: &Path, bytes_max: u64) -> Option<Trial> {
    heddle_sqlite::link_vectors().ok()?;
    heddle_sqlite::refuse_misplaced(data).ok()?;
    try_steps(data, schema::MIGRATIONS, bytes_max)
}

/// Why no start can go on with the file, if a step is in the way of it.
pub(crate) fn refused_step(data: &Path) -> Option<String> {
    let trial = waiting_steps(data, TRIED_BYTES_MAX)?;
    let refused = trial.refused?;
    Some(format!(
        "migration {} ({}) cannot be taken: {}",
        refused.version, refused.name, refused.reason
    ))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::undo::tests::at;

    /// A false alarm would keep a person from a start that goes well.
    #[test]
    fn lf_35_the_steps_that_wait_for_a_file_of_any_version_are_taken_by_the_trial() {
        let folder = tempfile::tempdir().unwrap();
        for version in 1..=schema::newest() {
            let path = at(folder.path(), version);
            for bytes_max in [u64::MAX, 0] {
                let trial = waiting_steps(&path, bytes_max);
                if version == schema::newest() {
                    assert_eq!(trial, None);
                    continue;
                }
                let trial = trial.unwrap();
                assert_eq!(trial.refused, None, "{version}");
                assert_eq!((trial.found, trial.known), (version, schema::newest()));
                assert_eq!(trial.with_rows, bytes_max > 0);
            }
        }
    }

    #[test]
    fn lf_35_what_is_in_the_way_of_a_step_is_told_in_words_and_not_a_byte_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let strays = [
            (10, "CREATE TABLE vector_digest (x)", "vector_digest"),
            (
                24,
                "ALTER TABLE vector_metadata ADD COLUMN digest BLOB",
                "row_digest",
            ),
        ];
        for (version, stray, name) in strays {
            let path = at(folder.path(), version);
            Connection::open(&path)
                .unwrap()
                .execute_batch(stray)
                .unwrap();
            let before = std::fs::read(&path).unwrap();
            for bytes_max in [u64::MAX, 0] {
                let refused = waiting_steps(&path, bytes_max).unwrap().refused.unwrap();
                assert_eq!(refused.name, name);
                assert!(!refused.reason.contains("CREATE"), "{refused:?}");
            }
            assert!(refused_step(&path).unwrap().contains(name));
            assert_eq!(std::fs::read(&path).unwrap(), before);
        }
    }

    /// Only a trial with the rows meets one that is in the way.
    #[test]
    fn a_row_that_is_in_the_way_is_met_where_the_rows_came_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = at(folder.path(), 24);
        let noted = "INSERT INTO _migrations (version, name) VALUES (25, 'row_digest')";
        Connection::open(&path).unwrap().execute(noted, []).unwrap();
        let refused = |bytes_max| waiting_steps(&path, bytes_max).unwrap().refused;
        assert!(refused(u64::MAX).is_some());
        assert!(refused(0).is_none());
    }
}
