//! `heddle guard …`: a git hook that refuses commits which touch paths reserved by another agent.

mod check;
mod git;
mod install;

use clap::{Args as ClapArgs, Subcommand};

use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put the guard into this repository's pre-commit hook; a hook that is there is never overwritten
    Install(install::Args),
    /// What the hook calls: refuses when a staged path is reserved by another agent
    Check(check::Args),
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Install(args) => install::run(context, args),
        Verb::Check(args) => check::run(context, args),
    }
}
