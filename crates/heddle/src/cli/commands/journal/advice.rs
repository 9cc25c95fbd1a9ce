//! What to do about a journal that is not as it should be: the worst first, and each of it changes something for the better.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use heddle_journal::disk::is_not_plain;
use heddle_journal::{Cause, JournalError, Verified};

const GAPS: &str = "Nothing was changed. Keep a copy of .heddle/ and look for the missing records in git and in other copies; when they are lost for good, `heddle journal verify --accept-gaps REASON` notes that.";
const MISNAMED: &str = "Nothing was changed. Names of segments say where their records belong: rename it as the warning says, and no record changes. Nothing is written before.";
const DAMAGED: &str = "Nothing was changed. Keep a copy (`cp -a .heddle .heddle.copy`); then `heddle doctor quarantine` moves the damaged lines aside and says how to go on.";
const BACK: &str = "Nothing was changed. Erase it again with `heddle doctor redact --seq N --reason REASON`, for each seq that the warning names.";
const DRIFT: &str = "Nothing was changed. Keep a copy of .heddle/ before you repair anything. Files that git brought from another clone are that store's, and no records of this one: `heddle journal export-slice --out FILE` there and `heddle journal import-slice FILE` here take them in. One that was edited here, or whose record is lost, is recorded by `heddle journal append --type TYPE --id ID --action update --payload @.heddle/entities/TYPE/ID.json`. `heddle journal rebuild` writes all files anew from the journal, which `heddle journal log` shows, and keeps what stood there.";
const CHECKPOINT: &str = "Nothing was changed. Keep a copy of .heddle/; `heddle doctor quarantine` moves what is damaged aside, and `heddle journal checkpoint` writes a sound one.";
const CONTRADICTION: &str = "Nothing was changed. The newest record of an entity counts: `heddle journal show TYPE ID` shows it, and `heddle journal append --type TYPE --id ID --action update --payload @FILE` records what it should be. That the history contradicts itself stays told until a sound copy of .heddle/events is put back.";

const BLOB: &str = "Nothing was changed. Keep a copy of .heddle/. Put the named file of .heddle/events/blobs back from another copy, or `heddle journal rebuild` takes it from a backup or from the entity's own file where one of them still has it. Where none has, record the entity anew (`heddle journal append --type TYPE --id ID --action update --payload @FILE`, or `--action delete`); then `heddle doctor quarantine` and `heddle journal checkpoint`.";
const TYPE: &str = "Nothing was changed, and the records are sound: their type is not here. Put .heddle/schemas/TYPE.json back (`git log --oneline -- .heddle/schemas`, or another clone has it); with it they are understood again.";
const VERSION: &str = "Nothing was changed, and the records are sound: .heddle/schemas/TYPE.json asks for a later `x-schema-version` than these documents say, and a type of one's own has no steps between its versions. Record each of them as the later version has it, with its `schema_version` (`heddle journal append --type TYPE --id ID --action update --payload @FILE`; .heddle/entities/TYPE/ID.json is what it was), or put the earlier number back.";
const PUT_BACK: &str = "Nothing was changed. Records are here that a checkpoint was written without: they were put back behind it. Keep a copy of .heddle/; `heddle doctor quarantine` moves such checkpoints aside, so that the records count; then `heddle journal rebuild` and `heddle journal checkpoint`.";

/// The checkpoint that a clone began with: another clone's `gc` parked it, and git deleted it here with that commit.
pub(super) fn bring_base_back(path: &Path) -> String {
    let file = path.display();
    format!(
        "Nothing was changed, and nothing is lost for good: git has it. Bring it back: `git checkout \"$(git log -1 --diff-filter=D --format=%H -- '{file}')^\" -- '{file}'`; from then on this clone keeps a copy of its own. Accept no gap before."
    )
}

const LOOK: &str =
    "Check the file and the disk; `heddle journal verify` says what else is affected.";

fn names_of(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |file| file.nlink())
}

/// What stands in the way of a file of the journal, and what to do about it.
pub(super) fn of_file(error: &JournalError) -> String {
    let JournalError::Io { path, source } = error else {
        return LOOK.to_owned();
    };
    let file = path.display();
    let on_the_way = |found: &Path| found.symlink_metadata().is_ok_and(|it| it.is_symlink());
    match source.kind() {
        // A journal follows no link: what it writes must be where it says.
        _ if path.ancestors().any(on_the_way) => format!(
            "A journal follows no link, and '{file}' is one or lies behind one (`ls -ld` of it and of the folders above shows which): put the folder or the file itself in its place, and run the same again."
        ),
        _ if is_not_plain(source) && names_of(path) > 1 => format!(
            "'{file}' has {} names: a hard link, as `cp -al`, `rsync --link-dest` and some backups make them, and a journal writes no file that stands under another name as well. `find FOLDER -samefile '{file}'` finds the others: remove those. Or give the store files of its own, while nobody writes to it: `cp -a .heddle .heddle.own && mv .heddle .heddle.linked && mv .heddle.own .heddle`.",
            names_of(path)
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
            "What was answered is on disk; this was not done. Free some room (`df -h '{file}'` shows the disk), and run the same again."
        ),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => format!(
            // IMPORTANT: never that nothing was changed. This may be met behind the first write, and whoever is told so does it again.
            "'{file}' cannot be written or read by this user: look at its mode, its owner and the disk that it is on (`ls -l`, `mount`), and run the same again. What was recorded until then holds: `heddle journal log` shows it."
        ),
        _ => LOOK.to_owned(),
    }
}

