//! P21 and P24: ops that were made offline until a second replica has applied them, and what is ready of many tasks; and
//! how long a cold start takes.
//!
//! Of the two homes one hosts the broker and is the second replica; the other is its guest, and makes its ops while the
//! host is down. Both are down when the measurement begins, so that no pause between two tries to connect is in it: it
//! runs from the guest's open door to the clock of the host that has merged the last op.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::progress;
use crate::converse::converse;
use crate::error::{BenchError, Outcome, While as _};
use crate::http::{self, Http};
use crate::load::Latencies;
use crate::options::Options;
use crate::process::cpu_us;
use crate::product::{self, Product, TOPIC, prepare_offline, send_request};
use crate::report::{Goal, Report, Row, Unit};
use crate::scratch::Scratch;
use crate::series::{Series, float};

const OPS: u64 = 10_000;
const TASKS: usize = 10_000;
/// Tasks of one chain: each waits for the one before it.
const CHAIN: usize = 10;
const READY_CALLS: usize = 200;
const APPLY_WAIT_MAX: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(2);
const READY_MS_MAX: f64 = 5.0;
/// What a cold start may take (local-first §17.2).
const COLD_START_MS_MAX: f64 = 400.0;
/// The guest's name for the mesh.
const GUEST_MESH: &str = "team";

#[derive(Default)]
struct Figures {
    accept: Series,
    made: Series,
    applied: Series,
    host_cpu: Series,
    guest_cpu: Series,
    ready_p50: Series,
    ready_p99: Series,
    cold_start: Series,
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let offline_home = scratch.file("offline");
    prepare_offline(binary, &offline_home).await?;
    let offline = Product::start(binary, &offline_home).await?;
    let homes = Homes {
        host: scratch.file("host"),
        guest: scratch.file("guest"),
    };
    homes.join(binary).await?;
    let tasks = Product::start(binary, &scratch.file("tasks")).await?;
    add_tasks(&tasks, options.clients).await?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "accept alone");
        let request = send_request(&format!("#{TOPIC}"));
        let senders = offline.senders(options.clients, &request)?;
        let load = converse(senders, options.seconds).await?;
        figures.accept.push(load.per_second);
        progress(options, round, "10,000 ops, offline, then applied");
        sync_round(options, binary, (&homes, round), &mut figures).await?;
        progress(options, round, "what is ready");
        ready_round(&tasks, &mut figures).await?;
    }
    offline.stop().await?;
    tasks.stop().await?;
    Ok(report(options, &figures))
}

struct Homes {
    host: PathBuf,
    guest: PathBuf,
}

impl Homes {
    async fn join(&self, binary: &Path) -> Outcome<()> {
        let host = Product::start(binary, &self.host).await?;
        let guest = Product::start(binary, &self.guest).await?;
        let invited = cli(binary, &self.host, &["mesh", "invite", "--json"])?;
        let link = invited["link"].as_str().unwrap_or_default().to_owned();
        let join = [
            "mesh", "join", &link, "--as", GUEST_MESH, "--name", "guest", "--json",
        ];
        cli(binary, &self.guest, &join)?;
        guest.stop().await?;
        host.stop().await
    }
}

/// A verb of the product, and what it prints.
fn cli(binary: &Path, home: &Path, arguments: &[&str]) -> Outcome<Value> {
    let done = product::command(binary, home).args(arguments).output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(BenchError::new(format!("{arguments:?}: {said}")));
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}

/// Every connection sends its share of the requests, one after the other.
async fn send_all(
    product: &Product,
    clients: usize,
    requests: Vec<Vec<u8>>,
    status: u16,
) -> Outcome<()> {
    let share = requests.len().div_ceil(clients.max(1)).max(1);
    let mut parts = Vec::new();
    for part in requests.chunks(share) {
        let part = part.to_vec();
        let mut http = Http::connect(&product.socket()).await?;
        parts.push(tokio::task::spawn_local(async move {
            for request in &part {
                http.ask_for(request, status).await?;
            }
            Outcome::Ok(())
        }));
    }
    for part in parts {
        part.await.or_fail("sending")??;
    }
    Ok(())
}

