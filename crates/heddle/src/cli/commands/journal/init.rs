//! `heddle journal init`: a journal in this repository.

use clap::Args as ClapArgs;
use serde_json::json;

use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let (journal, root) = store::init(context)?;
    let entities = journal.rebuild(0).map_err(store::told)?.replay.live_count();
    let answer = json!({"store": root, "mode": journal.mode(), "entities": entities});
    context.print(&answer, |_| {
        format!(
            "the journal is in {} ({entities} entities)\n",
            root.display()
        )
    })
}
