//! `heddle journal import-slice`: takes in what another store exported, and says what was changed in two places.

use std::io::Read;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle_journal::Remains;
use heddle_journal::federation::{Imported, SLICE_BYTES_MAX};

use super::mesh_slices::{self, Fetched};
use super::redact;
use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, bounded, exit, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A slice of another store; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "from_mesh")]
    file: Option<PathBuf>,
    /// Take in what others share with the mesh under the repository's name [default: that of its folder]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "file")]
    from_mesh: Option<String>,
    /// Leave out records that are no entities of their type here, and say which
    #[arg(long)]
    leave_out_bad: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    if let Some(name) = &args.from_mesh {
        let journal = store::open(context, None)?;
        let fetched = mesh_slices::fetch(context, &journal, name, args.leave_out_bad)?;
        for slice in &fetched.slices {
            tell_taken_over(&slice.told);
        }
        let all: Vec<&Imported> = fetched.slices.iter().map(|slice| &slice.told).collect();
        return match left_over(&all) {
            None => context.print_done(&fetched, fetched_text),
            Some(error) => Err(error.answer(serde_json::to_value(&fetched).unwrap_or_default())),
        };
    }
    let file = args.file.unwrap_or_else(|| PathBuf::from("-"));
    let bytes = read(&file).map_err(|error| {
        CliError::new(exit::USAGE, format!("{}: {error}", file.display()))
            .next("Name the file that `heddle journal export-slice` wrote.")
    })?;
    let journal = store::open(context, None)?;
    let told = journal
        .import_slice(&bytes, args.leave_out_bad)
        .map_err(store::told)?;
    tell_taken_over(&told);
    match left_over(&[&told]) {
        None => context.print_done(&told, text),
        Some(error) => Err(error.answer(serde_json::to_value(&told).unwrap_or_default())),
    }
}

/// On standard error, whatever the answer is: nobody names them a second time.
fn tell_taken_over(told: &Imported) {
    if !told.taken_over.is_empty() {
        ui::note(&printable(&format!(
            "warning: these records of this store's own say some of what {} has erased, and were left as they are: {}; `heddle doctor redact --seq N --reason REASON` erases one",
            told.origin_id,
            told.taken_over.join(", ")
        )));
    }
}

/// What still holds some of what was erased, or may.
fn left_over(all: &[&Imported]) -> Option<CliError> {
    let mut left = Remains::default();
    for told in all {
        left.add(&told.left);
    }
    if left.is_nothing() {
        return None;
    }
    let holds = "these files still hold some of what its origin erased";
    let sentence = format!("it was taken in, but {}", redact::words(&left, holds));
    Some(CliError::new(exit::FAILED, sentence).next(redact::next(&left)))
}

fn fetched_text(fetched: &Fetched) -> String {
    let mut text: String = fetched
        .slices
        .iter()
        .map(|slice| format!("{}: {}", printable(&slice.peer), self::text(&slice.told)))
        .collect();
    for path in &fetched.waiting {
        text.push_str(&format!(
            "not here yet: {}; try again when its owner was connected\n",
            printable(path)
        ));
    }
    if text.is_empty() {
        text = format!(
            "nobody else shares slices of {}; they do with: heddle journal export-slice --to-mesh\n",
            printable(&fetched.name)
        );
    }
    text
}

fn read(file: &std::path::Path) -> std::io::Result<Vec<u8>> {
    // One byte more than the most: what is longer is refused by its length.
    let most = SLICE_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    if file == std::path::Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        bounded::open(file)?.take(most).read_to_end(&mut bytes)?;
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
    if !told.conflicts.is_empty() {
        text.push_str(
            "the winner is in place. To take the other image, append its `document` to item_type and item_id of the candidate (`heddle journal append --action update --payload @FILE`); to close a candidate: heddle journal append --type candidate --id ID --action delete\n",
        );
    }
    printable(&text)
}
