//! One look at the whole store for a person: state against log, the counters, where time goes, one verdict.

use serde::Serialize;

use crate::action::Mode;
use crate::error::JournalError;
use crate::journal::Journal;
use crate::meta;
use crate::phases::Spread;
use crate::verify::{Cause, Verified};

/// Above this the lock is contended more than one journal can bear (seed 2.9).
const WAIT_P95_US_MAX: u64 = 200_000;

/// Time by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    pub wait: Spread,
    pub append: Spread,
    pub sync: Spread,
    pub project: Spread,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Examined {
    #[serde(flatten)]
    pub verified: Verified,
    pub mode: Mode,
    pub unannotated: u64,
    pub times: Times,
    pub verdict: String,
    /// The command to run next; never one that destroys anything.
    pub next: String,
}

impl Journal {
    /// Rebuilds beside the store, compares, and judges. Changes nothing.
    pub fn examine(&self) -> Result<Examined, JournalError> {
        let verified = self.verify()?;
        let meta = meta::read(self.disk(), &self.layout)?;
        let phases = meta.good().map(|meta| meta.phases.clone());
        let phases = phases.unwrap_or_default();
        let times = Times {
            wait: phases.wait.spread(),
            append: phases.append.spread(),
            sync: phases.sync.spread(),
            project: phases.project.spread(),
        };
        let (verdict, next) = judge(&verified, self.mode, times.wait.p95_us);
        Ok(Examined {
            unannotated: meta.good().map_or(0, |meta| meta.unannotated),
            verified,
            mode: self.mode,
            times,
            verdict,
            next: next.to_owned(),
        })
    }
}

/// Whether it is so, the verdict, the command.
type Row = (bool, String, &'static str);

/// Of entities that are not as they should be: what they lack first, then what only differs.
fn of_entities(told: &Verified) -> [Row; 4] {
    let of = |cause: Cause| {
        let all = told.divergent.iter();
        all.filter(|one| one.cause == cause).count()
    };
    [
        (
            of(Cause::Type) > 0,
            format!(
                "{} entities are of a type that is not here",
                of(Cause::Type)
            ),
            "git log --oneline -- .heddle/schemas",
        ),
        (
            of(Cause::Blob) > 0,
            format!(
                "the blobs of {} entities are lost or damaged",
                of(Cause::Blob)
            ),
            "cp -a .heddle .heddle.copy && heddle journal rebuild",
        ),
        (
            of(Cause::Checkpoint) > 0,
            "records were put back behind a checkpoint that was written without them".to_owned(),
            "cp -a .heddle .heddle.copy && heddle doctor quarantine && heddle journal rebuild",
        ),
        (
            !told.divergent.is_empty(),
            format!("{} entities differ from the journal", told.divergent.len()),
            "heddle journal verify",
        ),
    ]
}

/// The worst first; a look or a copy always comes before a change.
fn judge(told: &Verified, mode: Mode, wait_p95_us: u64) -> (String, &'static str) {
    let counters = &told.counters;
    let first: [Row; 5] = [
        (
            mode == Mode::Off,
            "the journal is off: changes are not recorded".to_owned(),
            "heddle journal migrate",
        ),
        (
            counters.redacted_again > 0,
            "erased content came back with an old copy of a file; it is not used".to_owned(),
            "heddle journal verify",
        ),
        (
            counters.newer_records > 0,
            "a newer heddle writes here; this one does not understand all of it".to_owned(),
            "heddle --version",
        ),
        (
            counters.damaged_lines > 0,
            format!(
                "{} lines of the journal are damaged",
                counters.damaged_lines
            ),
            "cp -a .heddle .heddle.copy && heddle doctor quarantine",
        ),
        (
            counters.seq_gaps > 0,
            "records are missing from the journal".to_owned(),
            "cp -a .heddle .heddle.copy",
        ),
    ];
    let last: [Row; 4] = [
        (
            counters.checkpoints_rejected > 0,
            "a checkpoint is not sound and is not used".to_owned(),
            "cp -a .heddle .heddle.copy && heddle doctor quarantine && heddle journal checkpoint",
        ),
        (
            !told.ok,
            format!("{} records contradict the rules", counters.errors()),
            "heddle journal log",
        ),
        (
            told.redactions_open > 0,
            format!(
                "redactions have left {} files or places that nobody has said to have looked at",
                told.redactions_open
            ),
            "heddle doctor redact --left",
        ),
        (
            wait_p95_us > WAIT_P95_US_MAX,
            "writers wait long for the lock".to_owned(),
            "heddle journal checkpoint",
        ),
    ];
    let mut rows = first.into_iter().chain(of_entities(told)).chain(last);
    rows.find(|row| row.0).map_or(
        ("all is well".to_owned(), "heddle journal log"),
        |(_, verdict, next)| (verdict, next),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Counters;
    use crate::verify::Divergence;

    fn told(counters: Counters, divergent: usize, ok: bool) -> Verified {
        let one = Divergence {
            item_type: "plan".into(),
            item_id: "a".into(),
            reason: "r".into(),
            cause: Cause::File,
        };
        Verified {
            ok,
            records: 1,
            entities: 1,
            divergent: vec![one; divergent],
            behind: Vec::new(),
            counters,
            lost_base: None,
            redactions_open: 0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_worst_is_said_first_and_no_suggestion_destroys_anything() {
        let damaged = Counters {
            damaged_lines: 2,
            checkpoints_rejected: 1,
            ..Counters::default()
        };
        let rejected = Counters {
            checkpoints_rejected: 1,
            ..Counters::default()
        };
        let open = Verified {
            redactions_open: 2,
            ..told(Counters::default(), 0, true)
        };
        let cases = [
            (open, Mode::Dual, 300_000, "redactions have left 2"),
            (told(Counters::default(), 0, true), Mode::Off, 0, "off"),
            (told(damaged, 3, false), Mode::Primary, 0, "2 lines"),
            (
                told(rejected.clone(), 3, false),
                Mode::Primary,
                0,
                "3 entities",
            ),
            (told(rejected, 0, false), Mode::Primary, 0, "checkpoint"),
            (
                told(Counters::default(), 0, true),
                Mode::Dual,
                300_000,
                "wait",
            ),
            (told(Counters::default(), 0, true), Mode::Dual, 3, "well"),
        ];
        for (report, mode, wait, word) in cases {
            let (verdict, next) = judge(&report, mode, wait);
            assert!(verdict.contains(word), "{verdict}");
            for destructive in ["rm ", "rollback", "--drop", "gc"] {
                assert!(!next.contains(destructive), "{next}");
            }
        }
    }
}
