//! Two builds of the product side by side: what a change gained, round by round and, where one
//! message at a time is measured, message by message.

use std::path::Path;
use std::time::Instant;

use super::end_to_end::{PAUSE, RECEIVER, SENDER, one, open_events};
use super::progress;
use crate::converse::converse;
use crate::error::{BenchError, Outcome};
use crate::http::Http;
use crate::load::Latencies;
use crate::options::Options;
use crate::process::cpu_us;
use crate::product::{Product, TOPIC, prepare_offline, send_request};
use crate::report::{Report, Row, Unit};
use crate::scratch::Scratch;
use crate::series::{Series, float};

#[derive(Default)]
struct Figures {
    rate: Series,
    p50: Series,
    p99: Series,
    cpu: Series,
    alone_p50: Series,
    visible_p50: Series,
    visible_p99: Series,
}

/// One build: accepting with its broker out of reach, and whole.
struct Contender {
    offline: Product,
    whole: Product,
    figures: Figures,
}

impl Contender {
    async fn start(program: &Path, scratch: &Scratch, name: &str) -> Outcome<Self> {
        let home = scratch.file(name);
        prepare_offline(program, &home).await?;
        let offline = Product::start(program, &home).await?;
        let whole = Product::start(program, &home.with_extension("whole")).await?;
        for agent in [SENDER, RECEIVER] {
            whole.register(agent).await?;
        }
        let figures = Figures::default();
        Ok(Self {
            offline,
            whole,
            figures,
        })
    }

    async fn stop(self) -> Outcome<()> {
        self.offline.stop().await?;
        self.whole.stop().await
    }
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let other = options
        .other
        .as_deref()
        .filter(|other| other.is_file())
        .ok_or_else(|| BenchError::new("name the second binary with --other FILE"))?;
    let mut a = Contender::start(binary, scratch, "a").await?;
    let mut b = Contender::start(other, scratch, "b").await?;
    for round in 0..options.rounds {
        progress(options, round, "both");
        // Nobody is always the first.
        if round % 2 == 0 {
            measure(options, &a.offline, &mut a.figures).await?;
            measure(options, &b.offline, &mut b.figures).await?;
        } else {
            measure(options, &b.offline, &mut b.figures).await?;
            measure(options, &a.offline, &mut a.figures).await?;
        }
        one_by_one(options, &mut a, &mut b).await?;
    }
    let mut report = Report::new("compare");
    rows(&mut report, &a.figures, &b.figures);
    a.stop().await?;
    b.stop().await?;
    report.remark(format!("a is {}", binary.display()));
    report.remark(format!("b is {}", other.display()));
    Ok(report)
}

/// A message through the one, a message through the other, from send to visible.
async fn one_by_one(options: &Options, a: &mut Contender, b: &mut Contender) -> Outcome<()> {
    let mut wires = Vec::new();
    for contender in [&*a, &*b] {
        let http = Http::connect(&contender.whole.socket()).await?;
        wires.push((
            http,
            open_events(&contender.whole).await?,
            Latencies::new()?,
        ));
    }
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed().as_secs_f64() < options.seconds {
        for (http, events, latencies) in &mut wires {
            latencies.note(one(http, events, number).await?.1);
            tokio::time::sleep(PAUSE).await;
        }
        number += 1;
    }
    for (contender, (.., latencies)) in [a, b].into_iter().zip(&wires) {
        let figures = &mut contender.figures;
        figures.visible_p50.push(latencies.quantile_us(0.5));
        figures.visible_p99.push(latencies.quantile_us(0.99));
    }
    Ok(())
}

async fn measure(options: &Options, product: &Product, figures: &mut Figures) -> Outcome<()> {
    let request = send_request(&format!("#{TOPIC}"));
    let senders = product.senders(options.clients, &request)?;
    let before = cpu_us(product.pid())?;
    let load = converse(senders, options.seconds).await?;
    let cpu = cpu_us(product.pid())? - before;
    figures.rate.push(load.per_second);
    figures.p50.push(load.p50_us());
    figures.p99.push(load.quantile_us(0.99));
    figures.cpu.push(cpu / float(load.total));
    let senders = product.senders(1, &request)?;
    let load = converse(senders, options.seconds / 2.0).await?;
    figures.alone_p50.push(load.p50_us());
    Ok(())
}

fn rows(report: &mut Report, a: &Figures, b: &Figures) {
    let pairs = [
        ("accept", Unit::PerSecond, &a.rate, &b.rate),
        ("accept: p50", Unit::Microseconds, &a.p50, &b.p50),
        ("accept: p99", Unit::Microseconds, &a.p99, &b.p99),
        (
            "accept, 1 client: p50",
            Unit::Microseconds,
            &a.alone_p50,
            &b.alone_p50,
        ),
        (
            "processor time of the daemon per message",
            Unit::Microseconds,
            &a.cpu,
            &b.cpu,
        ),
        (
            "send to visible, idle: p50",
            Unit::Microseconds,
            &a.visible_p50,
            &b.visible_p50,
        ),
        (
            "send to visible, idle: p99",
            Unit::Microseconds,
            &a.visible_p99,
            &b.visible_p99,
        ),
    ];
    for (what, unit, a, b) in pairs {
        report.row(Row::new("", format!("{what}, a"), unit, a.clone()));
        let row = Row::new("", format!("{what}, b"), unit, b.clone());
        report.row(row.compared("b ÷ a", b.over(a), None));
    }
}
