//! `heddle journal show`: an entity as it is now.

use clap::Args as ClapArgs;

use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[arg(value_name = "TYPE")]
    item_type: String,
    id: String,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let shown = journal.show(&args.item_type, &args.id);
    store::note_aside(&journal);
    let shown = shown.map_err(store::told)?;
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
        format!("{head}\n{note}{}\n", printable(&body))
    })
}
