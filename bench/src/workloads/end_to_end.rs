//! P10 and P11: from a sender to another agent's inbox in the same home, with the embedded broker.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::progress;
use crate::converse::converse;
use crate::error::{BenchError, Outcome};
use crate::floors::single_insert::SingleInsert;
use crate::http::{self, Http};
use crate::load::Latencies;
use crate::options::Options;
use crate::process::cpu_us;
use crate::product::{Product, TOPIC, prepare_offline, send_request};
use crate::report::{Goal, Report, Row, Unit};
use crate::scratch::Scratch;
use crate::series::{Series, float};
use crate::syncs::{self, Counted};

pub(super) const SENDER: &str = "alice";
pub(super) const RECEIVER: &str = "bob";
const DELIVER_WAIT_MAX: Duration = Duration::from_secs(120);
const EVENT_WAIT_MAX: Duration = Duration::from_secs(10);
/// Between two single messages, so that what follows a delivery (receipt, ack) is over.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// Synced commits that one message waits for until it is visible: accept (data.db), the broker's
/// accept (broker.db), receive (data.db). To take and to settle a row needs no sync, and the ack to
/// the broker comes after.
const COMMITS_IN_PATH: u64 = 3;
const COUNTED_MESSAGES: u64 = 100;

#[derive(Default)]
struct Figures {
    accept: Series,
    commit_p50: Series,
    paced_p50: Series,
    idle_p50: Series,
    idle_p99: Series,
    answered_p50: Series,
    sustained: Series,
    while_sending: Series,
    cpu: Series,
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let offline_home = scratch.file("offline");
    let payload_bytes = prepare_offline(binary, &offline_home).await?;
    let offline = Product::start(binary, &offline_home).await?;
    let home = scratch.file("whole");
    let whole = Product::start(binary, &home).await?;
    for agent in [SENDER, RECEIVER] {
        whole.register(agent).await?;
    }
    let mut single = SingleInsert::open(&scratch.file("single.db"), payload_bytes)?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "one at a time");
        let load;
        (single, load) = single.round(options.seconds).await?;
        figures.commit_p50.push(load.p50_us());
        let paced;
        (single, paced) = single.paced(options.seconds, PAUSE).await?;
        figures.paced_p50.push(paced.quantile_us(0.5));
        idle_round(options, &whole, &mut figures).await?;
        progress(options, round, "accept alone");
        let request = send_request(&format!("#{TOPIC}"));
        let senders = offline.senders(options.clients, &request)?;
        let load = converse(senders, options.seconds).await?;
        figures.accept.push(load.per_second);
        progress(options, round, "sustained, until all is delivered");
        sustained_round(options, &whole, &mut figures).await?;
    }
    offline.stop().await?;
    whole.stop().await?;
    let mut report = rows(options, &figures);
    count_syncs(binary, &home, &mut report).await?;
    Ok(report)
}

/// Sends one message and waits until it is visible; when its answer was there, and when it was.
pub(super) async fn one(
    http: &mut Http,
    events: &mut Http,
    number: u64,
) -> Outcome<(Duration, Duration)> {
    let text = format!("<{number}>");
    let body = json!({
        "agent": SENDER,
        "to": format!("@{RECEIVER}"),
        "message": format!("{text} {}", "the build is green again; ".repeat(6)),
    });
    let request = http::post("/v1/send", &body.to_string());
    let start = Instant::now();
    http.ask_for(&request, 202).await?;
    let answered = start.elapsed();
    let arrived = events.event_with(text.as_bytes());
    tokio::time::timeout(EVENT_WAIT_MAX, arrived).await??;
    Ok((answered, start.elapsed()))
}

pub(super) async fn open_events(product: &Product) -> Outcome<Http> {
    let mut events = Http::connect(&product.socket()).await?;
    let target = format!("/v1/events?agent={RECEIVER}");
    events.open_events(&http::get(&target)).await?;
    Ok(events)
}

async fn idle_round(options: &Options, product: &Product, figures: &mut Figures) -> Outcome<()> {
    let mut http = Http::connect(&product.socket()).await?;
    let mut events = open_events(product).await?;
    let mut answered = Latencies::new()?;
    let mut visible = Latencies::new()?;
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed().as_secs_f64() < options.seconds {
        let times = one(&mut http, &mut events, number).await?;
        answered.note(times.0);
        visible.note(times.1);
        number += 1;
        tokio::time::sleep(PAUSE).await;
    }
    figures.answered_p50.push(answered.quantile_us(0.5));
    figures.idle_p50.push(visible.quantile_us(0.5));
    figures.idle_p99.push(visible.quantile_us(0.99));
    Ok(())
}

