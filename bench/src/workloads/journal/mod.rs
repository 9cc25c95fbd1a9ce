//! P13 to P17 and JN-37: the repository journal, against bare appends, against parsing alone, and as cold processes.

mod agents;
mod answers;
mod rebuilds;
mod reports;
mod shows;
mod store;

use std::path::Path;

use super::progress;
use crate::error::Outcome;
use crate::options::Options;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::series::Series;
use store::{EVENTS, Store};

pub use agents::{VERB as AGENT, work as work_as_agent};

/// Entities of the store whose events are ten to each.
const FEW: usize = 10_000;
const SIZES: [usize; 3] = [1000, 10_000, EVENTS];

#[derive(Default)]
struct Figures {
    answers: answers::Figures,
    /// Each event an entity of its own.
    many: rebuilds::Figures,
    /// Ten events to each of a tenth as many entities.
    few: rebuilds::Figures,
    ops: [Series; 3],
    shows: shows::Figures,
    agents: agents::Figures,
}

pub fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let single = Store::new(&scratch.folder("single")?, 1)?;
    let mut sized = Vec::new();
    for size in SIZES {
        let store = Store::new(&scratch.folder(&format!("entities{size}"))?, 2)?;
        store.fill(size, size)?;
        sized.push(store);
    }
    let few = Store::new(&scratch.folder("events")?, 3)?;
    few.fill(EVENTS, FEW)?;
    let mut bare = answers::Bare::new(&scratch.file("bare.jsonl"))?;
    let trivial = shows::Trivial::new(scratch)?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "single and group");
        figures.answers.measure(&single, &mut bare)?;
        progress(options, round, "replay and rebuild of 100,000 events");
        figures.many.measure(&sized[2], EVENTS, round)?;
        figures.few.measure(&few, FEW, round)?;
        progress(options, round, "one operation in stores of three sizes");
        for (store, series) in sized.iter().zip(&mut figures.ops) {
            series.push(store.op(round)?);
        }
        progress(options, round, "cold show, 20 agents");
        figures.shows.measure(&sized[2], binary, &trivial)?;
        let folder = scratch.folder(&format!("agents{round}"))?;
        figures.agents.measure(&folder)?;
    }
    let mut report = reports::of(&figures);
    if let Some(remark) = trivial.remark() {
        report.remark(remark);
    }
    Ok(report)
}
