//! `heddle journal rollback`: an earlier mode; the projections stay as they are, byte for byte.

use clap::Args as ClapArgs;
use heddle_journal::action::Mode;

use super::migrate::parse_mode;
use super::store;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// off (nothing is recorded; the journal is parked in .heddle/backups), dual or primary; see `heddle journal migrate --help`
    #[arg(long, default_value = "off", value_parser = parse_mode)]
    to: Mode,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let mut journal = store::open_in_any_mode(context, None)?;
    let told = journal.roll_back(args.to).map_err(store::told)?;
    context.print_done(&told, |told| {
        let kept = told.backup.as_ref().map_or(String::new(), |backup| {
            format!("; the store as it was: {}", backup.display())
        });
        let anew = match told.mode {
            Mode::Off => "`heddle journal migrate` begins a new one with these files; it knows no revisions, no keys of `--idempotency-key` and no reader's watermark of this one: a request of before is recorded again\n",
            _ => "",
        };
        format!(
            "the journal is {} (it was {}){kept}\n{anew}",
            told.mode.as_str(),
            told.from.as_str()
        )
    })
}
