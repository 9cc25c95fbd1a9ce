//! `heddle completions bash | zsh | fish`.

use clap::{Args as ClapArgs, CommandFactory};
use clap_complete::Shell;

use crate::cli::{Cli, CliError, Context, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    shell: Shell,
}

pub fn run(_: &Context, args: Args) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "heddle", &mut script);
    ui::raw(&String::from_utf8_lossy(&script))
}
