//! The rows of the table.

use super::Figures;
use super::agents::AGENTS;
use super::rebuilds;
use crate::report::{Goal, Report, Row, Unit};
use crate::series::Series;

fn row(id: &'static str, what: impl Into<String>, unit: Unit, series: &Series) -> Row {
    Row::new(id, what, unit, series.clone())
}

fn at_most(most: f64) -> Option<Goal> {
    Some(Goal::AtMost(most))
}

/// A time that is judged by the clock alone.
fn seconds(id: &'static str, what: &str, us: &Series, most: f64) -> Row {
    let seconds = us.times(1e-6);
    row(id, what, Unit::Microseconds, us).compared("s", seconds, at_most(most))
}

pub(super) fn of(f: &Figures) -> Report {
    let mut report = Report::new("journal");
    answers(&mut report, f);
    for (entities, rebuilds) in [("100,000", &f.many), ("10,000", &f.few)] {
        rebuilt(&mut report, entities, rebuilds);
    }
    sizes(&mut report, f);
    processes(&mut report, f);
    report.remark(
        "P13, P14: until the answer; projections follow it, before the next mutation begins. Bare and product, single and group take turns",
    );
    report.remark(
        "P15: the floor reads every segment and parses every line into its fields, by one thread, and checks nothing. Caches were removed and files moved away before a rebuild; the index serves every entity, from the journal, until its file is there",
    );
    report.remark(
        "JN-37: a cold read is `heddle journal show` without caches; what 20 agents wait is from call to answer, append and sync included",
    );
    report
}

/// P13 and P14.
fn answers(report: &mut Report, f: &Figures) {
    let (us, rate) = (Unit::Microseconds, Unit::PerSecond);
    let f = &f.answers;
    report.row(row("", "append and fdatasync of 2 KB, p50", us, &f.bare));
    let answer = row("P13", "answer of a mutation, p50", us, &f.mutate);
    report.row(answer.compared("÷ append", f.mutate.over(&f.bare), at_most(1.0)));
    report.row(row("", "bare appends, single", rate, &f.bare_rate));
    let bare = row(
        "",
        "bare appends, 64 in one write",
        rate,
        &f.bare_group_rate,
    );
    report.row(bare.compared("÷ single", f.bare_group_rate.over(&f.bare_rate), None));
    report.row(row("", "mutations of one record", rate, &f.single_rate));
    report.row(
        row("P14", "records in groups of 64", rate, &f.group_rate).compared(
            "÷ single",
            f.group_rate.over(&f.single_rate),
            Some(Goal::AtLeast(35.0)),
        ),
    );
}

/// P15 of one store of 100,000 events.
fn rebuilt(report: &mut Report, entities: &str, f: &rebuilds::Figures) {
    let us = Unit::Microseconds;
    let over =
        |row: Row, series: &Series, most| row.compared("÷ parsing", series.over(&f.parse), most);
    let what = format!("typed parse of 100,000 × 2 KB, of {entities} entities");
    report.row(row("", what, us, &f.parse));
    let replay = row("P15", "replay of it", us, &f.replay);
    report.row(over(replay, &f.replay, at_most(1.5)));
    let what = format!("full rebuild: index and {entities} files");
    report.row(over(row("P15", what, us, &f.whole), &f.whole, at_most(5.0)));
    let what = format!("of that the index of {entities}, until a mutation is answered");
    report.row(over(row("", what, us, &f.index), &f.index, None));
    let what = format!("of that {entities} files, behind that answer");
    report.row(over(row("", what, us, &f.files), &f.files, None));
    for (by, series) in [
        ("one thread", &f.bare.alone),
        ("a thread a core", &f.bare.together),
    ] {
        let bare = row("", format!("{entities} bare files, {by}"), us, series);
        let behind = f.files.over(series);
        report.row(bare.compared("files behind the answer ÷ it", behind, None));
    }
}

/// P16.
fn sizes(report: &mut Report, f: &Figures) {
    let us = Unit::Microseconds;
    let what = "one operation among 1,000 entities";
    report.row(row("", what, us, &f.ops[0]));
    for (what, series) in [("10,000", &f.ops[1]), ("100,000", &f.ops[2])] {
        let what = format!("one operation among {what} entities");
        let ratio = series.over(&f.ops[0]);
        report.row(row("P16", what, us, series).compared("÷ 1,000", ratio, at_most(1.3)));
    }
}

/// P17 and JN-37.
fn processes(report: &mut Report, f: &Figures) {
    let us = Unit::Microseconds;
    let (shows, agents) = (&f.shows, &f.agents);
    report.row(row("", "a trivial binary", us, &shows.trivial));
    let ratio = shows.show.over(&shows.trivial);
    let what = "cold `heddle journal show`, 100,000 events";
    report.row(row("P17", what, us, &shows.show).compared("÷ trivial", ratio, at_most(20.0)));
    report.row(seconds("P17", "the same by the clock", &shows.show, 0.1));
    report.row(row("", "the slowest of each round", us, &shows.show_worst));
    let overhead = shows.show.plus(&shows.trivial.times(-1.0));
    let what = "fresh path: what it takes more than a trivial binary";
    report.row(seconds("JN-37", what, &overhead, 0.05));
    let what = "cold read: the same without caches, the whole journal read first";
    report.row(seconds("JN-37", what, &shows.cold, 1.0));
    let what = "the same with the journal out of the page cache";
    report.row(row("", what, us, &shows.from_disk));
    let what = format!("{AGENTS} processes append at once");
    report.row(row("", what, Unit::PerSecond, &agents.rate));
    report.row(row("", "one of them waits, p50", us, &agents.p50));
    let what = "one of them waits for lock and answer, p95";
    report.row(seconds("JN-37", what, &agents.p95, 0.2));
}
