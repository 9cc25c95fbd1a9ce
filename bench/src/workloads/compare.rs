//! Two builds of the product side by side in the accept path: what a change gained, round by round.

use std::path::Path;

use super::progress;
use crate::error::{BenchError, Outcome};
use crate::load::drive;
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
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let other = options
        .other
        .as_deref()
        .filter(|other| other.is_file())
        .ok_or_else(|| BenchError::new("name the second binary with --other FILE"))?;
    let mut contenders = Vec::new();
    for (name, program) in [("a", binary), ("b", other)] {
        let home = scratch.file(name);
        prepare_offline(program, &home).await?;
        let product = Product::start(program, &home).await?;
        contenders.push((product, Figures::default()));
    }
    for round in 0..options.rounds {
        progress(options, round, "both");
        for (product, figures) in &mut contenders {
            measure(options, product, figures).await?;
        }
        // Nobody is always the first.
        contenders.reverse();
    }
    if options.rounds % 2 == 1 {
        contenders.reverse();
    }
    let mut report = Report::new("compare");
    if let [(_, a), (_, b)] = contenders.as_slice() {
        rows(&mut report, a, b);
    }
    for (product, _) in contenders {
        product.stop().await?;
    }
    report.remark(format!("a is {}", binary.display()));
    report.remark(format!("b is {}", other.display()));
    Ok(report)
}

async fn measure(options: &Options, product: &Product, figures: &mut Figures) -> Outcome<()> {
    let request = send_request(&format!("#{TOPIC}"));
    let senders = product.senders(options.clients, &request).await?;
    let before = cpu_us(product.pid())?;
    let load = drive(senders, options.seconds).await?;
    let cpu = cpu_us(product.pid())? - before;
    figures.rate.push(load.per_second);
    figures.p50.push(load.p50_us());
    figures.p99.push(load.quantile_us(0.99));
    figures.cpu.push(cpu / float(load.total));
    let senders = product.senders(1, &request).await?;
    let load = drive(senders, options.seconds / 2.0).await?;
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
    ];
    for (what, unit, a, b) in pairs {
        report.row(Row::new("", format!("{what}, a"), unit, a.clone()));
        let row = Row::new("", format!("{what}, b"), unit, b.clone());
        report.row(row.compared("b ÷ a", b.over(a), None));
    }
}
