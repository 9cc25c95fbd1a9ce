//! Closed-loop load: each caller asks again as soon as it was answered, for a bounded time.
//!
//! All callers share one thread, so that the side that is not measured costs as little as it can.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::error::{Outcome, While as _};
use crate::series::float;

/// The longest latency that is told apart from longer ones.
const LATENCY_NS_MAX: u64 = 120_000_000_000;
/// The part of a round that is run but not counted.
const WARM_UP_SHARE: f64 = 0.1;

/// Something that can be asked over and over, one question at a time.
pub trait Caller {
    async fn call(&mut self) -> Outcome<()>;
}

/// What one round gave.
#[derive(Debug)]
pub struct Load {
    pub per_second: f64,
    /// Every answer, those of the warm-up and of the last moment included.
    pub total: u64,
    latency: Histogram<u64>,
}

impl Load {
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        float(self.latency.value_at_quantile(quantile)) / 1000.0
    }

    pub fn p50_us(&self) -> f64 {
        self.quantile_us(0.5)
    }
}

pub(crate) struct Tally {
    counted: u64,
    total: u64,
    latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self {
            counted: 0,
            total: 0,
            latency: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).or_fail("histogram")?,
        })
    }

    pub(crate) fn note(&mut self, window: &Window, asked: Instant, answered: Instant) {
        self.total += 1;
        if answered >= window.warm && answered <= window.end {
            self.counted += 1;
            let latency = answered.saturating_duration_since(asked).as_nanos();
            let latency = u64::try_from(latency).unwrap_or(LATENCY_NS_MAX);
            self.latency
                .saturating_record(latency.clamp(1, LATENCY_NS_MAX));
        }
    }

    pub(crate) fn load(self, window: &Window) -> Load {
        Load {
            per_second: float(self.counted) / (window.end - window.warm).as_secs_f64(),
            total: self.total,
            latency: self.latency,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    warm: Instant,
    pub(crate) end: Instant,
}

impl Window {
    pub(crate) fn from_now(seconds: f64) -> Self {
        let warm = Instant::now() + Duration::from_secs_f64(seconds * WARM_UP_SHARE);
        Self {
            warm,
            end: warm + Duration::from_secs_f64(seconds),
        }
    }
}

/// Runs all callers at once on this thread. To be called inside a `LocalSet`.
pub async fn drive<C: Caller + 'static>(callers: Vec<C>, seconds: f64) -> Outcome<Load> {
    let window = Window::from_now(seconds);
    let tally = Rc::new(RefCell::new(Tally::new()?));
    let mut tasks = JoinSet::new();
    for caller in callers {
        tasks.spawn_local(one(caller, window, Rc::clone(&tally)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let tally = tally.replace(Tally::new()?);
    Ok(tally.load(&window))
}

async fn one<C: Caller>(mut caller: C, window: Window, tally: Rc<RefCell<Tally>>) -> Outcome<()> {
    let mut asked = Instant::now();
    while asked < window.end {
        caller.call().await?;
        let answered = Instant::now();
        tally.borrow_mut().note(&window, asked, answered);
        asked = answered;
    }
    Ok(())
}

/// The same for one caller that blocks.
pub fn repeat(seconds: f64, mut step: impl FnMut() -> Outcome<()>) -> Outcome<Load> {
    let window = Window::from_now(seconds);
    let mut tally = Tally::new()?;
    let mut asked = Instant::now();
    while asked < window.end {
        step()?;
        let answered = Instant::now();
        tally.note(&window, asked, answered);
        asked = answered;
    }
    Ok(tally.load(&window))
}

/// Latencies that were taken by hand, in no window.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> Outcome<Self> {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).or_fail("histogram")?;
        Ok(Self(histogram))
    }

    pub fn note(&mut self, latency: Duration) {
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.0.saturating_record(latency.clamp(1, LATENCY_NS_MAX));
    }

    pub fn quantile_us(&self, quantile: f64) -> f64 {
        float(self.0.value_at_quantile(quantile)) / 1000.0
    }
}