async fn sustained_round(
    options: &Options,
    product: &Product,
    figures: &mut Figures,
) -> Outcome<()> {
    let before = product.drained(DELIVER_WAIT_MAX).await?;
    let items = |status: &serde_json::Value| status["inbox"]["items"].as_u64().unwrap_or(0);
    let request = send_request(&format!("@{RECEIVER}"));
    let senders = product.senders(options.clients, &request)?;
    let start = Instant::now();
    let cpu = cpu_us(product.pid())?;
    let load = converse(senders, options.seconds).await?;
    figures.while_sending.push(load.per_second);
    let wanted = items(&before) + load.total;
    let mut status = product.drained(DELIVER_WAIT_MAX).await?;
    while items(&status) < wanted {
        if start.elapsed() > DELIVER_WAIT_MAX {
            let text = format!("the inbox has {} of {wanted} messages", items(&status));
            return Err(BenchError::new(text));
        }
        tokio::time::sleep(PAUSE).await;
        status = product.get("/v1/status").await?;
    }
    let took = start.elapsed();
    let cpu = cpu_us(product.pid())? - cpu;
    figures.cpu.push(cpu / float(load.total));
    let dead = status["outbox"]["dead"].as_u64().unwrap_or(0);
    if items(&status) != wanted || dead > 0 {
        let text = format!("{} items for {wanted} sends, {dead} dead", items(&status));
        return Err(BenchError::new(text));
    }
    figures
        .sustained
        .push(float(load.total) / took.as_secs_f64());
    Ok(())
}

fn rows(options: &Options, f: &Figures) -> Report {
    let mut report = Report::new("end_to_end");
    let clients = options.clients;
    let time =
        |id, what: &str, figures: &Series| Row::new(id, what, Unit::Microseconds, figures.clone());
    let rate =
        |id, what: String, figures: &Series| Row::new(id, what, Unit::PerSecond, figures.clone());
    let floor = f.commit_p50.times(float(COMMITS_IN_PATH));
    report.row(time("", "one raw FULL commit: p50", &f.commit_p50));
    report.row(
        time(
            "P10",
            "send to visible in the other's inbox, idle: p50",
            &f.idle_p50,
        )
        .compared(
            "it ÷ 3 raw commits",
            f.idle_p50.over(&floor),
            Some(Goal::AtMost(2.5)),
        ),
    );
    let paced = f.paced_p50.times(float(COMMITS_IN_PATH));
    report.row(
        time("", "one raw FULL commit every 10 ms: p50", &f.paced_p50).compared(
            "visible ÷ 3 of it",
            f.idle_p50.over(&paced),
            None,
        ),
    );
    report.row(time("", "send to visible, idle: p99", &f.idle_p99));
    report.row(time("", "of which until the 202: p50", &f.answered_p50));
    let what = format!("accept alone (P1's product), {clients} clients");
    report.row(rate("", what, &f.accept));
    let what = format!("{clients} senders until every row is done and in the inbox");
    report.row(rate("P11", what, &f.sustained).compared(
        "it ÷ accept",
        f.sustained.over(&f.accept),
        Some(Goal::AtLeast(0.5)),
    ));
    let what = format!("accept meanwhile, {clients} senders");
    let row = rate("", what, &f.while_sending);
    report.row(row.compared("it ÷ accept", f.while_sending.over(&f.accept), None));
    let what = "processor time of the daemon per message, from send to inbox";
    report.row(time("", what, &f.cpu));
    report.remark(
        "the 3 synced commits until visible: accept (data.db), the broker's accept (broker.db), \
         receive (data.db)",
    );
    report
}

/// The syncs that one message costs in all, also those after it is visible.
async fn count_syncs(binary: &Path, home: &Path, report: &mut Report) -> Outcome<()> {
    let Some(counted) = Counted::start(binary, home).await? else {
        report.skipped("the count of syncs", syncs::HOW_TO_INSTALL);
        return Ok(());
    };
    let mut http = Http::connect(&counted.product.socket()).await?;
    let mut events = open_events(&counted.product).await?;
    let sending = async {
        for number in 0..COUNTED_MESSAGES {
            one(&mut http, &mut events, number).await?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    let ((), syncs) = counted.during(sending).await?;
    let mut per_message = Series::default();
    per_message.push(float(syncs) / float(COUNTED_MESSAGES));
    let what = "fsync and fdatasync calls per message, idle, all in all";
    report.row(Row::new("", what, Unit::Count, per_message));
    report.remark(counted.remark());
    drop((http, events));
    counted.product.stop().await
}
