//! `heddle journal import-slice`: takes in what another store exported, and says what was changed in two places.

use std::io::Read;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle_journal::federation::{Imported, SLICE_BYTES_MAX};

use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A slice of another store; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Leave out records that are no entities of their type here, and say which
    #[arg(long)]
    leave_out_bad: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let bytes = read(&args.file).map_err(|error| {
        CliError::new(exit::USAGE, format!("{}: {error}", args.file.display()))
            .next("Name the file that `heddle journal export-slice` wrote.")
    })?;
    let journal = store::open(context, None)?;
    let told = journal
        .import_slice(&bytes, args.leave_out_bad)
        .map_err(store::told)?;
    if told.leftovers.is_empty() {
        return context.print(&told, text);
    }
    let answer = serde_json::to_value(&told).unwrap_or_default();
    let sentence = format!(
        "the slice was taken in, but these files still hold some of what its origin erased:\n  {}",
        printable(&told.leftovers.join("\n  "))
    );
    let error = CliError::new(exit::FAILED, sentence)
        .next("They are not the journal's own: look at them and remove what must go.");
    Err(error.answer(answer))
}

fn read(file: &std::path::Path) -> std::io::Result<Vec<u8>> {
    // One byte more than the most: what is longer is refused by its length.
    let most = SLICE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    if file == std::path::Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(file)?
            .take(most)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn text(told: &Imported) -> String {
    let [first, last] = told.seq_range;
    let mut text = format!(
        "seq {first} to {last} of {}: {} applied, {} known, {} older than what is here, {} erased\n",
        told.origin_id, told.applied, told.known, told.lost, told.erased
    );
    for refused in &told.refused {
        text.push_str(&format!("left out: {refused}\n"));
    }
    for id in &told.conflicts {
        text.push_str(&format!(
            "changed in two places: heddle journal show candidate {id}\n"
        ));
    }
    printable(&text)
}
