//! `heddle doctor quarantine`: parks damaged lines and checkpoints of this repository's journal; nothing is thrown away.

use clap::Args as ClapArgs;
use heddle_journal::Quarantined;

use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let told = journal.quarantine().map_err(store::told)?;
    context.print_done(&told, text)
}

fn text(told: &Quarantined) -> String {
    if told.parked.is_empty() && told.checkpoints.is_empty() {
        return "nothing is damaged, nothing was moved\n".to_owned();
    }
    let mut text = String::new();
    if !told.parked.is_empty() {
        text.push_str(&format!(
            "{} damaged places of {} segments are in .heddle/events/quarantine/ now:\n",
            told.parked.len(),
            told.segments.len()
        ));
        for name in &told.parked {
            text.push_str(&format!("  {name}\n"));
        }
        text.push_str("what they said is lost to the journal; when it is nowhere else, `heddle journal verify --accept-gaps REASON` notes that you know\n");
    }
    if !told.checkpoints.is_empty() {
        text.push_str("checkpoints that are not sound are in .heddle/events/quarantine/ now, and nothing is lost with them:\n");
        for name in &told.checkpoints {
            text.push_str(&format!("  {name}\n"));
        }
        text.push_str("a new one: heddle journal checkpoint\n");
    }
    text.push_str("next: heddle doctor --verify-journal\n");
    printable(&text)
}
