//! P8, P9 and P25, and how long a message takes from one broker to another: `heddle broker serve` on SQLite and on
//! PostgreSQL, beside row-at-a-time transactions on the same server and NATS JetStream.

mod rows;

use std::path::Path;
use std::time::Instant;

use super::progress;
use crate::broker::{Broker, Mesh, SINK, envelope};
use crate::error::{BenchError, Outcome};
use crate::floors::single_insert::SingleInsert;
use crate::load::{Latencies, drive};
use crate::options::Options;
use crate::peers::nats::Nats;
use crate::peers::next_id;
use crate::peers::postgres::{self, Postgres};
use crate::process::cpu_us;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::series::{Series, float};

/// From an admitted batch to its commit, by the broker's own clock.
const COMMIT: [&str; 2] = [
    "heddle_broker_commit_seconds_sum",
    "heddle_broker_commit_seconds_count",
];
const GROUPS: &str = "heddle_broker_groups_total";
/// Meshes that are served at once for P25.
const MESHES: usize = 8;

#[derive(Default)]
struct Figures {
    /// PostgreSQL, many clients, one mesh.
    accept: Series,
    accept_p50: Series,
    accept_p99: Series,
    broker_cpu: Series,
    /// Of the broker and of the database with it.
    both_cpu: Series,
    row_by_row_cpu: Series,
    one_row_cpu: Series,
    commit: Series,
    /// Messages in one transaction.
    group: Series,
    row_by_row: Series,
    row_by_row_p50: Series,
    row_by_row_p99: Series,
    in_order: Series,
    in_order_p99: Series,
    one_row: Series,
    nats: Series,
    /// SQLite, one at a time.
    lone: Series,
    lone_commit: Series,
    lone_insert: Series,
    /// Many meshes at one broker, and at two.
    at_one: Series,
    at_two: Series,
    /// From a send at one broker to the push at the other.
    across_p50: Series,
    across_p99: Series,
    across_max: Series,
}

struct Contenders {
    database: Postgres,
    one: Broker,
    two: Broker,
    file: Broker,
    nats: Option<Nats>,
    mesh: Mesh,
    meshes: Vec<Mesh>,
    lone: Mesh,
}

pub async fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let log = scratch.file("postgres.log");
    let Some(database) = Postgres::start(options.dir.as_deref(), &log).await? else {
        let mut report = Report::new("broker");
        report.skipped("P8, P9 and P25", postgres::HOW_TO_INSTALL);
        return Ok(report);
    };
    let contenders = start(binary, scratch, database).await?;
    let payload = envelope("topic", crate::broker::TOPIC, Some(&contenders.mesh.sink));
    let mut single = SingleInsert::open(&scratch.file("single.db"), payload.len())?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "PostgreSQL, one mesh");
        one_mesh(options, &contenders, &mut figures).await?;
        progress(options, round, "row by row");
        row_by_row(options, &contenders, &payload, &mut figures).await?;
        progress(options, round, "NATS JetStream");
        if let Some(nats) = &contenders.nats {
            let load = drive(nats.callers(options.clients).await?, options.seconds).await?;
            figures.nats.push(load.per_second);
        }
        progress(options, round, "SQLite, one at a time");
        single = lone(options, &contenders, single, &mut figures).await?;
        progress(options, round, "many meshes, one broker and two");
        many_meshes(options, &contenders, &mut figures).await?;
        progress(options, round, "from one broker to the other");
        across(options, &contenders, &mut figures).await?;
    }
    let report = rows::report(options.clients, &figures, contenders.nats.as_ref());
    let Contenders {
        database,
        one,
        two,
        file,
        ..
    } = contenders;
    for broker in [one, two, file] {
        broker.stop().await?;
    }
    database.stop().await?;
    Ok(report)
}

async fn start(binary: &Path, scratch: &Scratch, database: Postgres) -> Outcome<Contenders> {
    let url = database.url();
    let one = Broker::start(binary, &scratch.file("one"), Some(&url)).await?;
    let two = Broker::start(binary, &scratch.file("two"), Some(&url)).await?;
    let file = Broker::start(binary, &scratch.file("file"), None).await?;
    database.copy_tables().await?;
    let mut meshes = Vec::new();
    for _ in 0..=MESHES {
        let id = next_id();
        let sink = one.furnish(&id).await?;
        meshes.push(Mesh { id, sink });
    }
    let mesh = meshes
        .pop()
        .ok_or_else(|| BenchError::new("there is no mesh"))?;
    let id = next_id();
    let sink = file.furnish(&id).await?;
    let lone = Mesh { id, sink };
    let payload_bytes = envelope("topic", crate::broker::TOPIC, Some(&mesh.sink)).len();
    let nats = Nats::start(scratch, payload_bytes).await?;
    Ok(Contenders {
        database,
        one,
        two,
        file,
        nats,
        mesh,
        meshes,
        lone,
    })
}

