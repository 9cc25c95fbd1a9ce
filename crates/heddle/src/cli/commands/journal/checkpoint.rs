//! `heddle journal checkpoint`: the whole state in one file.

use clap::Args as ClapArgs;

use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let reference = journal.checkpoint().map_err(store::told)?;
    context.print(&reference, |reference| {
        format!(
            "{}: {} entities up to seq {}\n",
            reference.file, reference.entities, reference.head_seq
        )
    })
}
