//! What a broker has seen of its histories, in a file beside its store: `broker.marks`.
//!
//! Whoever puts an older store back leaves it where it is, as a rule, and by that the broker knows. It is no part of what it
//! serves: without it, or with one that cannot be read, the broker starts as ever.

use std::path::{Path, PathBuf};

use heddle_broker::{KeepMarks, Marks};
use heddle_daemon::home::{read_plain, write_private};

const NAME: &str = "broker.marks";

/// Those of this folder; none where there are none.
pub fn read(folder: &Path) -> Marks {
    let file = place(folder);
    let Ok(text) = read_plain(&file) else {
        return Marks::default();
    };
    serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!(%error, file = %file.display(), "the marks of the histories cannot be read; they begin anew");
        Marks::default()
    })
}

pub fn keeper(folder: &Path) -> KeepMarks {
    let file = place(folder);
    Box::new(move |marks| {
        let text = serde_json::to_string(marks).unwrap_or_default();
        if let Err(error) = write_private(&file, &text) {
            tracing::warn!(%error, file = %file.display(), "the marks of the histories could not be kept");
        }
    })
}

fn place(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

#[cfg(test)]
mod tests {
    use heddle_core::ids::{HistoryId, IdKey, MeshId};
    use heddle_core::witness::Witness;

    use super::*;

    #[test]
    fn marks_are_read_as_they_were_kept_and_whatever_else_lies_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_empty());
        let witness = Witness {
            place: HistoryId { epoch: 2, seq: 7 },
            id: IdKey([9; 24]),
        };
        let marks = Marks::from([(MeshId(ulid::Ulid::from(5)), vec![witness])]);
        keeper(folder.path())(&marks);
        assert_eq!(read(folder.path()), marks);
        for bad in ["", "{", "[]", r#"{"x": []}"#, r#"{"01": ["1.2"]}"#] {
            std::fs::write(place(folder.path()), bad).unwrap();
            assert!(read(folder.path()).is_empty(), "{bad}");
        }
    }
}
