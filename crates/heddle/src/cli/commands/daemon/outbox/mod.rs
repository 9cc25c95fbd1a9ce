//! `heddle daemon outbox list | --failed | inspect | requeue | prune`.

mod inspect;
mod list;
mod prune;
mod requeue;

use clap::{Args as ClapArgs, Subcommand};

use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    list: list::Args,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show rows, newest first
    List(list::Args),
    /// Show one row: its state, its attempts, its chain
    Inspect(inspect::Args),
    /// Retire a dead or stuck row and send its message under a fresh id
    Requeue(requeue::Args),
    /// Give the space of old payloads back; ids stay taken for ever
    Prune(prune::Args),
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        None => list::run(context, &args.list),
        Some(Verb::List(args)) => list::run(context, &args),
        Some(Verb::Inspect(args)) => inspect::run(context, &args),
        Some(Verb::Requeue(args)) => requeue::run(context, args),
        Some(Verb::Prune(args)) => prune::run(context, &args),
    }
}
