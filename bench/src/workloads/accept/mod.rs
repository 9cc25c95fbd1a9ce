//! P1 to P7: the durable accept of a message over the daemon's socket, by itself.
//!
//! The product's broker is out of reach here, so that its drain, broker and inbox do not compete
//! with the accept path for the machine; one row measures it with all of them at work.

mod rows;

use std::path::Path;
use std::time::Duration;

use super::progress;
use crate::converse::converse;
use crate::error::Outcome;
use crate::floors::append;
use crate::floors::group_commit::GroupCommit;
use crate::floors::http::HttpFloor;
use crate::floors::single_insert::SingleInsert;
use crate::load::{Load, drive};
use crate::options::Options;
use crate::peers::nats::Nats;
use crate::peers::redis::Redis;
use crate::process::cpu_us;
use crate::product::{Product, TOPIC, prepare_offline, send_request, senders};
use crate::report::{Goal, Report, Row, Unit};
use crate::scratch::Scratch;
use crate::series::{Series, float};
use crate::syncs::{self, Counted};

const DRAIN_WAIT_MAX: Duration = Duration::from_secs(120);
const SINK: &str = "sink";
/// How the daemon counts its own commits.
const TRANSACTIONS: &str = "heddle_store_transactions_total";
/// How long each of the two counts of syncs runs.
const COUNT_SECONDS: f64 = 1.0;

#[derive(Default)]
struct Figures {
    accept: Series,
    accept_p50: Series,
    accept_p99: Series,
    accept_p999: Series,
    daemon_cpu: Series,
    client_cpu: Series,
    transactions: Series,
    alone_p50: Series,
    draining: Series,
    group: Series,
    group_cpu: Series,
    single: Series,
    single_p50: Series,
    http: Series,
    http_cpu: Series,
    http_alone_p50: Series,
    bare: Series,
    bare_cpu: Series,
    bare_alone_p50: Series,
    append: Series,
    append_p50: Series,
    redis: Series,
    nats: Series,
}

/// Everything that takes part in a round.
struct Contenders {
    offline: Product,
    draining: Product,
    http: HttpFloor,
    bare: HttpFloor,
    redis: Option<Redis>,
    nats: Option<Nats>,
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let home = scratch.file("offline");
    let payload_bytes = prepare_offline(binary, &home).await?;
    let contenders = Contenders {
        offline: Product::start(binary, &home).await?,
        draining: Product::start(binary, &scratch.file("draining")).await?,
        http: HttpFloor::start(&scratch.file("http.sock"), None).await?,
        bare: HttpFloor::start(
            &scratch.file("bare.sock"),
            Some((&scratch.file("bare.db"), payload_bytes)),
        )
        .await?,
        redis: Redis::start(scratch, payload_bytes).await?,
        nats: Nats::start(scratch, payload_bytes).await?,
    };
    contenders.draining.register(SINK).await?;
    let mut group = GroupCommit::open(&scratch.file("group.db"), payload_bytes)?;
    let mut single = SingleInsert::open(&scratch.file("single.db"), payload_bytes)?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "product");
        product_round(options, &contenders, &mut figures).await?;
        progress(options, round, "floors");
        let before = cpu_us(std::process::id())?;
        let load;
        (group, load) = group.round(options.clients, options.seconds).await?;
        let cpu = cpu_us(std::process::id())? - before;
        figures.group.push(load.per_second);
        figures.group_cpu.push(cpu / float(load.total));
        let load;
        (single, load) = single.round(options.seconds).await?;
        figures.single.push(load.per_second);
        figures.single_p50.push(load.p50_us());
        let load = append::round(&scratch.file("append"), options.seconds).await?;
        figures.append.push(load.per_second);
        figures.append_p50.push(load.p50_us());
        progress(options, round, "peers");
        peer_round(options, &contenders, &mut figures).await?;
        progress(options, round, "product with its broker at work");
        draining_round(options, &contenders.draining, &mut figures).await?;
    }
    let durable = contenders.nats.as_ref().map(|nats| nats.durable);
    contenders.offline.stop().await?;
    contenders.draining.stop().await?;
    let mut report = rows::report(options.clients, &figures, durable);
    count_syncs(options, binary, &home, &mut report).await?;
    report.remark(format!(
        "a stored payload has {payload_bytes} bytes, in the floors and peers too"
    ));
    Ok(report)
}

