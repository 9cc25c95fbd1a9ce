//! `heddle daemon up`: the daemon for meshes that are hosted elsewhere.

use clap::Args as ClapArgs;

use crate::cli::{CliError, Context};
use crate::up::{self, Flavour};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Return as soon as it is ready, and leave it running
    #[arg(long)]
    detach: bool,
    /// How `--detach` starts the one that stays
    #[arg(long, hide = true, conflicts_with = "detach")]
    background: bool,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    if args.detach {
        let ready = up::detach(context, Flavour::Elsewhere)?;
        context.print(&ready, |ready| up::greeting(ready, true))
    } else if args.background {
        up::foreground(context, Flavour::Elsewhere, up::Words::Nowhere)
    } else {
        up::foreground(context, Flavour::Elsewhere, up::Words::StandardError)
    }
}
