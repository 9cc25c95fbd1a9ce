//! The figures of `cli` as rows with their goals.

use super::Figures;
use crate::report::{Goal, Report, Row, Unit};
use crate::series::Series;

const NODE_MISSING: &str = "node is not installed: apt-get install nodejs";
const HCOM_MISSING: &str = "hcom is not installed: pip install hcom, or name it with --hcom FILE";

pub(super) fn report(f: &Figures) -> Report {
    let mut report = Report::new("cli");
    let send = "heddle send, durable, process per call";
    report.row(time("", format!("{send}: p50"), &f.send.p50));
    report.row(time("", format!("{send}: p99"), &f.send.p99));
    let what = "a trivial Rust binary (this one, doing nothing): p50";
    let row = time("P20", what, &f.noop.p50);
    report.row(against(row, &f.send.p50, Some(Goal::AtMost(1.7))));
    let row = time("", "/bin/true: p50", &f.nothing.p50);
    report.row(against(row, &f.send.p50, None));
    if f.node.p50.rounds().is_empty() {
        report.skipped("P20 against node", NODE_MISSING);
    } else {
        let row = time("P20", "node -e 0: p50", &f.node.p50);
        report.row(against(row, &f.send.p50, Some(Goal::AtMost(1.0 / 40.0))));
    }
    hcom(&mut report, f);
    report.remark("the trivial binary is this executable's own verb that returns at once");
    report
}

fn hcom(report: &mut Report, f: &Figures) {
    let storm = "heddle send, 30 processes × 5";
    report.row(time("", format!("{storm}: total"), &f.storm.total));
    report.row(time("", format!("{storm}: p99"), &f.storm.p99));
    if f.hcom.p50.rounds().is_empty() {
        report.skipped("P27 and P28", HCOM_MISSING);
        return;
    }
    let third = Some(Goal::AtMost(1.0 / 3.0));
    let row = time("P27", "hcom send: p50", &f.hcom.p50);
    report.row(against(row, &f.send.p50, third));
    let row = time("P27", "hcom send: p99", &f.hcom.p99);
    report.row(against(row, &f.send.p99, third));
    let row = time(
        "P28",
        "hcom send, 30 processes × 5: total",
        &f.hcom_storm.total,
    );
    report.row(against(row, &f.storm.total, third));
    let row = time("P28", "hcom send, 30 processes × 5: p99", &f.hcom_storm.p99);
    report.row(against(row, &f.storm.p99, Some(Goal::AtMost(0.1))));
}

fn time(id: &'static str, what: impl Into<String>, figures: &Series) -> Row {
    Row::new(id, what, Unit::Microseconds, figures.clone())
}

fn against(row: Row, own: &Series, goal: Option<Goal>) -> Row {
    let ratio = own.over(&row.figures);
    row.compared("send ÷ it", ratio, goal)
}
