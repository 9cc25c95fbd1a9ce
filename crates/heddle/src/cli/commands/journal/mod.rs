//! `heddle journal …`: the repository's history of plans, decisions, claims and runs. Needs no daemon.

mod advice;
mod append;
mod checkpoint;
pub mod doctor;
mod events;
mod export_slice;
mod gc;
mod import_slice;
mod init;
mod log;
mod mesh_slices;
mod migrate;
pub mod quarantine;
mod rebuild;
pub mod redact;
mod repository;
mod rollback;
mod show;
pub mod store;
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
    /// Begin a journal in this repository, mode primary; one that is there stays as it is
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
    /// Write the entity files anew from the journal; what stood there is kept aside
    Rebuild(rebuild::Args),
    /// Write the whole state to one file, so that replay begins there
    Checkpoint(checkpoint::Args),
    /// Move what is no longer needed into the archive
    Gc(gc::Args),
    /// Begin with the entity files of an older store, or change the mode; a copy is kept
    Migrate(migrate::Args),
    /// Go back to an earlier mode, or turn the journal off; no document changes
    Rollback(rollback::Args),
    /// Write this store's own records to a file for another store, without users, pids and absolute paths
    ExportSlice(export_slice::Args),
    /// Take in what another store exported; what was changed in two places becomes a candidate
    ImportSlice(import_slice::Args),
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Init(args) => init::run(context, args),
        Verb::Append(args) => append::run(context, args),
        Verb::Show(args) => show::run(context, args),
        Verb::Log(args) => log::run(context, args),
        Verb::Events(args) => events::run(context, args),
        Verb::Verify(args) => verify::run(context, args),
        Verb::Rebuild(args) => rebuild::run(context, args),
        Verb::Checkpoint(args) => checkpoint::run(context, args),
        Verb::Gc(args) => gc::run(context, args),
        Verb::Migrate(args) => migrate::run(context, args),
        Verb::Rollback(args) => rollback::run(context, args),
        Verb::ExportSlice(args) => export_slice::run(context, args),
        Verb::ImportSlice(args) => import_slice::run(context, args),
    }
}
