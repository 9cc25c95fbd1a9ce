//! How much of the machine others used during a run, because on a shared one that decides a lot.

use std::time::Instant;

use crate::error::{BenchError, Outcome};
use crate::process::{TICKS_PER_SECOND, times_of};
use crate::series::float;

/// Below this, a run had the machine for itself.
const OTHERS_CORES_MAX: f64 = 0.2;
/// Fields of the first line of `/proc/stat`: user, nice, system, (idle, iowait,) irq, softirq, steal.
const BUSY_FIELDS: [usize; 6] = [1, 2, 3, 6, 7, 8];

/// A look at the clocks of the machine and of this process with its children.
pub struct Machine {
    at: Instant,
    busy_seconds: f64,
    own_seconds: f64,
}

impl Machine {
    pub fn look() -> Outcome<Self> {
        Ok(Self {
            at: Instant::now(),
            busy_seconds: busy_seconds()?,
            // Children count once they have ended, and all of ours have when a workload has.
            own_seconds: times_of(std::process::id(), 4)? / TICKS_PER_SECOND,
        })
    }

    pub fn others_since(&self) -> Outcome<String> {
        let now = Self::look()?;
        let busy = now.busy_seconds - self.busy_seconds;
        let own = now.own_seconds - self.own_seconds;
        let cores = (busy - own).max(0.0) / (now.at - self.at).as_secs_f64();
        let all = std::thread::available_parallelism().map_or(0, usize::from);
        let verdict = if cores > OTHERS_CORES_MAX {
            "; repeat it on a quiet machine before you believe a latency or a missed goal"
        } else {
            ""
        };
        Ok(format!(
            "other processes used {cores:.2} of the {all} cores meanwhile{verdict}"
        ))
    }
}

fn busy_seconds() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<&str> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let mut ticks = 0;
    for field in BUSY_FIELDS {
        let value = fields.get(field).and_then(|text| text.parse::<u64>().ok());
        ticks += value.ok_or_else(|| BenchError::new("/proc/stat cannot be read"))?;
    }
    Ok(float(ticks) / TICKS_PER_SECOND)
}
