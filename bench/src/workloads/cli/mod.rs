//! P20, P27 and P28: one durable send per process, against processes that do nothing and against
//! another tool's durable send.

mod rows;
mod storm;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::progress;
use crate::NOOP;
use crate::error::{BenchError, Outcome};
use crate::load::Latencies;
use crate::options::Options;
use crate::process::installed;
use crate::product::{self, Product};
use crate::report::Report;
use crate::scratch::Scratch;
use crate::series::Series;

const RECEIVER: &str = "bob";
const TEXT: &str = "the build is green again";
/// Between two calls: each shall find an idle machine.
const PAUSE: Duration = Duration::from_millis(5);
/// `node` takes so long that a few calls a round say enough.
const NODE_CALLS_MAX: usize = 8;

#[derive(Default)]
struct Figures {
    send: Latency,
    noop: Latency,
    nothing: Latency,
    node: Latency,
    hcom: Latency,
    storm: Storm,
    hcom_storm: Storm,
}

#[derive(Default)]
struct Latency {
    p50: Series,
    p99: Series,
}

#[derive(Default)]
struct Storm {
    total: Series,
    p99: Series,
}

impl Latency {
    fn push(&mut self, latencies: &Latencies) {
        self.p50.push(latencies.quantile_us(0.5));
        self.p99.push(latencies.quantile_us(0.99));
    }
}

/// The programs to call, each with all it needs.
struct Programs {
    heddle: PathBuf,
    home: PathBuf,
    own: PathBuf,
    node: Option<PathBuf>,
    hcom: Option<PathBuf>,
    hcom_folder: PathBuf,
}

impl Programs {
    fn send(&self) -> Command {
        let mut command = product::command(&self.heddle, &self.home);
        command.args(["send", &format!("@{RECEIVER}"), TEXT]);
        command
    }

    fn noop(&self) -> Command {
        let mut command = Command::new(&self.own);
        command.arg(NOOP);
        command
    }

    fn node(&self) -> Option<Command> {
        let mut command = Command::new(self.node.as_ref()?);
        command.args(["-e", "0"]);
        Some(command)
    }

    /// A send to everybody from outside, because nobody is there; it syncs before it answers.
    fn hcom(&self) -> Option<Command> {
        let mut command = Command::new(self.hcom.as_ref()?);
        command
            .env_clear()
            .env("HOME", &self.hcom_folder)
            .env("HCOM_DIR", &self.hcom_folder)
            .env("PATH", "/usr/bin:/bin")
            .args(["send", "--from", "bench", "--quiet", "--", TEXT]);
        Some(command)
    }
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let product = Product::start(binary, &scratch.file("home")).await?;
    product.register(RECEIVER).await?;
    let programs = Programs {
        heddle: binary.to_owned(),
        home: product.home().to_owned(),
        own: std::env::current_exe()?,
        node: installed("node"),
        hcom: options.hcom.clone().or_else(|| installed("hcom")),
        hcom_folder: scratch.folder("hcom")?,
    };
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "one process per call");
        single_round(options, &programs, &mut figures).await?;
        progress(options, round, "30 processes at once, 5 times");
        figures
            .storm
            .push(storm::run(|| Some(programs.send())).await?);
        product.drained(storm::DRAIN_WAIT_MAX).await?;
        figures
            .hcom_storm
            .push(storm::run(|| programs.hcom()).await?);
    }
    product.stop().await?;
    Ok(rows::report(&figures))
}

impl Storm {
    fn push(&mut self, measured: Option<storm::Measured>) {
        if let Some(measured) = measured {
            self.total.push(measured.total_us);
            self.p99.push(measured.p99_us);
        }
    }
}

/// Calls them in turn, so that each has seen the same minute.
async fn single_round(
    options: &Options,
    programs: &Programs,
    figures: &mut Figures,
) -> Outcome<()> {
    let mut send = Latencies::new()?;
    let mut noop = Latencies::new()?;
    let mut nothing = Latencies::new()?;
    let mut node = Latencies::new()?;
    let mut hcom = Latencies::new()?;
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed().as_secs_f64() < options.seconds {
        send.note(timed(programs.send()).await?);
        noop.note(timed(programs.noop()).await?);
        nothing.note(timed(Command::new("/bin/true")).await?);
        if let Some(command) = programs.hcom() {
            hcom.note(timed(command).await?);
        }
        if let Some(command) = programs.node().filter(|_| calls < NODE_CALLS_MAX) {
            node.note(timed(command).await?);
        }
        calls += 1;
    }
    figures.send.push(&send);
    figures.noop.push(&noop);
    figures.nothing.push(&nothing);
    if programs.node.is_some() {
        figures.node.push(&node);
    }
    if programs.hcom.is_some() {
        figures.hcom.push(&hcom);
    }
    Ok(())
}

async fn timed(command: Command) -> Outcome<Duration> {
    tokio::time::sleep(PAUSE).await;
    call(command)
}

/// From the start of the process to its end, which must be a success.
fn call(mut command: Command) -> Outcome<Duration> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    if status.success() {
        Ok(took)
    } else {
        let program = command.get_program().to_string_lossy();
        Err(BenchError::new(format!("{program} ended with {status}")))
    }
}
