//! `heddle journal rebuild`: every file anew from the journal; what stood there is kept aside.

use clap::Args as ClapArgs;

use heddle_journal::{Cause, Divergence, Restored};

use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit};

const LOST: &str = "No copy of these blobs is in the store, its archive, its backups or the entities' own files. Put the named files of .heddle/events/blobs back from another copy and run this again; or record these entities anew (`heddle journal append --type TYPE --id ID --action update --payload @FILE`, or `--action delete`), then `heddle doctor quarantine` and `heddle journal checkpoint`.";
const OTHER: &str =
    "The rest is as the journal has it; `heddle journal verify` says what to do about these.";

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let restored = journal.restore().map_err(store::told)?;
    if restored.unmended.is_empty() {
        return context.print_done(&restored, text);
    }
    let line = |one: &Divergence| format!("\n  {} {}: {}", one.item_type, one.item_id, one.reason);
    let lines: String = restored.unmended.iter().map(line).collect();
    let sentence = format!(
        "{}{} entities cannot be had back from this store:{lines}",
        text(&restored),
        restored.unmended.len()
    );
    let is_lost = |one: &Divergence| one.cause == Cause::Blob;
    let next = if restored.unmended.iter().any(is_lost) {
        LOST
    } else {
        OTHER
    };
    let error = CliError::new(exit::FAILED, printable(&sentence)).next(next);
    Err(error.answer(serde_json::to_value(&restored).unwrap_or_default()))
}

fn text(restored: &Restored) -> String {
    let mut text = format!(
        "{} entities are as the journal has them; {} were not\n",
        restored
            .entities
            .saturating_sub(restored.unmended.len() as u64),
        restored.mended
    );
    if restored.blobs > 0 {
        text.push_str(&format!(
            "{} blobs were lost or damaged and are back from a copy\n",
            restored.blobs
        ));
    }
    for name in &restored.kept_aside {
        text.push_str(&format!("  kept aside: .heddle/events/quarantine/{name}\n"));
    }
    if !restored.kept_aside.is_empty() {
        text.push_str("To take one in: heddle journal append --type TYPE --id ID --action update --payload @FILE\n");
    }
    text
}