fn topic_request() -> Vec<u8> {
    send_request(&format!("#{TOPIC}"))
}

async fn load_on(product: &Product, clients: usize, options: &Options) -> Outcome<Load> {
    let senders = product.senders(clients, &topic_request())?;
    converse(senders, options.seconds).await
}

async fn product_round(
    options: &Options,
    contenders: &Contenders,
    figures: &mut Figures,
) -> Outcome<()> {
    let product = &contenders.offline;
    let transactions = product.metric(TRANSACTIONS).await?;
    let before = (cpu_us(product.pid())?, cpu_us(std::process::id())?);
    let load = load_on(product, options.clients, options).await?;
    let after = (cpu_us(product.pid())?, cpu_us(std::process::id())?);
    let transactions = product.metric(TRANSACTIONS).await? - transactions;
    figures.accept.push(load.per_second);
    figures.accept_p50.push(load.p50_us());
    figures.accept_p99.push(load.quantile_us(0.99));
    figures.accept_p999.push(load.quantile_us(0.999));
    let total = float(load.total);
    figures.daemon_cpu.push((after.0 - before.0) / total);
    figures.client_cpu.push((after.1 - before.1) / total);
    figures.transactions.push(transactions / total);
    let load = load_on(product, 1, options).await?;
    figures.alone_p50.push(load.p50_us());
    let f = figures;
    let series = (&mut f.http, &mut f.http_cpu, &mut f.http_alone_p50);
    http_round(options, &contenders.http, series).await?;
    let series = (&mut f.bare, &mut f.bare_cpu, &mut f.bare_alone_p50);
    http_round(options, &contenders.bare, series).await
}

/// Many clients for the rate and the cost, then one for the latency.
async fn http_round(
    options: &Options,
    http: &HttpFloor,
    (rate, cpu, alone_p50): (&mut Series, &mut Series, &mut Series),
) -> Outcome<()> {
    let callers = senders(http.socket(), options.clients, &topic_request())?;
    let before = cpu_us(http.pid())?;
    let load = converse(callers, options.seconds).await?;
    let used = cpu_us(http.pid())? - before;
    rate.push(load.per_second);
    cpu.push(used / float(load.total));
    let callers = senders(http.socket(), 1, &topic_request())?;
    let load = converse(callers, options.seconds / 2.0).await?;
    alone_p50.push(load.p50_us());
    Ok(())
}

async fn peer_round(
    options: &Options,
    contenders: &Contenders,
    figures: &mut Figures,
) -> Outcome<()> {
    if let Some(redis) = &contenders.redis {
        let load = converse(redis.callers(options.clients)?, options.seconds).await?;
        figures.redis.push(load.per_second);
    }
    if let Some(nats) = &contenders.nats {
        let load = drive(nats.callers(options.clients).await?, options.seconds).await?;
        figures.nats.push(load.per_second);
    }
    Ok(())
}

async fn draining_round(
    options: &Options,
    product: &Product,
    figures: &mut Figures,
) -> Outcome<()> {
    let request = send_request(&format!("@{SINK}"));
    let senders = product.senders(options.clients, &request)?;
    let load = converse(senders, options.seconds).await?;
    figures.draining.push(load.per_second);
    // What is left would run into the next contender's time.
    product.drained(DRAIN_WAIT_MAX).await.map(drop)
}

/// P7, on the home that the rounds have filled.
async fn count_syncs(
    options: &Options,
    binary: &Path,
    home: &Path,
    report: &mut Report,
) -> Outcome<()> {
    let Some(counted) = Counted::start(binary, home).await? else {
        report.skipped("P7", syncs::HOW_TO_INSTALL);
        return Ok(());
    };
    let cases = [(1, 1.0), (options.clients, 1.0 / 32.0)];
    for (clients, most) in cases {
        let mut per_message = Series::default();
        for _ in 0..options.rounds {
            let senders = counted.product.senders(clients, &topic_request())?;
            let (load, syncs) = counted.during(converse(senders, COUNT_SECONDS)).await?;
            per_message.push(float(syncs) / float(load.total));
        }
        let what = format!("fsync and fdatasync calls per message, {clients} at a time");
        report.row(
            Row::new("P7", what, Unit::Count, per_message.clone()).compared(
                "counted",
                per_message,
                Some(Goal::AtMost(most)),
            ),
        );
    }
    report.remark(counted.remark());
    counted.product.stop().await
}
