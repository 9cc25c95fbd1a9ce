//! `heddle journal rollback`: an earlier mode; the projections stay as they are, byte for byte.

use clap::Args as ClapArgs;
use heddle_journal::action::Mode;

use super::migrate::parse_mode;
use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// off, dual or primary; off parks the journal in .heddle/backups
    #[arg(long, default_value = "off", value_parser = parse_mode)]
    to: Mode,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let mut journal = store::open(context, None)?;
    let told = journal.roll_back(args.to).map_err(store::told)?;
    context.print(&told, |told| {
        let kept = told.backup.as_ref().map_or(String::new(), |backup| {
            format!("; the store as it was: {}", backup.display())
        });
        format!(
            "the journal is {} (it was {}){kept}\n",
            told.mode.as_str(),
            told.from.as_str()
        )
    })
}
