//! `heddle journal init`: a journal in this repository.

use clap::Args as ClapArgs;
use heddle_journal::action::Mode;
use serde_json::json;

use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let (journal, root) = store::init(context)?;
    let entities = journal.rebuild(0).map_err(store::told)?.replay.live_count();
    let answer = json!({"store": root, "mode": journal.mode(), "entities": entities});
    context.print_done(&answer, |_| {
        let place = root.display();
        match journal.mode() {
            Mode::Off => {
                format!("the journal is in {place}, and it is off; next: heddle journal migrate\n")
            }
            mode => format!(
                "the journal is in {place} (mode {}, {entities} entities)\n",
                mode.as_str()
            ),
        }
    })
}
