//! `heddle block PEER`: nothing that a peer sends reaches this home.

use clap::Args as ClapArgs;

use super::grant::change;
use crate::cli::keyed::Keyed;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A member's name or id
    peer: String,
    #[command(flatten)]
    keyed: Keyed,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    change(context, "block", (args.peer, args.keyed), &[])
}
