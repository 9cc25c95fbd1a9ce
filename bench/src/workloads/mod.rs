//! The workloads, one file each. Adding one touches its file and a few lines here.

mod accept;
mod broker;
mod cli;
mod compare;
mod end_to_end;
pub mod journal;
mod store;
mod vectors;

use std::path::Path;

use crate::error::Outcome;
use crate::machine::Machine;
use crate::options::{Options, Workload};
use crate::product;
use crate::scratch::Scratch;

/// Fewer rounds say nothing on a shared machine.
const ROUNDS_MIN: usize = 5;
/// What `all` means, in this order.
const ALL: [Workload; 7] = [
    Workload::Accept,
    Workload::Broker,
    Workload::EndToEnd,
    Workload::Cli,
    Workload::Store,
    Workload::Vectors,
    Workload::Journal,
];

pub async fn run(options: &Options) -> Outcome<()> {
    let binary = product::binary(options)?;
    if options.workload != Workload::All {
        return one(options.workload, options, &binary).await;
    }
    for workload in ALL {
        one(workload, options, &binary).await?;
    }
    Ok(())
}

/// Measures, prints, saves, and removes every file but the result.
async fn one(workload: Workload, options: &Options, binary: &Path) -> Outcome<()> {
    let scratch = Scratch::new(options.dir.as_deref())?;
    let machine = Machine::look()?;
    let mut report = match workload {
        Workload::Accept => accept::run(options, binary, &scratch).await?,
        Workload::Broker => broker::run(options, binary, &scratch).await?,
        Workload::EndToEnd => end_to_end::run(options, binary, &scratch).await?,
        Workload::Cli => cli::run(options, binary, &scratch).await?,
        Workload::Store => store::run(options, binary, &scratch).await?,
        Workload::Vectors => vectors::run(options, &scratch)?,
        Workload::Journal => journal::run(options, binary, &scratch)?,
        Workload::Compare => compare::run(options, binary, &scratch).await?,
        Workload::All => return Ok(()),
    };
    report.remark(machine.others_since()?);
    if options.rounds < ROUNDS_MIN {
        report.remark(format!(
            "fewer than {ROUNDS_MIN} rounds: not a result, only a look"
        ));
    }
    if let Some(warning) = scratch.warning() {
        report.remark(warning);
    }
    println!("{}", report.text(options));
    let path = report.save(options)?;
    println!("  → {}", path.display());
    Ok(())
}

/// Says on the terminal what is being measured now.
fn progress(options: &Options, round: usize, what: &str) {
    eprintln!("round {}/{}: {what}", round + 1, options.rounds);
}
