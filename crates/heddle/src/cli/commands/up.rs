//! `heddle up`: the daemon and its embedded broker, in the foreground or detached.

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

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    run_as(Flavour::Embedded, context, args)
}

/// Also what `heddle daemon up` does, for meshes that are hosted elsewhere.
pub fn run_as(flavour: Flavour, context: &Context, args: Args) -> Result<(), CliError> {
    if args.detach {
        let ready = up::detach(context, flavour)?;
        context.print(&ready, |ready| up::greeting(ready, true))
    } else if args.background {
        up::foreground(context, flavour, up::Words::Nowhere)
    } else {
        up::foreground(context, flavour, up::Words::StandardError)
    }
}
