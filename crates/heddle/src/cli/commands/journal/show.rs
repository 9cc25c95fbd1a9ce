//! `heddle journal show`: an entity as it is now.

use clap::Args as ClapArgs;
use heddle_journal::format::{is_item_id, is_item_type};
use heddle_journal::{Journal, JournalError};

use super::store;
use crate::cli::text::printable_json;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[arg(value_name = "TYPE")]
    item_type: String,
    id: String,
}

/// What the journal does not know may have a file all the same: then that is worth a look.
fn untold(journal: &Journal, args: &Args, error: JournalError) -> CliError {
    let is_absent = matches!(error, JournalError::NotFound { .. });
    let told = store::told(error);
    let is_name = is_item_type(&args.item_type) && is_item_id(&args.id);
    let path = journal.layout().entity(&args.item_type, &args.id);
    if !is_absent || !is_name || !path.is_file() {
        return told;
    }
    if journal.is_deleted(&args.item_type, &args.id) {
        return told.next(format!(
            "{} is there, and its delete is recorded: the file could not be taken away then, or somebody put it back. The next write does that, or `heddle journal rebuild`, which keeps aside what the journal never had.",
            path.display()
        ));
    }
    told.next(format!(
        "{} is there, and no record of this store explains it: that one is lost, somebody put the file there, or git brought it from another clone; `heddle journal verify` says how to take it in.",
        path.display()
    ))
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let shown = journal.show(&args.item_type, &args.id);
    store::note_aside(&journal);
    let shown = shown.map_err(|error| untold(&journal, &args, error))?;
    context.print(&shown, |shown| {
        let stale = if shown.stale {
            " (stale: somebody is writing)"
        } else {
            ""
        };
        let body = serde_json::to_string_pretty(&shown.payload).unwrap_or_default();
        let head = format!(
            "{} {}, revision {}{stale}",
            shown.item_type, shown.item_id, shown.entity_rev
        );
        let note = shown
            .note
            .map_or(String::new(), |note| format!("({note})\n"));
        format!("{head}\n{note}{}\n", printable_json(&body))
    })
}
