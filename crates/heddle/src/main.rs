//! The `heddle` binary: arguments in, one verb, an exit code out.

#![allow(
    unreachable_pub,
    reason = "a binary exports nothing; pub is for its other rooms"
)]

mod broker;
mod cli;
mod env;
mod mcp;
mod system;
mod up;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(env::Environment::read())
}
