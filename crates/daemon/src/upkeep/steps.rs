//! The steps of the schema that wait for data.db: whether a start can take them, what room they need, and the ways out
//! where one is refused. Status, doctor and start say the same of them.

use std::path::Path;

use heddle_store::{
    Condition, Look, TRIED_AT_ONCE_BYTES_MAX, TRIED_BYTES_MAX, Trial, outlook, waiting_steps,
};
use heddle_wire::ipc::Finding;

use super::copy_before;
use super::look::{fine, wrong};

const CHECK: &str = "migrations";

/// Why no start can go on with a file that is fit, as far as that is known at once.
pub(super) fn refused(data: &Path) -> Option<String> {
    let says = in_words(&waiting_steps(data, TRIED_AT_ONCE_BYTES_MAX)?)?;
    Some(format!("data.db: {says}"))
}

fn in_words(trial: &Trial) -> Option<String> {
    let refused = trial.refused.as_ref()?;
    Some(format!(
        "migration {} ({}) cannot be taken: {}; every start that tries changes nothing, and the Heddle of before reads \
         the file as it is (version {})",
        refused.version, refused.name, refused.reason, trial.found
    ))
}

/// The doctor's word on a file that is fit and that nobody has open.
pub(super) fn finding(data: &Path) -> Option<Finding> {
    let trial = waiting_steps(data, TRIED_BYTES_MAX)?;
    let Some(says) = in_words(&trial) else {
        let says = format!(
            "data.db is at version {} of {}: the next start takes the steps between, and keeps the file as it is now \
             beside it",
            trial.found, trial.known
        );
        return Some(fine(CHECK, says));
    };
    Some(wrong(CHECK, says, ways_out(data, &trial)))
}

/// What a person can do about a step that is refused.
fn ways_out(data: &Path, trial: &Trial) -> String {
    let found = trial.found;
    let step = trial
        .refused
        .as_ref()
        .map_or(found + 1, |step| step.version);
    let copy = copy_before(data, step).map_or_else(String::new, |copy| {
        format!(
            "; {} is the file from before an earlier upgrade, for that Heddle to put back with `heddle daemon restore`",
            copy.display()
        )
    });
    format!(
        "`heddle doctor --repair` writes data.db anew with all of its rows and without what is in the way, and keeps the \
         file as it is now. Or go back: start the Heddle of before; for one before that `heddle doctor \
         --rollback-migration {found}` takes out one step more{copy}."
    )
}

/// What a start would make of the steps that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepsNow {
    NoneWaits,
    Taken,
    Refused,
    /// Its tables alone would let them be taken; of the rows of so large a file nobody can tell.
    Untold,
}

/// What a start would do now, whatever the last one has met.
pub fn steps_now(home: &Path) -> StepsNow {
    match waiting_steps(&home.join("data.db"), TRIED_BYTES_MAX) {
        None => StepsNow::NoneWaits,
        Some(trial) if trial.refused.is_some() => StepsNow::Refused,
        Some(trial) if trial.with_rows => StepsNow::Taken,
        Some(_) => StepsNow::Untold,
    }
}

/// Room that the steps which wait need beside what every start needs: for a copy of the file, and to be written to its log.
pub(super) fn room(home: &Path) -> u64 {
    let data = home.join("data.db");
    // Nobody but SQLite opens what is damaged, and only behind the looks that must come before.
    if outlook(&data, Look::AsNeeded, true).condition != Condition::Fit {
        return 0;
    }
    waiting_steps(&data, 0).map_or(0, |trial| 2 * trial.bytes)
}
