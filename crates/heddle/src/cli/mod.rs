//! The command line: one verb, one file; every verb with `--json`.

mod bounded;
pub mod commands;
mod compact;
mod context;
mod error;
mod keyed;
mod limit;
#[cfg(test)]
mod next_steps;
mod repaired;
mod rollback;
mod span;
mod spelled;
mod text;
mod ui;
mod upkeep;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

pub use context::Context;
pub use error::{CliError, exit};
pub use span::parse_seconds;
pub use text::{printable, table};
pub use ui::{log_bytes, note};

use crate::env::Environment;

#[derive(Debug, Parser)]
#[command(
    name = "heddle",
    version,
    about = "Coordination for AI coding agents: every effect lands once, durably, and can be explained afterwards",
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    /// The home folder [default: $HEDDLE_HOME or ~/.heddle]
    #[arg(long, global = true, value_name = "FOLDER")]
    home: Option<PathBuf>,
    /// The agent to act as [default: $HEDDLE_AGENT or you]
    #[arg(long, global = true, value_name = "NAME")]
    agent: Option<String>,
    /// The mesh [default: $HEDDLE_MESH or home]
    #[arg(long, global = true, value_name = "NAME")]
    mesh: Option<String>,
    #[command(subcommand)]
    command: commands::Command,
}

pub fn main(environment: Environment) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let words: Vec<OsString> = std::env::args_os().skip(1).collect();
            return ui::usage(&error, &help_command(&words), wants_json(&words));
        }
    };
    let context = Context::new(environment, cli.json, cli.home, cli.agent, cli.mesh);
    let result = context.and_then(|context| {
        let ran = cli.command.run(&context);
        ran.map_err(|error| error.spelled(&context))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ui::failure(&error, cli.json),
    }
}

/// Whether `--json` was asked for, in arguments that could not be parsed.
fn wants_json(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|word| *word != "--");
    options.into_iter().any(|word| word == "--json")
}

/// The help of the verb that the arguments came to.
fn help_command(words: &[OsString]) -> String {
    let root = Cli::command();
    let mut command = &root;
    let mut path = "heddle".to_owned();
    for word in words {
        if let Some(verb) = word.to_str().and_then(|word| command.find_subcommand(word)) {
            path.push(' ');
            path.push_str(verb.get_name());
            command = verb;
        }
    }
    path + " --help"
}
