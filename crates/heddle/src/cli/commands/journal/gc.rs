//! `heddle journal gc`: what two sound checkpoints make superfluous goes to the archive.

use clap::Args as ClapArgs;

use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let collected = journal.gc().map_err(store::told)?;
    context.print_done(&collected, |collected| match collected.floor_seq {
        None => "nothing to move: two sound checkpoints are needed first (`heddle journal checkpoint`)\n".to_owned(),
        Some(floor) => format!(
            "archived {} segments, {} checkpoints, {} blobs below seq {floor}\n",
            collected.segments, collected.checkpoints, collected.blobs
        ),
    })
}
