//! The `heddle` binary: arguments in, one verb, an exit code out.

#![allow(
    unreachable_pub,
    reason = "a binary exports nothing; pub is for its other rooms"
)]

mod broker;
mod cli;
mod env;
mod system;
mod up;

use std::process::ExitCode;

/// A request makes some sixty small allocations; the system's allocator was a sixth of its cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main(env::Environment::read())
}
