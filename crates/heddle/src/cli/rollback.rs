//! `heddle doctor --rollback-migration N`: what became of a step of the schema, and the way back from it.
//!
//! A step that fails is taken back whole by the start that tried it, so there is nothing left to undo; one
//! that succeeded is not undone, because rows of after it need it: a backup from before it is the way back.

use heddle_daemon::upkeep;
use serde_json::{Value, json};

use super::Context;
use super::error::{CliError, exit};

pub fn run(context: &Context, version: &str) -> Result<(), CliError> {
    let usage = || {
        CliError::new(
            exit::USAGE,
            format!("{version:?} is not the number of a migration"),
        )
        .next("Give the number that the start named.")
    };
    let number: u32 = version.parse().map_err(|_| usage())?;
    let data = context.home.join("data.db");
    if !data.exists() {
        let none = CliError::new(exit::NOT_FOUND, "there is no data.db in this home");
        return Err(none.next("Begin with `heddle up`."));
    }
    let steps = upkeep::steps(&data).map_err(|error| {
        CliError::new(exit::FAILED, error.to_string())
            .next("`heddle doctor` says more; nothing was changed.")
    })?;
    if number == 0 || number > steps.known.max(steps.version) {
        let unknown = format!(
            "this Heddle knows the migrations 1 to {}; data.db is at version {}",
            steps.known, steps.version
        );
        return Err(CliError::new(exit::NOT_FOUND, unknown).next("Nothing was changed."));
    }
    if number <= steps.version {
        let name = steps.taken.iter().find(|(step, _)| *step == number);
        let name = name.map_or(String::new(), |(_, name)| format!(" ({name})"));
        let taken = format!(
            "migration {number}{name} is in data.db, whole; it is not undone, because what was written since needs it"
        );
        return Err(CliError::new(exit::REFUSED, taken).next(
            "Keep what is there with `heddle doctor --backup FILE`, then put a backup from before it back with `heddle daemon restore FILE`.",
        ));
    }
    let answer = json!({
        "file": data,
        "migration": number,
        "version": steps.version,
        "known": steps.known,
        "rolled_back": true,
        "problem": steps.problem,
    });
    context.print(&answer, describe)?;
    match steps.problem {
        None => Ok(()),
        Some(_) => Err(CliError {
            code: exit::FAILED,
            ..CliError::quiet()
        }),
    }
}

fn describe(answer: &Value) -> String {
    let mut text = format!(
        "nothing of migration {} is in data.db: a step that fails is taken back whole\n  data.db is at version {}",
        answer["migration"], answer["version"]
    );
    text.push_str(match answer["problem"].as_str() {
        None => ", and SQLite finds nothing wrong with it\n  Free some disk space and start again with `heddle up`. If it fails again, the Heddle that you had before still reads this file; `heddle doctor --backup FILE` keeps a copy.\n",
        Some(_) => ", but it is damaged\n  Put a backup back with `heddle daemon restore FILE`; without one, `heddle doctor --repair` saves what can be read.\n",
    });
    text
}
