//! `heddle journal rebuild`: every file anew from the journal; what stood there is kept aside.

use clap::Args as ClapArgs;

use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let restored = journal.restore().map_err(store::told)?;
    context.print_done(&restored, |restored| {
        let mut text = format!(
            "{} entities are as the journal has them; {} were not\n",
            restored.entities, restored.mended
        );
        if restored.blobs > 0 {
            text.push_str(&format!(
                "{} blobs were lost or damaged and are back from a copy\n",
                restored.blobs
            ));
        }
        for name in &restored.kept_aside {
            text.push_str(&format!(
                "  kept aside: .heddle/events/quarantine/{name}\n"
            ));
        }
        if !restored.kept_aside.is_empty() {
            text.push_str("To take one in: heddle journal append --type TYPE --id ID --action update --payload @FILE\n");
        }
        text
    })
}
