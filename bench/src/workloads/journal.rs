//! P13 to P17: the repository journal, against bare appends, against parsing alone, and as a cold process.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use heddle_core::clock::{ManualClock, ManualIds, WallMs};
use heddle_journal::action::Action;
use heddle_journal::disk::RealDisk;
use heddle_journal::{Change, Journal, Who, World};
use serde_json::json;

use super::progress;
use crate::error::{BenchError, Outcome, While as _};
use crate::options::Options;
use crate::product;
use crate::report::{Goal, Report, Row, Unit};
use crate::scratch::Scratch;
use crate::series::{Series, float};

const PAYLOAD_BYTES: usize = 2 << 10;
const SINGLES: usize = 200;
const GROUP: usize = 64;
const GROUPS: usize = 40;
const EVENTS: usize = 100_000;
/// Entities of the store whose events are ten to each.
const FEW: usize = 10_000;
/// Entities in one batch while a store is filled.
const FILL: usize = 1000;
const SIZES: [usize; 3] = [1000, 10_000, 100_000];
const OPS: usize = 100;
const SHOWS: usize = 20;

#[derive(Default)]
struct Figures {
    bare: Series,
    mutate: Series,
    single_rate: Series,
    group_rate: Series,
    /// Each event an entity of its own.
    many: Rebuilds,
    /// Ten events to each of a tenth as many entities.
    few: Rebuilds,
    bare_files: Series,
    ops: [Series; 3],
    trivial: Series,
    show: Series,
}

#[derive(Default)]
struct Rebuilds {
    parse: Series,
    replay: Series,
    /// Without caches and files: until a mutation is answered.
    answer: Series,
    /// What comes behind that answer: every file.
    files: Series,
    /// Both.
    whole: Series,
}

/// A store that was filled once and is read or added to in every round.
struct Store {
    folder: PathBuf,
    journal: Journal,
}

pub fn run(options: &Options, binary: &Path, scratch: &Scratch) -> Outcome<Report> {
    let single = Store::new(&scratch.folder("single")?, 1)?;
    let mut sized = Vec::new();
    for size in SIZES {
        let store = Store::new(&scratch.folder(&format!("entities{size}"))?, 2)?;
        store.fill(size, size)?;
        sized.push(store);
    }
    let few = Store::new(&scratch.folder("events")?, 3)?;
    few.fill(EVENTS, FEW)?;
    let mut bare = OpenOptions::new()
        .create(true)
        .append(true)
        .open(scratch.file("bare.jsonl"))?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "single, group, replay, sizes, cold show");
        singles(&single, &mut bare, &mut figures)?;
        groups(&single, &mut figures)?;
        replays(&sized[2], round, &mut figures.many)?;
        replays(&few, round, &mut figures.few)?;
        let folder = sized[2].folder.join("files");
        figures.bare_files.push(bare_files(&folder)?);
        for (store, series) in sized.iter().zip(&mut figures.ops) {
            series.push(store.op(round)?);
        }
        shows(&sized[2], binary, &mut figures)?;
    }
    Ok(report(&figures))
}

impl Store {
    fn new(folder: &Path, seed: u64) -> Outcome<Self> {
        let world = World {
            disk: Arc::new(RealDisk),
            clock: Arc::new(ManualClock::at(WallMs(1_794_000_000_000))),
            ids: Arc::new(ManualIds::seeded(seed)),
        };
        let who = Who {
            agent: "bench".to_owned(),
            ..Who::default()
        };
        let journal = Journal::init(world, &folder.join(".heddle"), who).or_fail("journal")?;
        Ok(Self {
            folder: folder.to_owned(),
            journal,
        })
    }

    /// So many events, over so many entities.
    fn fill(&self, events: usize, entities: usize) -> Outcome<()> {
        for first in (0..events).step_by(FILL) {
            let one = |n: usize| change(n % entities, n / entities);
            let changes = (first..first + FILL).map(one).collect();
            self.journal.mutate_whole(changes).or_fail("filling")?;
        }
        Ok(())
    }

    /// The median of a whole single-entity operation, projection included, in microseconds.
    fn op(&self, round: usize) -> Outcome<f64> {
        let mut times = Series::default();
        for n in 0..OPS {
            let changes = vec![change(n * 7, round + 1)];
            let start = Instant::now();
            self.journal.mutate_whole(changes).or_fail("an operation")?;
            times.push(us(start));
        }
        Ok(times.median())
    }
}

