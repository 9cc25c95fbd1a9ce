//! The figures of `accept` as rows with their goals.

use super::Figures;
use crate::peers::nats::{self, Durable};
use crate::peers::redis;
use crate::report::{Goal, Report, Row, Unit};
use crate::series::Series;

pub(super) fn report(clients: usize, figures: &Figures, nats: Option<Durable>) -> Report {
    let mut report = Report::new("accept");
    let what = format!("accept over IPC, {clients} clients");
    report.row(rate("", what, &figures.accept));
    floors(&mut report, clients, figures);
    latencies(&mut report, clients, figures);
    peers(&mut report, clients, figures, nats);
    orientation(&mut report, clients, figures);
    report
}

fn rate(id: &'static str, what: impl Into<String>, figures: &Series) -> Row {
    Row::new(id, what, Unit::PerSecond, figures.clone())
}

fn time(id: &'static str, what: impl Into<String>, figures: &Series) -> Row {
    Row::new(id, what, Unit::Microseconds, figures.clone())
}

/// Another's throughput, and how the product's compares.
fn against(row: Row, figures: &Figures, goal: Option<Goal>) -> Row {
    let ratio = figures.accept.over(&row.figures);
    row.compared("accept ÷ it", ratio, goal)
}

fn floors(report: &mut Report, clients: usize, figures: &Figures) {
    let what = format!("SQLite group commit in process, {clients} callers");
    let row = rate("P1", what, &figures.group);
    report.row(against(row, figures, Some(Goal::AtLeast(0.65))));
    let what = "SQLite, one insert per FULL transaction";
    let row = rate("P2", what, &figures.single);
    report.row(against(row, figures, Some(Goal::AtLeast(8.0))));
}

fn latencies(report: &mut Report, clients: usize, figures: &Figures) {
    let what = "SQLite, one insert per FULL transaction: p50";
    report.row(time("", what, &figures.single_p50));
    let ratio = figures.alone_p50.over(&figures.single_p50);
    report.row(
        time("P3", "accept over IPC, 1 client: p50", &figures.alone_p50).compared(
            "it ÷ raw commit",
            ratio,
            Some(Goal::AtMost(1.6)),
        ),
    );
    let what = format!("accept over IPC, {clients} clients: p50");
    report.row(time("", what, &figures.accept_p50));
    let what = format!("accept over IPC, {clients} clients: p99");
    let ratio = figures.accept_p99.over(&figures.accept_p50);
    report.row(time("P4", what, &figures.accept_p99).compared(
        "p99 ÷ p50",
        ratio,
        Some(Goal::AtMost(3.0)),
    ));
    let what = format!("accept over IPC, {clients} clients: p99.9");
    report.row(time("", what, &figures.accept_p999));
}

fn peers(report: &mut Report, clients: usize, figures: &Figures, nats: Option<Durable>) {
    if figures.redis.rounds().is_empty() {
        report.skipped("P5", redis::HOW_TO_INSTALL);
    } else {
        let what = format!("Redis, Lua dedupe + XADD, fsync always, {clients} clients");
        let row = rate("P5", what, &figures.redis);
        report.row(against(row, figures, Some(Goal::AtLeast(1.5))));
    }
    let Some(durable) = nats else {
        return report.skipped("P6", nats::HOW_TO_INSTALL);
    };
    let how = durable.text();
    let what = format!("NATS JetStream, dedupe, {how}, {clients} clients");
    // One that acknowledges before it syncs is shown, and judged by nobody.
    let goal = (durable != Durable::No).then_some(Goal::AtLeast(10.0));
    let row = rate("P6", what, &figures.nats);
    report.row(against(row, figures, goal));
}

fn orientation(report: &mut Report, clients: usize, figures: &Figures) {
    let what = format!("empty HTTP handler on a Unix socket, {clients} clients");
    report.row(against(rate("", what, &figures.http), figures, None));
    let what = format!("bare HTTP + group commit, the least a server can do, {clients} clients");
    report.row(against(rate("", what, &figures.bare), figures, None));
    let what = "append 4 KiB + fdatasync";
    report.row(against(rate("", what, &figures.append), figures, None));
    let what = "append 4 KiB + fdatasync: p50";
    report.row(time("", what, &figures.append_p50));
    let what = "accept while drain, broker and inbox are at work";
    let ratio = figures.draining.over(&figures.accept);
    report.row(rate("", what, &figures.draining).compared("it ÷ accept", ratio, None));
    let what = "empty HTTP handler on a Unix socket, 1 client: p50";
    report.row(time("", what, &figures.http_alone_p50));
    let what = "bare HTTP + group commit, 1 client: p50";
    let ratio = figures.alone_p50.over(&figures.bare_alone_p50);
    let row = time("", what, &figures.bare_alone_p50);
    report.row(row.compared("accept ÷ it", ratio, None));
    let what = format!("commits per message, {clients} clients, by the daemon's own count");
    let row = Row::new("", what, Unit::Count, figures.transactions.clone());
    report.row(row);
    costs(report, figures);
}

/// Processor time: steadier than any rate where others use the machine, too.
fn costs(report: &mut Report, figures: &Figures) {
    let both = figures.daemon_cpu.plus(&figures.client_cpu);
    let what = "processor time of daemon and client per message";
    report.row(time("", what, &both));
    let what = "of which the daemon";
    report.row(time("", what, &figures.daemon_cpu));
    let what = "of which the client";
    report.row(time("", what, &figures.client_cpu));
    let what = "processor time of SQLite group commit per row, callers included";
    let ratio = both.over(&figures.group_cpu);
    report.row(time("", what, &figures.group_cpu).compared("accept ÷ it", ratio, None));
    let what = "processor time of bare HTTP + group commit per message";
    let ratio = figures.daemon_cpu.over(&figures.bare_cpu);
    report.row(time("", what, &figures.bare_cpu).compared("daemon ÷ it", ratio, None));
    let what = "processor time of the empty HTTP server per request";
    let ratio = figures.daemon_cpu.over(&figures.http_cpu);
    report.row(time("", what, &figures.http_cpu).compared("daemon ÷ it", ratio, None));
}
