//! `heddle revoke PEER [CAPABILITY…]`: what a peer may no longer send to this home.

use clap::Args as ClapArgs;

use super::grant::{Capability, change};
use crate::cli::keyed::Keyed;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A member's name or id
    peer: String,
    /// What it may no longer; without any, all of it
    #[arg(value_enum)]
    capabilities: Vec<Capability>,
    #[command(flatten)]
    keyed: Keyed,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    change(
        context,
        "revoke",
        (args.peer, args.keyed),
        &args.capabilities,
    )
}