async fn one_mesh(options: &Options, with: &Contenders, figures: &mut Figures) -> Outcome<()> {
    let one = std::slice::from_ref(&with.mesh);
    let senders = with.one.senders(options.clients, one).await?;
    let names = [COMMIT[0], COMMIT[1], GROUPS];
    let database_before = with.database.cpu_us()?;
    let before = (cpu_us(with.one.pid())?, with.one.figures(names).await?);
    let load = drive(senders, options.seconds).await?;
    let after = (cpu_us(with.one.pid())?, with.one.figures(names).await?);
    let database = with.database.cpu_us()? - database_before;
    figures.accept.push(load.per_second);
    figures.accept_p50.push(load.p50_us());
    figures.accept_p99.push(load.quantile_us(0.99));
    let broker = after.0 - before.0;
    figures.broker_cpu.push(broker / float(load.total));
    figures
        .both_cpu
        .push((broker + database) / float(load.total));
    let [took, count, groups] = std::array::from_fn(|at| after.1[at] - before.1[at]);
    figures.commit.push(took / count * 1e6);
    figures.group.push(float(load.total) / groups);
    Ok(())
}

async fn row_by_row(
    options: &Options,
    with: &Contenders,
    payload: &str,
    figures: &mut Figures,
) -> Outcome<()> {
    let callers = with.database.row_by_row(options.clients, payload).await?;
    let before = with.database.cpu_us()?;
    let load = drive(callers, options.seconds).await?;
    let cpu = with.database.cpu_us()? - before;
    figures.row_by_row_cpu.push(cpu / float(load.total));
    figures.row_by_row.push(load.per_second);
    figures.row_by_row_p50.push(load.p50_us());
    figures.row_by_row_p99.push(load.quantile_us(0.99));
    let callers = with.database.in_order(options.clients, payload).await?;
    let load = drive(callers, options.seconds).await?;
    figures.in_order.push(load.per_second);
    figures.in_order_p99.push(load.quantile_us(0.99));
    let callers = with.database.one_row(options.clients, payload).await?;
    let before = with.database.cpu_us()?;
    let load = drive(callers, options.seconds).await?;
    let cpu = with.database.cpu_us()? - before;
    figures.one_row_cpu.push(cpu / float(load.total));
    figures.one_row.push(load.per_second);
    Ok(())
}

/// One client that waits for each answer: every accept is a commit of its own, as every insert is.
async fn lone(
    options: &Options,
    with: &Contenders,
    single: SingleInsert,
    figures: &mut Figures,
) -> Outcome<SingleInsert> {
    let senders = with
        .file
        .senders(1, std::slice::from_ref(&with.lone))
        .await?;
    let [took_before, count_before] = with.file.figures(COMMIT).await?;
    let load = drive(senders, options.seconds).await?;
    let [took, count] = with.file.figures(COMMIT).await?;
    let commit_us = (took - took_before) / (count - count_before) * 1e6;
    figures.lone.push(load.per_second);
    figures.lone_commit.push(1e6 / commit_us);
    let (single, load) = single.round(options.seconds).await?;
    figures.lone_insert.push(load.per_second);
    Ok(single)
}

async fn many_meshes(options: &Options, with: &Contenders, figures: &mut Figures) -> Outcome<()> {
    let senders = with.one.senders(options.clients, &with.meshes).await?;
    let load = drive(senders, options.seconds).await?;
    figures.at_one.push(load.per_second);
    let half = options.clients / 2;
    let (here, there) = with.meshes.split_at(MESHES / 2);
    let mut senders = with.one.senders(half, here).await?;
    senders.extend(with.two.senders(options.clients - half, there).await?);
    let load = drive(senders, options.seconds).await?;
    figures.at_two.push(load.per_second);
    Ok(())
}

/// One message at a time, from before it is said at one broker until the other has pushed it.
async fn across(options: &Options, with: &Contenders, figures: &mut Figures) -> Outcome<()> {
    let mesh = &with.meshes[0].id;
    let receiver = next_id();
    let mut to = with.two.enter(mesh, &receiver, SINK).await?;
    let mut from = with.one.enter(mesh, &next_id(), "one").await?;
    let envelope = envelope("dm", &format!("{receiver}/{SINK}"), None);
    let mut latencies = Latencies::new()?;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < options.seconds {
        let asked = Instant::now();
        from.send(&envelope).await?;
        to.receive().await?;
        latencies.note(asked.elapsed());
    }
    figures.across_p50.push(latencies.quantile_us(0.5));
    figures.across_p99.push(latencies.quantile_us(0.99));
    figures.across_max.push(latencies.quantile_us(1.0));
    Ok(())
}
