//! `heddle journal …`: the repository's history of plans, decisions, claims and runs. Needs no daemon.

mod append;
mod checkpoint;
mod events;
mod gc;
mod init;
mod log;
mod show;
pub(super) mod store;
mod verify;

use clap::{Args as ClapArgs, Subcommand};

use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Begin a journal in this repository; one that is there stays as it is
    Init(init::Args),
    /// Record a change; answers when it is on the disk
    Append(append::Args),
    /// Show an entity as it is now
    Show(show::Args),
    /// Print the records, one a line, in order
    Log(log::Args),
    /// Show what a reader has not seen yet, and move its watermark
    Events(events::Args),
    /// Rebuild the state from the journal and compare it with the projections
    Verify(verify::Args),
    /// Write the whole state to one file, so that replay begins there
    Checkpoint(checkpoint::Args),
    /// Move what is no longer needed into the archive
    Gc(gc::Args),
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Init(args) => init::run(context, args),
        Verb::Append(args) => append::run(context, args),
        Verb::Show(args) => show::run(context, args),
        Verb::Log(args) => log::run(context, args),
        Verb::Events(args) => events::run(context, args),
        Verb::Verify(args) => verify::run(context, args),
        Verb::Checkpoint(args) => checkpoint::run(context, args),
        Verb::Gc(args) => gc::run(context, args),
    }
}
