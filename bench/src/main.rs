//! Workloads with their floors and peers in the same run: a table, a JSON file, nothing left behind.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for the terminal that measures with the real clock"
)]
#![allow(
    unreachable_pub,
    reason = "a binary exports nothing; pub is for its other rooms"
)]

mod broker;
mod buffered;
mod converse;
mod error;
mod floors;
mod http;
mod load;
mod machine;
mod options;
mod peers;
mod process;
mod product;
mod report;
mod scratch;
mod series;
mod syncs;
mod table;
mod workloads;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use error::{BenchError, Outcome};
use options::Options;

/// The hidden verb of a process that does nothing at all.
const NOOP: &str = "__noop";
/// A floor that still runs when the run was interrupted may take this long to notice.
const STRAGGLERS_WAIT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let result = match arguments.next() {
        Some(verb) if verb == NOOP => return ExitCode::SUCCESS,
        Some(verb) if verb == process::BOUND => process::become_bound(arguments),
        Some(verb) if verb == floors::http::VERB => floors::http::serve(arguments),
        Some(verb) if verb == workloads::journal::AGENT => {
            workloads::journal::work_as_agent(arguments)
        }
        _ => measure(&Options::parse()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = LocalSet::new().block_on(&runtime, async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        // Whichever way this ends, everything that the run started is dropped, and so ended.
        tokio::select! {
            result = workloads::run(options) => result,
            _ = interrupt.recv() => Err(BenchError::new("interrupted")),
            _ = terminate.recv() => Err(BenchError::new("terminated")),
            _ = hang_up.recv() => Err(BenchError::new("the terminal is gone")),
        }
    });
    runtime.shutdown_timeout(STRAGGLERS_WAIT);
    result
}
