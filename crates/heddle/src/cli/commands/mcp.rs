//! `heddle mcp`: serves an agent's MCP client over standard input and output.

use clap::Args as ClapArgs;

use crate::cli::{CliError, Context};
use crate::mcp::{self, Profile};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// core (at most ten tools), full, or names with commas between them
    #[arg(long, value_name = "PROFILE", default_value = "core", value_parser = Profile::parse)]
    tools: Profile,
    /// Do not start the daemon when none runs
    #[arg(long)]
    no_start: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    mcp::serve(context, args.tools, !args.no_start)
}
