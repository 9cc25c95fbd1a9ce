//! `heddle daemon …`: the daemon without an embedded broker, its outbox, and copies of its store.

mod outbox;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::{down, logs, status, up};
use crate::cli::{CliError, Context, upkeep};
use crate::up::Flavour;

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start the daemon for the meshes of config.toml, without a broker of its own
    Up(up::Args),
    /// Stop the daemon, gracefully
    Down(down::Args),
    /// Say whether all is well, and what to do if not
    Status(status::Args),
    /// Show the daemon's log
    Logs(logs::Args),
    /// Make a copy of the home, also while the daemon runs; the same as `doctor --backup`
    Backup {
        /// Nothing may be there yet; large files go into FILE.blobs, keys and settings into FILE.home
        file: PathBuf,
    },
    /// Put a backup in the place of the store, and back what else is missing; the daemon must be down, and the
    /// old file is kept
    Restore {
        /// As `heddle daemon backup` has made it
        file: PathBuf,
        /// Put only this part back, in the place of the present one: broker
        #[arg(long, value_name = "PART")]
        only: Option<Part>,
    },
    /// Show the outbox, and mend what is stuck in it
    Outbox(outbox::Args),
}

/// What can be put back by itself.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    /// broker.db: the members, the history and the memory of ids of the mesh that this home hosts
    Broker,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Up(args) => up::run_as(Flavour::Elsewhere, context, args),
        Verb::Down(args) => down::run(context, args),
        Verb::Status(args) => status::run(context, args),
        Verb::Logs(args) => logs::run(context, args),
        Verb::Backup { file } => upkeep::back_up(context, &file),
        Verb::Restore { file, only } => match only {
            None => upkeep::restore(context, &file),
            Some(Part::Broker) => upkeep::restore_broker(context, &file),
        },
        Verb::Outbox(args) => outbox::run(context, args),
    }
}
