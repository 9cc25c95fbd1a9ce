//! `heddle journal migrate`: begins the journal with what a folder of entity files holds, or changes its mode.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle_journal::Migrated;
use heddle_journal::action::Mode;

use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context};

/// Of the files that nobody looked into; all of them are in the answer as JSON.
const SHOWN_MAX: usize = 20;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The folder of entity files to begin with; a .brainclaw store beside .heddle is found by itself
    #[arg(value_name = "FOLDER")]
    source: Option<PathBuf>,
    /// dual (recorded, and the older store is still in use), primary (the journal is the truth) or registryPrimary (records of the registry must carry their document as well) [default: dual where there is no journal yet; one that is on stays as it is]
    #[arg(long, value_parser = parse_mode)]
    mode: Option<Mode>,
    /// Leave out files that are no entities of their type, and say which
    #[arg(long)]
    leave_out_bad: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let told = store::migrate(context, args.source, args.mode, args.leave_out_bad)?;
    let printed = context.print_said(&told, text);
    printed.map_err(|error| error.unprinted(&text(&told)))
}

fn text(told: &Migrated) -> String {
    let before = if told.mode == told.from {
        "as before".to_owned()
    } else {
        format!("it was {}", told.from.as_str())
    };
    let mut text = format!(
        "the journal is {} ({before}): {} entities, {} of them from files, {} old events parked\n",
        told.mode.as_str(),
        told.entities,
        told.backfilled,
        told.events_parked
    );
    if let Some(backup) = &told.backup {
        text.push_str(&format!("the store as it was: {}\n", backup.display()));
    }
    for entity in &told.kept {
        text.push_str(&format!(
            "kept as .heddle/ has it, not as the folder: {entity}\n"
        ));
    }
    for file in &told.left_out {
        text.push_str(&format!("left out: {file}\n"));
    }
    if !told.ignored.is_empty() {
        let count = told.ignored.len();
        text.push_str(&format!(
            "{count} files are no entities, or lie in no folder of a type, and were not taken in:\n"
        ));
    }
    for file in told.ignored.iter().take(SHOWN_MAX) {
        text.push_str(&format!("  {file}\n"));
    }
    for folder in &told.passed_over {
        text.push_str(&format!("not of the present, and not taken in: {folder}\n"));
    }
    if let Some(folder) = &told.not_taken {
        let folder = folder.display();
        text.push_str(&format!(
            "{folder} is here, and nothing was taken from it: a journal takes a folder in only before its first record. `heddle journal append --type TYPE --id ID --action create --payload @FILE` records a file of it; `heddle journal rollback`, then `heddle journal migrate '{folder}'`, begins anew with the files of .heddle and what that folder has beside\n"
        ));
    }
    text.push_str("next: heddle journal verify\n");
    printable(&text)
}

pub(super) fn parse_mode(text: &str) -> Result<Mode, String> {
    let known = Mode::ALL.into_iter().find(|mode| mode.as_str() == text);
    known.ok_or_else(|| "the modes are off, dual, primary, registryPrimary".to_owned())
}
