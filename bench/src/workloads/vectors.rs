//! P18 and P19: the ten nearest of 100,000 vectors, against reading the memory and against stock sqlite-vec.
//!
//! The vectors are `heddle-hash-v1` embeddings of real text: windows of words of this repository's own
//! documents and sources. All contenders search the same vectors for the same queries, in one process.

use std::path::{Path, PathBuf};
use std::time::Instant;

use heddle_core::vector::{Embedding, Label, Matrix, Scan, Top, hashed};
use rusqlite::Connection;

use super::progress;
use crate::error::{BenchError, Outcome};
use crate::options::Options;
use crate::report::{Goal, Report, Row, Unit};
use crate::scratch::Scratch;
use crate::series::{Series, float};

const ROWS: usize = 100_000;
const DIM: usize = 384;
const QUERIES: usize = 40;
const NEAREST: usize = 10;
const WINDOW_WORDS: usize = 14;
/// Additions that can be under way at once.
const LANES: usize = 64;

#[derive(Default)]
struct Figures {
    floor: Series,
    exact: Series,
    two_stages: Series,
    stock: Series,
    recall: Series,
}

pub fn run(options: &Options, scratch: &Scratch) -> Outcome<Report> {
    let texts = texts()?;
    let embeddings = texts
        .iter()
        .map(|text| hashed(text).map_err(|error| BenchError::new(error.to_string())))
        .collect::<Outcome<Vec<_>>>()?;
    let (rows, queries) = embeddings.split_at(ROWS);
    let matrix = matrix(rows);
    let flat: Vec<f32> = rows
        .iter()
        .flat_map(|row| row.as_slice().to_vec())
        .collect();
    let stock = stock(&scratch.file("stock.db"), rows)?;
    let mut figures = Figures::default();
    for round in 0..options.rounds {
        progress(options, round, "floor, exact, two stages, stock sqlite-vec");
        measure(&matrix, &flat, &stock, queries, &mut figures)?;
    }
    Ok(report(&figures))
}

fn measure(
    matrix: &Matrix,
    flat: &[f32],
    stock: &Connection,
    queries: &[Embedding],
    figures: &mut Figures,
) -> Outcome<()> {
    let mut times: [Vec<f64>; 4] = Default::default();
    let (mut found, mut wanted) = (0, 0);
    let mut statement = stock
        .prepare("SELECT rowid FROM stock WHERE embedding MATCH ?1 AND k = 10 ORDER BY distance")?;
    for query in queries {
        // One after the other, so that all of them meet the same machine.
        times[0].push(timed(|| read_memory(flat)).1);
        let (exact, took) = timed(|| nearest(matrix, query, Scan::Exact));
        times[1].push(took);
        let (near, took) = timed(|| nearest(matrix, query, Scan::Sketched));
        times[2].push(took);
        let bytes = query.to_bytes();
        let (count, took) = timed(|| -> rusqlite::Result<usize> {
            let rows = statement.query_map([&bytes], |row| row.get::<_, i64>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
                .map(|rows| rows.len())
        });
        times[3].push(took);
        if count? != NEAREST {
            return Err(BenchError::new("stock sqlite-vec found too few"));
        }
        wanted += exact.len() as u64;
        found += exact.iter().filter(|place| near.contains(place)).count() as u64;
    }
    let [floor, exact, two_stages, stock] = times.map(median);
    figures.floor.push(floor);
    figures.exact.push(exact);
    figures.two_stages.push(two_stages);
    figures.stock.push(stock);
    figures.recall.push(float(found) / float(wanted));
    Ok(())
}

fn report(figures: &Figures) -> Report {
    let us = Unit::Microseconds;
    let mut report = Report::new("vectors");
    report.row(Row::new(
        "",
        "reading 100,000 × 384 numbers",
        us,
        figures.floor.clone(),
    ));
    report.row(
        Row::new("P18", "exact top 10", us, figures.exact.clone()).compared(
            "÷ reading",
            figures.exact.over(&figures.floor),
            Some(Goal::AtMost(1.2)),
        ),
    );
    report.row(
        Row::new("P18", "stock sqlite-vec, top 10", us, figures.stock.clone()).compared(
            "÷ exact",
            figures.stock.over(&figures.exact),
            Some(Goal::AtLeast(4.5)),
        ),
    );
    report.row(
        Row::new("P19", "two-stage top 10", us, figures.two_stages.clone()).compared(
            "stock ÷ it",
            figures.stock.over(&figures.two_stages),
            Some(Goal::AtLeast(30.0)),
        ),
    );
    report.row(
        Row::new(
            "P19",
            "recall at 10 of the two stages",
            Unit::Count,
            figures.recall.clone(),
        )
        .compared(
            "of exact",
            figures.recall.clone(),
            Some(Goal::AtLeast(0.99)),
        ),
    );
    report
        .remark("embeddings are heddle-hash-v1 of this repository's own text; all in one process");
    report
}

/// What it gave, and how long it took in microseconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = std::hint::black_box(work());
    (result, start.elapsed().as_secs_f64() * 1e6)
}

