//! P15: 100,000 records through a typed parser alone, through the replay, and out into index and files again.
//!
//! Nothing is deleted between two rounds, only moved away: ext4 gives out no inode that was freed in the last minutes and looks
//! at all of those first, so that whoever makes files where 100,000 were just removed measures that alone (a millisecond a file).

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
    /// The same as bare files.
    pub(super) bare: BareFiles,
    /// Both: the full rebuild.
    pub(super) whole: Series,
}

impl Figures {
    pub(super) fn measure(&mut self, store: &Store, entities: usize, round: usize) -> Outcome<()> {
        self.parse.push(parse(store)?);
        let start = Instant::now();
        let rebuilt = store.journal.rebuild(usize::MAX).or_fail("replay")?;
        std::hint::black_box(rebuilt.replay.head_seq);
        self.replay.push(us(start));
        drop(rebuilt);
        // Nothing is left but the records, as in a rebuild after a power cut.
        let layout = store.journal.layout();
        std::fs::rename(layout.entities(), store.folder.join(format!("away{round}")))?;
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
        let folder = store.folder.join("bare");
        self.bare.measure(&folder, entities, round)
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

/// As many files of that size in one folder as there are entities, and nothing else, not even a sync: what the file system asks for.
/// By one thread, and by as many as there are cores.
#[derive(Default)]
pub(super) struct BareFiles {
    pub(super) alone: Series,
    pub(super) together: Series,
}

impl BareFiles {
    pub(super) fn measure(&mut self, folder: &Path, files: usize, round: usize) -> Outcome<()> {
        let cores = std::thread::available_parallelism()?.get();
        let alone = folder.join(format!("alone{round}"));
        self.alone.push(bare_files(&alone, files, 1)?);
        let together = folder.join(format!("together{round}"));
        self.together.push(bare_files(&together, files, cores)?);
        Ok(())
    }
}

fn bare_files(folder: &Path, files: usize, threads: usize) -> Outcome<f64> {
    std::fs::create_dir_all(folder)?;
    let content = vec![b'x'; PAYLOAD_BYTES + 60];
    let share = files.div_ceil(threads);
    let write = |first: usize| -> std::io::Result<()> {
        for n in first..(first + share).min(files) {
            File::create_new(folder.join(format!("pln_{n}.json")))?.write_all(&content)?;
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| -> Outcome<()> {
        let shares: Vec<_> = (0..files)
            .step_by(share)
            .map(|first| {
                let write = &write;
                scope.spawn(move || write(first))
            })
            .collect();
        for share in shares {
            let written = share.join();
            written.map_err(|_| BenchError::new("a thread that wrote bare files died"))??;
        }
        Ok(())
    })?;
    Ok(us(start))
}
