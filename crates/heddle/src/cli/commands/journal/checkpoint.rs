//! `heddle journal checkpoint`: the whole state in one file.

use clap::Args as ClapArgs;

use super::store;
use crate::cli::{CliError, Context, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let reference = journal.checkpoint().map_err(store::told)?;
    for blob in journal.missing_blobs(&reference) {
        ui::note(&format!(
            "warning: blob {blob} is missing: what it holds cannot be read from this checkpoint; `heddle journal verify` names the entity"
        ));
    }
    context.print_done(&reference, |reference| {
        format!(
            "{}: {} entities up to seq {}\n",
            reference.file, reference.entities, reference.head_seq
        )
    })
}