pub(super) fn next(report: &Verified) -> String {
    let counters = &report.counters;
    if let Some(base) = &report.lost_base {
        return bring_base_back(base);
    }
    if counters.newer_records > 0 {
        return format!(
            "Nothing was changed, and nothing here needs mending: use the newer heddle in this repository, which understands these records; this one is {}.",
            env!("CARGO_PKG_VERSION")
        );
    }
    let has = |cause: Cause| report.divergent.iter().any(|one| one.cause == cause);
    let rows = [
        (counters.misnamed_segments > 0, MISNAMED),
        (counters.damaged_lines > 0, DAMAGED),
        (counters.seq_gaps > 0, GAPS),
        (counters.redacted_again > 0, BACK),
        (has(Cause::Type), TYPE),
        (has(Cause::Version), VERSION),
        (has(Cause::Blob), BLOB),
        (has(Cause::Checkpoint), PUT_BACK),
        (has(Cause::File), DRIFT),
        (counters.checkpoints_rejected > 0, CHECKPOINT),
    ];
    let row = rows.into_iter().find(|(is_so, _)| *is_so);
    row.map_or(CONTRADICTION, |(_, next)| next).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_journal::Divergence;
    use heddle_journal::replay::Counters;

    fn told(counters: Counters, cause: Option<Cause>) -> String {
        let one = |cause| Divergence {
            item_type: "plan".to_owned(),
            item_id: "a".to_owned(),
            reason: "r".to_owned(),
            cause,
        };
        next(&Verified {
            ok: false,
            records: 1,
            entities: 1,
            divergent: cause.map(one).into_iter().collect(),
            behind: Vec::new(),
            counters,
            lost_base: None,
            redactions_open: 0,
            warnings: Vec::new(),
        })
    }

    /// Whoever is told that nothing was changed does it again, or believes a path to be free. A rollback meets the lock behind its copy.
    #[test]
    fn a_missing_right_is_never_told_as_nothing_changed() {
        for file in ["events/lock", "entities/claim/rsv_1.json", "journal.json"] {
            let error = JournalError::Io {
                path: Path::new("/r/.heddle").join(file),
                source: ErrorKind::PermissionDenied.into(),
            };
            let told = of_file(&error);
            assert!(!told.contains("Nothing was changed"), "{told}");
            assert!(told.contains("heddle journal log"), "{told}");
        }
    }

    #[test]
    fn a_rebuild_is_named_for_files_alone_and_never_for_what_it_does_not_mend() {
        let none = Counters::default;
        assert!(told(none(), Some(Cause::File)).contains("heddle journal rebuild"));
        let others: [(Counters, &str); 6] = [
            (
                Counters {
                    newer_records: 1,
                    seq_gaps: 1,
                    ..none()
                },
                "newer heddle",
            ),
            (
                Counters {
                    damaged_lines: 1,
                    seq_gaps: 1,
                    ..none()
                },
                "heddle doctor quarantine",
            ),
            (
                Counters {
                    seq_gaps: 1,
                    ..none()
                },
                "--accept-gaps",
            ),
            (
                Counters {
                    redacted_again: 1,
                    ..none()
                },
                "heddle doctor redact --seq",
            ),
            (
                Counters {
                    checkpoints_rejected: 1,
                    ..none()
                },
                "heddle journal checkpoint",
            ),
            (
                Counters {
                    duplicate_conflicting: 1,
                    ..none()
                },
                "heddle journal append",
            ),
        ];
        for (counters, word) in others {
            let told = told(counters, Some(Cause::Records));
            assert!(told.contains(word), "{word}: {told}");
            assert!(!told.contains("rebuild"), "{told}");
        }
        // A checkpoint that is not sound because a blob is lost is not written anew again and again.
        let rejected = Counters {
            checkpoints_rejected: 1,
            invalid_documents: 1,
            ..none()
        };
        for (cause, word) in [
            (Cause::Blob, "events/blobs"),
            (Cause::Type, "schemas/TYPE.json"),
            (Cause::Version, "x-schema-version"),
            (Cause::Checkpoint, "doctor quarantine"),
        ] {
            let told = told(rejected.clone(), Some(cause));
            assert!(told.contains(word), "{cause:?}: {told}");
        }
    }
}
