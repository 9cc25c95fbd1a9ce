//! P15: 100,000 records through a typed parser alone, through the replay, and out into index and files again.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use heddle_journal::record::Record;

use super::store::{EVENTS, PAYLOAD_BYTES, Store, change, us};
use crate::error::{BenchError, Outcome, While as _};
use crate::series::Series;

#[derive(Default)]
pub(super) struct Figures {
    pub(super) parse: Series,
    pub(super) replay: Series,
    /// Without caches and files: until a mutation is answered, which needs the index.
    pub(super) index: Series,
    /// What comes behind that answer: every file.
    pub(super) files: Series,
    /// Both: the full rebuild.
    pub(super) whole: Series,
}

impl Figures {
    pub(super) fn measure(&mut self, store: &Store, round: usize) -> Outcome<()> {
        self.parse.push(parse(store)?);
        let start = Instant::now();
        let rebuilt = store.journal.rebuild(usize::MAX).or_fail("replay")?;
        std::hint::black_box(rebuilt.replay.head_seq);
        self.replay.push(us(start));
        drop(rebuilt);
        // Nothing is left but the records, as in a rebuild after a power cut.
        let layout = store.journal.layout();
        std::fs::remove_dir_all(layout.entities())?;
        std::fs::create_dir(layout.entities())?;
        std::fs::remove_file(layout.meta())?;
        std::fs::remove_file(layout.revisions())?;
        let start = Instant::now();
        let changes = vec![change(7, 1000 + round)];
        let committed = store.journal.mutate(changes).or_fail("rebuild")?;
        let answered = us(start);
        committed.finish().or_fail("files")?;
        let whole = us(start);
        self.index.push(answered);
        self.files.push(whole - answered);
        self.whole.push(whole);
        Ok(())
    }
}

/// The floor: each segment read, each line parsed into its fields with the payload left as it is, by one thread. No checksum, no
/// batch, no state.
fn parse(store: &Store) -> Outcome<f64> {
    let mut segments: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(store.journal.layout().events())? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            segments.push(path);
        }
    }
    // In memory for the floor as for the replay behind it.
    for path in &segments {
        std::hint::black_box(std::fs::read(path)?);
    }
    let start = Instant::now();
    let mut count = 0;
    for path in segments {
        let bytes = std::fs::read(path)?;
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let record: Record<'_> = serde_json::from_slice(line).or_fail("a record")?;
            std::hint::black_box(&record);
            count += 1;
        }
    }
    let took = us(start);
    if count < EVENTS {
        return Err(BenchError::new("the store lost records"));
    }
    Ok(took)
}

/// As many files of that size as there are entities, and nothing else: what the file system asks for.
pub(super) fn bare_files(folder: &Path) -> Outcome<f64> {
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
