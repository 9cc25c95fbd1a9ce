//! Thirty processes at once, five times in a row: a team of agents that all send.

use std::process::Command;
use std::time::{Duration, Instant};

use super::call;
use crate::error::Outcome;
use crate::load::Latencies;

const AGENTS: usize = 30;
const SENDS_EACH: usize = 5;
pub(super) const DRAIN_WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct Measured {
    pub(super) total_us: f64,
    pub(super) p99_us: f64,
}

/// `None` where there is no such program.
pub(super) async fn run(make: impl Fn() -> Option<Command>) -> Outcome<Option<Measured>> {
    let mut agents = Vec::with_capacity(AGENTS);
    for _ in 0..AGENTS {
        let commands: Option<Vec<Command>> = (0..SENDS_EACH).map(|_| make()).collect();
        match commands {
            Some(commands) => agents.push(commands),
            None => return Ok(None),
        }
    }
    let start = Instant::now();
    let running: Vec<_> = agents
        .into_iter()
        .map(|commands| {
            tokio::task::spawn_blocking(|| {
                commands
                    .into_iter()
                    .map(call)
                    .collect::<Outcome<Vec<Duration>>>()
            })
        })
        .collect();
    let mut latencies = Latencies::new()?;
    for agent in running {
        for latency in agent.await?? {
            latencies.note(latency);
        }
    }
    Ok(Some(Measured {
        total_us: start.elapsed().as_secs_f64() * 1e6,
        p99_us: latencies.quantile_us(0.99),
    }))
}