fn change(n: usize, rev: usize) -> Change {
    Change {
        item_type: "plan".to_owned(),
        item_id: Some(format!("pln_{n}")),
        action: Some(Action::Update),
        document: Some(json!({"title": "bench", "rev": rev, "body": "x".repeat(PAYLOAD_BYTES)})),
        summary: None,
    }
}

fn us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// P13: the answer of a mutation and a bare append with its sync, in turns.
fn singles(store: &Store, bare: &mut File, figures: &mut Figures) -> Outcome<()> {
    let line = [vec![b'x'; PAYLOAD_BYTES + 400], vec![b'\n']].concat();
    let (mut floor, mut product) = (Series::default(), Series::default());
    let mut total_us = 0.0;
    for n in 0..SINGLES {
        let start = Instant::now();
        bare.write_all(&line)?;
        bare.sync_data()?;
        floor.push(us(start));
        let changes = vec![change(n % 50, n)];
        let start = Instant::now();
        let committed = store.journal.mutate(changes).or_fail("a mutation")?;
        let took = us(start);
        committed.finish().or_fail("projections")?;
        total_us += took;
        product.push(took);
    }
    figures.bare.push(floor.median());
    figures.mutate.push(product.median());
    figures
        .single_rate
        .push(float(SINGLES as u64) * 1e6 / total_us);
    Ok(())
}

/// P14: answers a second when 64 records share one write and one sync.
fn groups(store: &Store, figures: &mut Figures) -> Outcome<()> {
    let mut total_us = 0.0;
    for n in 0..GROUPS {
        let changes = (0..GROUP).map(|id| change(100 + id, n)).collect();
        let start = Instant::now();
        let committed = store.journal.mutate(changes).or_fail("a group")?;
        total_us += us(start);
        committed.finish().or_fail("projections")?;
    }
    let records = float((GROUP * GROUPS) as u64);
    figures.group_rate.push(records * 1e6 / total_us);
    Ok(())
}

/// P15: all records through the parser alone, through the replay, and out into index and files again.
fn replays(store: &Store, round: usize, figures: &mut Rebuilds) -> Outcome<()> {
    let events = store.journal.layout().events();
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(&events)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            segments.push(std::fs::read(path)?);
        }
    }
    let start = Instant::now();
    let mut count = 0;
    for line in segments
        .iter()
        .flat_map(|bytes| bytes.split(|b| *b == b'\n'))
    {
        if let Ok(record) = heddle_journal::record::decode(line) {
            std::hint::black_box(&record);
            count += 1;
        }
    }
    figures.parse.push(us(start));
    if count < EVENTS {
        return Err(BenchError::new("the store lost records"));
    }
    drop(segments);
    let start = Instant::now();
    let rebuilt = store.journal.rebuild(usize::MAX).or_fail("replay")?;
    std::hint::black_box(rebuilt.replay.head_seq);
    figures.replay.push(us(start));
    drop(rebuilt);
    // Without its caches a store is rebuilt as after a power cut.
    std::fs::remove_dir_all(store.journal.layout().entities())?;
    std::fs::create_dir(store.journal.layout().entities())?;
    std::fs::remove_file(store.journal.layout().meta())?;
    std::fs::remove_file(store.journal.layout().revisions())?;
    let start = Instant::now();
    let changes = vec![change(7, 1000 + round)];
    let committed = store.journal.mutate(changes).or_fail("rebuild")?;
    let answered = us(start);
    committed.finish().or_fail("files")?;
    let whole = us(start);
    figures.answer.push(answered);
    figures.files.push(whole - answered);
    figures.whole.push(whole);
    Ok(())
}

/// As many files of that size as there are entities, and nothing else: what the file system asks for.
fn bare_files(folder: &Path) -> Outcome<f64> {
    std::fs::create_dir(folder)?;
    let content = vec![b'x'; PAYLOAD_BYTES + 60];
    let start = Instant::now();
    for n in 0..EVENTS {
        File::create_new(folder.join(format!("pln_{n}.json")))?.write_all(&content)?;
    }
    let took = us(start);
    std::fs::remove_dir_all(folder)?;
    Ok(took)
}