async fn sync_round(
    options: &Options,
    binary: &Path,
    (homes, round): (&Homes, usize),
    figures: &mut Figures,
) -> Outcome<()> {
    let guest = Product::start(binary, &homes.guest).await?;
    let value = "the build is green again; ".repeat(6);
    let requests = (0..OPS).map(|number| {
        let key = format!("round.{round}.key.{number}");
        let body = json!({"mesh": GUEST_MESH, "key": key, "value": value});
        http::post("/v1/state/set", &body.to_string())
    });
    let start = Instant::now();
    send_all(&guest, options.clients, requests.collect(), 200).await?;
    figures
        .made
        .push(float(OPS) / start.elapsed().as_secs_f64());
    let lamport = clock(&guest, GUEST_MESH).await?.0;
    guest.stop().await?;
    let host = Product::start(binary, &homes.host).await?;
    note_cold_start(&host, figures).await?;
    let host_cpu = cpu_us(host.pid())?;
    let guest = Product::start(binary, &homes.guest).await?;
    let guest_cpu = cpu_us(guest.pid())?;
    let start = Instant::now();
    loop {
        if clock(&host, "home").await?.0 > lamport {
            break;
        }
        if start.elapsed() > APPLY_WAIT_MAX {
            return Err(BenchError::new("the host has not applied them in time"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = start.elapsed();
    figures.applied.push(float(OPS) / took.as_secs_f64());
    figures
        .host_cpu
        .push((cpu_us(host.pid())? - host_cpu) / float(OPS));
    figures
        .guest_cpu
        .push((cpu_us(guest.pid())? - guest_cpu) / float(OPS));
    let waiting = clock(&host, "home").await?.1;
    if waiting != 0 {
        return Err(BenchError::new(format!("{waiting} ops wait at the host")));
    }
    guest.stop().await?;
    host.stop().await
}

/// The clock of a mesh, and how many ops from elsewhere are not applied.
async fn clock(product: &Product, mesh: &str) -> Outcome<(u64, u64)> {
    let clock = product.get(&format!("/v1/mesh/clock?mesh={mesh}")).await?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let sync = &clock["sync"];
    let waiting =
        number(&sync["in_waiting"]) + number(&sync["in_parked"]) + number(&sync["in_quarantined"]);
    Ok((number(&clock["lamport"]), waiting))
}

async fn note_cold_start(product: &Product, figures: &mut Figures) -> Outcome<()> {
    let status = product.get("/v1/status").await?;
    let ms = status["cold_start_ms"].as_f64();
    let ms = ms.ok_or_else(|| BenchError::new("the status says nothing of its start"))?;
    figures.cold_start.push(ms * 1000.0);
    Ok(())
}

/// Chains in which every task but the first waits for the one before it: a tenth of them is ready.
async fn add_tasks(product: &Product, clients: usize) -> Outcome<()> {
    let chains = TASKS / CHAIN;
    let share = chains.div_ceil(clients.max(1)).max(1);
    let mut parts = Vec::new();
    for first in (0..chains).step_by(share) {
        let mut http = Http::connect(&product.socket()).await?;
        let last = (first + share).min(chains);
        parts.push(tokio::task::spawn_local(async move {
            for chain in first..last {
                let mut before: Option<String> = None;
                for number in 0..CHAIN {
                    let title = format!("step {number} of chain {chain}");
                    let body =
                        json!({"title": title, "blocked_by": before.iter().collect::<Vec<_>>()});
                    let request = http::post("/v1/task/create", &body.to_string());
                    let made = http.ask(&request).await?.json()?;
                    before = made["task"]["id"].as_str().map(str::to_owned);
                }
            }
            Outcome::Ok(())
        }));
    }
    for part in parts {
        part.await.or_fail("adding tasks")??;
    }
    Ok(())
}

async fn ready_round(product: &Product, figures: &mut Figures) -> Outcome<()> {
    let mut http = Http::connect(&product.socket()).await?;
    let request = http::get("/v1/task/list?ready=true");
    let mut latencies = Latencies::new()?;
    for _ in 0..READY_CALLS {
        let start = Instant::now();
        http.ask_for(&request, 200).await?;
        latencies.note(start.elapsed());
    }
    let found = http.ask(&request).await?.json()?;
    let is_ready = |task: &Value| task["ready"] == true;
    let tasks = found["items"].as_array();
    if !tasks.is_some_and(|tasks| !tasks.is_empty() && tasks.iter().all(is_ready)) {
        return Err(BenchError::new("nothing is ready"));
    }
    figures.ready_p50.push(latencies.quantile_us(0.5));
    figures.ready_p99.push(latencies.quantile_us(0.99));
    Ok(())
}

fn report(options: &Options, f: &Figures) -> Report {
    let mut report = Report::new("store");
    let clients = options.clients;
    let time =
        |id, what: &str, figures: &Series| Row::new(id, what, Unit::Microseconds, figures.clone());
    let rate =
        |id, what: String, figures: &Series| Row::new(id, what, Unit::PerSecond, figures.clone());
    let what = format!("accept alone (P1's product), {clients} clients");
    report.row(rate("", what, &f.accept));
    let what = format!("ops made offline, {clients} clients");
    report.row(rate("", what, &f.made));
    let what = "10,000 offline ops until a second replica has applied them".to_owned();
    report.row(rate("P21", what, &f.applied).compared(
        "it ÷ accept",
        f.applied.over(&f.accept),
        Some(Goal::AtLeast(0.5)),
    ));
    let what = "processor time per op: the host (broker, log, apply)";
    report.row(time("", what, &f.host_cpu));
    let what = "processor time per op: the guest (send, confirm)";
    report.row(time("", what, &f.guest_cpu));
    let what = "task ready over 10,000 tasks with dependencies: p50";
    let most = f.ready_p50.times(1.0 / (READY_MS_MAX * 1000.0));
    report.row(time("P24", what, &f.ready_p50).compared("÷ 5 ms", most, Some(Goal::AtMost(1.0))));
    let what = "task ready over 10,000 tasks with dependencies: p99";
    report.row(time("", what, &f.ready_p99));
    let what = "cold start of the host, to its open doors";
    let most = f.cold_start.times(1.0 / (COLD_START_MS_MAX * 1000.0));
    report.row(time("", what, &f.cold_start).compared("÷ 400 ms", most, Some(Goal::AtMost(1.0))));
    report.remark(
        "a tenth of the tasks is ready; an answer is one page, of the size that the verb asks for",
    );
    report
}