fn median(times: Vec<f64>) -> f64 {
    let mut series = Series::default();
    for time in times {
        series.push(time);
    }
    series.median()
}

fn read_memory(flat: &[f32]) -> [f32; LANES] {
    let mut sums = [0.0; LANES];
    for numbers in flat.as_chunks::<LANES>().0 {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += number;
        }
    }
    sums
}

fn nearest(matrix: &Matrix, query: &Embedding, scan: Scan) -> Vec<i64> {
    let mut top = Top::new(NEAREST);
    matrix.search(query, scan, &mut top);
    top.into_hits().iter().map(|hit| hit.label.place).collect()
}

fn matrix(rows: &[Embedding]) -> Matrix {
    let mut matrix = Matrix::new(DIM);
    for (place, row) in (0..).zip(rows) {
        let key = format!("k{place}").into();
        let peer = "p".into();
        matrix.put(Label { place, key, peer }, row);
    }
    matrix
}

/// As its own documents make one, with everything in memory before it is asked.
fn stock(path: &Path, rows: &[Embedding]) -> Outcome<Connection> {
    heddle_sqlite::link_vectors().map_err(|error| BenchError::new(error.to_string()))?;
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "cache_size", -400_000)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(&format!(
        "CREATE VIRTUAL TABLE stock USING vec0 (embedding float[{DIM}] distance_metric=cosine)"
    ))?;
    let mut insert = transaction.prepare("INSERT INTO stock (rowid, embedding) VALUES (?1, ?2)")?;
    for (place, row) in (0_i64..).zip(rows) {
        insert.execute((place, row.to_bytes()))?;
    }
    drop(insert);
    transaction.commit()?;
    Ok(connection)
}

/// Windows of words that begin at every so many words, as many as are needed; the queries last.
fn texts() -> Outcome<Vec<String>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut files = Vec::new();
    for folder in ["docs", "crates", "sim", "bench", "xtask"] {
        files_in(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut words: Vec<String> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file)?;
        words.extend(text.split_whitespace().map(str::to_owned));
    }
    let wanted = ROWS + QUERIES;
    let step = words.len().saturating_sub(WINDOW_WORDS) / wanted;
    if step == 0 {
        return Err(BenchError::new(
            "there is too little text in this repository",
        ));
    }
    let window = |n: usize| words[n * step..n * step + WINDOW_WORDS].join(" ");
    let is_query = |n: &usize| n % (wanted / QUERIES) == 7;
    let mut numbers: Vec<usize> = (0..wanted).collect();
    numbers.sort_by_key(|n| is_query(n));
    Ok(numbers.into_iter().map(window).collect())
}

fn files_in(folder: &Path, files: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_text = path
            .extension()
            .is_some_and(|end| end == "md" || end == "rs");
        if path.is_dir() {
            files_in(&path, files)?;
        } else if is_text {
            files.push(path);
        }
    }
    Ok(())
}