/// P17: a process that shows one entity of the large store, and one that does nothing.
fn shows(store: &Store, binary: &Path, figures: &mut Figures) -> Outcome<()> {
    let (mut trivial, mut show) = (Series::default(), Series::default());
    for n in 0..SHOWS {
        let mut nothing = Command::new(std::env::current_exe()?);
        nothing.arg(crate::NOOP);
        trivial.push(process(&mut nothing, &store.folder)?);
        let mut shown = product::command(binary, &store.folder.join("home"));
        shown.args(["journal", "show", "plan", &format!("pln_{}", n * 31)]);
        show.push(process(&mut shown, &store.folder)?);
    }
    figures.trivial.push(trivial.median());
    figures.show.push(show.median());
    Ok(())
}

fn process(command: &mut Command, folder: &Path) -> Outcome<f64> {
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = us(start);
    if status.success() {
        Ok(took)
    } else {
        Err(BenchError::new(format!("a process failed: {status}")))
    }
}

/// The rows of one store of 100,000 events.
fn rebuilt(report: &mut Report, entities: &str, f: &Rebuilds) {
    let us = Unit::Microseconds;
    let row = |id, what: String, series: &Series| Row::new(id, what, us, series.clone());
    let over =
        |row: Row, series: &Series, most| row.compared("÷ parsing", series.over(&f.parse), most);
    let what = format!("parsing 100,000 × 2 KB, of {entities} entities");
    report.row(row("", what, &f.parse));
    let replay = row("P15", "replay of it".to_owned(), &f.replay);
    report.row(over(replay, &f.replay, Some(Goal::AtMost(1.5))));
    let what = format!("index of {entities} anew, until a mutation is answered");
    let answer = row("P15", what, &f.answer);
    report.row(over(answer, &f.answer, Some(Goal::AtMost(5.0))));
    let what = format!("{entities} files anew, behind that answer");
    report.row(over(row("", what, &f.files), &f.files, None));
    let what = format!("index and {entities} files");
    report.row(over(row("", what, &f.whole), &f.whole, None));
}

fn report(figures: &Figures) -> Report {
    let (us, rate) = (Unit::Microseconds, Unit::PerSecond);
    let f = figures;
    let mut report = Report::new("journal");
    let row = |id, what: &str, unit, series: &Series| Row::new(id, what, unit, series.clone());
    let at_most = |most| Some(Goal::AtMost(most));
    report.row(row("", "append and fdatasync of 2 KB, p50", us, &f.bare));
    report.row(
        row("P13", "answer of a mutation, p50", us, &f.mutate).compared(
            "÷ append",
            f.mutate.over(&f.bare),
            at_most(1.0),
        ),
    );
    report.row(row("", "single mutations", rate, &f.single_rate));
    report.row(
        row("P14", "records in groups of 64", rate, &f.group_rate).compared(
            "÷ single",
            f.group_rate.over(&f.single_rate),
            Some(Goal::AtLeast(35.0)),
        ),
    );
    for (entities, rebuilds) in [("100,000", &f.many), ("10,000", &f.few)] {
        rebuilt(&mut report, entities, rebuilds);
    }
    report.row(
        row("", "100,000 bare files, one thread", us, &f.bare_files).compared(
            "files behind the answer ÷ it",
            f.many.files.over(&f.bare_files),
            None,
        ),
    );
    report.row(row("", "one operation among 1,000 entities", us, &f.ops[0]));
    for (what, series) in [("10,000", &f.ops[1]), ("100,000", &f.ops[2])] {
        let what = format!("one operation among {what} entities");
        report.row(row("P16", &what, us, series).compared(
            "÷ 1,000",
            series.over(&f.ops[0]),
            at_most(1.3),
        ));
    }
    report.row(row("", "a process that does nothing", us, &f.trivial));
    report.row(
        row("P17", "cold `heddle journal show`", us, &f.show).compared(
            "÷ nothing",
            f.show.over(&f.trivial),
            at_most(20.0),
        ),
    );
    let seconds = f.show.times(1e-6);
    report.row(
        row("P17", "the same in seconds", Unit::Count, &seconds).compared(
            "s",
            seconds.clone(),
            at_most(0.1),
        ),
    );
    report.remark(
        "P13, P14: until the answer; projections follow it, before the next mutation begins",
    );
    report.remark(
        "P15: caches and files were all removed before; the index serves every entity, from the journal, until its file is there",
    );
    report
}
