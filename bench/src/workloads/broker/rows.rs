//! The figures of `broker` as rows with their goals.

use super::{Figures, MESHES};
use crate::peers::nats::{self, Durable, Nats};
use crate::report::{Goal, Report, Row, Unit};
use crate::series::Series;

/// What P25 needs: each broker, the database and the clients beside each other.
const CORES_FOR_TWO: usize = 6;
/// How long a message may take from one broker to the other.
const ACROSS_US_MAX: f64 = 100_000.0;

pub(super) fn report(clients: usize, figures: &Figures, nats: Option<&Nats>) -> Report {
    let mut report = Report::new("broker");
    let what = format!("broker on PostgreSQL, {clients} clients, one mesh");
    report.row(rate("", what, &figures.accept));
    row_by_row(&mut report, clients, figures);
    five_rows(&mut report, clients, figures);
    peer(&mut report, clients, figures, nats);
    brokers(&mut report, clients, figures);
    costs(&mut report, figures);
    report
}

fn rate(id: &'static str, what: impl Into<String>, figures: &Series) -> Row {
    Row::new(id, what, Unit::PerSecond, figures.clone())
}

fn time(id: &'static str, what: impl Into<String>, figures: &Series) -> Row {
    Row::new(id, what, Unit::Microseconds, figures.clone())
}

fn row_by_row(report: &mut Report, clients: usize, figures: &Figures) {
    let what =
        format!("PostgreSQL, five rows one after the other in a transaction, {clients} clients");
    let ratio = figures.accept.over(&figures.row_by_row);
    let goal = Some(Goal::AtLeast(10.0));
    report.row(rate("P9", what, &figures.row_by_row).compared("broker ÷ it", ratio, goal));
    report.row(time("", "broker on PostgreSQL: p50", &figures.accept_p50));
    report.row(time("", "broker on PostgreSQL: p99", &figures.accept_p99));
    let what = "five rows one after the other: p99";
    let ratio = figures.accept_p99.over(&figures.row_by_row_p99);
    let goal = Some(Goal::AtMost(0.1));
    report.row(time("P9", what, &figures.row_by_row_p99).compared("broker ÷ it", ratio, goal));
    let what = "five rows one after the other: p50";
    report.row(time("", what, &figures.row_by_row_p50));
    in_order(report, clients, figures);
}

/// Judged by nobody: it keeps the promise that the broker keeps, and the goals are set against the faster one above.
fn in_order(report: &mut Report, clients: usize, figures: &Figures) {
    let what = format!(
        "the same, places in the order of commits as the broker has them, {clients} clients"
    );
    let ratio = figures.accept.over(&figures.in_order);
    report.row(rate("", what, &figures.in_order).compared("broker ÷ it", ratio, None));
    let ratio = figures.accept_p99.over(&figures.in_order_p99);
    let what = "places in the order of commits: p99";
    report.row(time("", what, &figures.in_order_p99).compared("broker ÷ it", ratio, None));
}

fn five_rows(report: &mut Report, clients: usize, figures: &Figures) {
    let what = format!("PostgreSQL, one row a transaction, {clients} clients");
    let ratio = figures.accept.over(&figures.one_row);
    let goal = Some(Goal::AtLeast(0.85));
    report.row(rate("P8", what, &figures.one_row).compared("broker ÷ it", ratio, goal));
    let what = "SQLite, one row a FULL transaction, one at a time";
    let ratio = figures.lone_commit.over(&figures.lone_insert);
    let goal = Some(Goal::AtLeast(0.85));
    report.row(rate("P8", what, &figures.lone_insert).compared(
        "five-row accept ÷ it",
        ratio,
        goal,
    ));
    let what = "broker on SQLite, five-row accept, one at a time, by its own clock of the commit";
    report.row(rate("", what, &figures.lone_commit));
    let what = "broker on SQLite, one client over its connection";
    report.row(rate("", what, &figures.lone));
}

fn peer(report: &mut Report, clients: usize, figures: &Figures, nats: Option<&Nats>) {
    let Some(nats) = nats else {
        return report.skipped("NATS", nats::HOW_TO_INSTALL);
    };
    let how = nats.durable.text();
    let what = format!("NATS JetStream, dedupe, {how}, {clients} clients");
    let ratio = figures.accept.over(&figures.nats);
    report.row(rate("", what, &figures.nats).compared("broker ÷ it", ratio, None));
    if nats.durable == Durable::No {
        report.remark("NATS acknowledges before it syncs here: not durable, and judged by nobody");
    }
}

fn brokers(report: &mut Report, clients: usize, figures: &Figures) {
    let what = format!("one broker on PostgreSQL, {MESHES} meshes, {clients} clients");
    report.row(rate("", what, &figures.at_one));
    let what = format!("two brokers on one PostgreSQL, {MESHES} meshes, {clients} clients");
    let ratio = figures.at_two.over(&figures.at_one);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let goal = (cores >= CORES_FOR_TWO).then_some(Goal::AtLeast(1.5));
    report.row(rate("P25", what, &figures.at_two).compared("two ÷ one", ratio, goal));
    if goal.is_none() {
        report.remark(format!(
            "P25 is not judged on {cores} cores: brokers, database and clients share them, so a second broker has nothing \
             to run on; it needs {CORES_FOR_TWO}"
        ));
    }
    report.row(time(
        "",
        "from a send at one broker to the push at the other: p50",
        &figures.across_p50,
    ));
    let ratio = figures.across_p99.times(1.0 / ACROSS_US_MAX);
    let what = "from a send at one broker to the push at the other: p99";
    let goal = Some(Goal::AtMost(1.0));
    report.row(time("", what, &figures.across_p99).compared("it ÷ 100 ms", ratio, goal));
    report.row(time(
        "",
        "from a send at one broker to the push at the other: longest",
        &figures.across_max,
    ));
}

fn costs(report: &mut Report, figures: &Figures) {
    let what = "processor time of the broker per message, PostgreSQL's own not counted";
    report.row(time("", what, &figures.broker_cpu));
    // Where cores are few or others use them, this says what a rate cannot.
    let what = "processor time of broker and PostgreSQL per message";
    report.row(time("", what, &figures.both_cpu));
    for (what, cpu) in [
        (
            "processor time of PostgreSQL, five rows one after the other",
            &figures.row_by_row_cpu,
        ),
        (
            "processor time of PostgreSQL, one row a transaction",
            &figures.one_row_cpu,
        ),
    ] {
        let ratio = figures.both_cpu.over(cpu);
        report.row(time("", what, cpu).compared("broker and PostgreSQL ÷ it", ratio, None));
    }
    let what = "from an admitted message to its commit on PostgreSQL, on average";
    report.row(time("", what, &figures.commit));
    let what = "messages in one transaction on PostgreSQL, on average";
    report.row(Row::new("", what, Unit::Count, figures.group.clone()));
}
