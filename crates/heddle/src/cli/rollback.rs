//! `heddle doctor --rollback-migration N`: undoes a step of the schema, for whoever goes back to the Heddle of before.
//!
//! A step that fails is taken back whole by the start that tried it, so there is nothing left to undo. The newest one
//! that succeeded is undone in place, with the daemon down, while nothing needs it; where something does, the copy that
//! every start makes before it takes a step is the way back, and is named.

use std::path::Path;

use heddle_daemon::upkeep::{self, Steps, Undone};
use serde_json::{Value, json};

use super::Context;
use super::error::{CliError, exit};
use super::spelled::quoted;

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
        return Err(super::upkeep::no_data(&context.home));
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
        return undo(context, number, &steps);
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

/// Takes the newest step out of the file again.
fn undo(context: &Context, number: u32, steps: &Steps) -> Result<(), CliError> {
    if let Some(problem) = &steps.problem {
        return Err(
            CliError::new(exit::FAILED, format!("data.db is damaged: {problem}"))
                .next("Put a backup back with `heddle daemon restore FILE`; nothing was changed."),
        );
    }
    let home = super::upkeep::claim(context)?;
    let undone = upkeep::undo_step(&home, number).map_err(|error| {
        CliError::new(exit::FAILED, error.to_string())
            .next("data.db is as it was before; `heddle doctor` says more.")
    })?;
    let (name, version) = match undone {
        Undone::Done { name, version } => (name, version),
        Undone::NotTheLast { version } => {
            let last = format!(
                "migrations are undone from the newest on, and data.db is at version {version}"
            );
            let copy = upkeep::copy_before(&home.data(), number);
            let copy = copy.map_or_else(
                || "FILE".to_owned(),
                |copy| quoted(&copy.display().to_string()),
            );
            return Err(CliError::new(exit::REFUSED, last).next(format!(
                "Begin with `heddle doctor --rollback-migration {version}`, or let the Heddle of before put a copy from before it back with `heddle daemon restore {copy}`; nothing was changed."
            )));
        }
        Undone::InUse { name } => {
            let used = format!(
                "migration {number} ({name}) is not undone: what was written since needs it"
            );
            return Err(needed(used, &home.data(), number));
        }
        Undone::NoWayBack { name } => {
            let none = format!(
                "migration {number} ({name}) cannot be undone in place: there is no data.db without it"
            );
            return Err(needed(none, &home.data(), number));
        }
    };
    let answer = json!({
        "file": home.data(),
        "migration": number,
        "name": name,
        "version": version,
        "known": steps.known,
        "rolled_back": true,
        "undone": true,
    });
    context.print(&answer, |answer: &Value| {
        format!(
            "migration {} ({}) is undone: data.db is at version {}, as the Heddle of before left it\n  Start that one now; this one would take the step again at its next start.\n",
            answer["migration"],
            answer["name"].as_str().unwrap_or_default(),
            answer["version"]
        )
    })
}

fn needed(why: String, data: &Path, number: u32) -> CliError {
    let way = match upkeep::copy_before(data, number) {
        Some(copy) => format!(
            "then start the Heddle of before with data.db as it was before that step: `heddle daemon restore {}`, by that Heddle.",
            quoted(&copy.display().to_string())
        ),
        None => "then put a backup from before it back with `heddle daemon restore FILE`, by the Heddle of before."
            .to_owned(),
    };
    CliError::new(exit::REFUSED, why).next(format!(
        "Nothing was changed. Keep what is there with `heddle doctor --backup FILE`, {way}"
    ))
}

fn describe(answer: &Value) -> String {
    let mut text = format!(
        "nothing of migration {} is in data.db: a step that fails is taken back whole\n  data.db is at version {}",
        answer["migration"], answer["version"]
    );
    text.push_str(match answer["problem"].as_str() {
        None => ", and SQLite finds nothing wrong with it\n  If the disk was full, free some and start again with `heddle up`. If it fails again, `heddle doctor` says what is in the way and what helps; the Heddle that you had before still reads this file, and `heddle doctor --backup FILE` keeps a copy.\n",
        Some(_) => ", but it is damaged\n  Put a backup back with `heddle daemon restore FILE`; without one, `heddle doctor --repair` saves what can be read.\n",
    });
    text
}
