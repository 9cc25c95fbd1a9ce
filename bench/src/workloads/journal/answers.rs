//! P13 and P14: until a mutation is answered, alone and 64 records at once; the disk's own figures in turns with them.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use super::store::{PAYLOAD_BYTES, Store, change, us};
use crate::error::{Outcome, While as _};
use crate::series::{Series, float};

const SINGLES: usize = 200;
const GROUP: usize = 64;
/// One group behind so many singles: both see the same disk.
const SINGLES_A_GROUP: usize = 5;
/// What an envelope adds to its payload, about.
const ENVELOPE_BYTES: usize = 400;

#[derive(Default)]
pub(super) struct Figures {
    /// Medians of one append with its sync, and of one answer, in microseconds.
    pub(super) bare: Series,
    pub(super) mutate: Series,
    /// Records a second.
    pub(super) bare_rate: Series,
    pub(super) bare_group_rate: Series,
    pub(super) single_rate: Series,
    pub(super) group_rate: Series,
}

/// A file to which lines are appended, each write synced, and nothing else.
pub(super) struct Bare {
    file: File,
    line: Vec<u8>,
    group: Vec<u8>,
}

impl Bare {
    pub(super) fn new(path: &Path) -> Outcome<Self> {
        let line = [vec![b'x'; PAYLOAD_BYTES + ENVELOPE_BYTES], vec![b'\n']].concat();
        Ok(Self {
            file: OpenOptions::new().create(true).append(true).open(path)?,
            group: line.repeat(GROUP),
            line,
        })
    }

    fn append(&mut self, is_group: bool) -> Outcome<f64> {
        let bytes = if is_group { &self.group } else { &self.line };
        let start = Instant::now();
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        Ok(us(start))
    }
}

/// Until the answer; projections follow it, before the next mutation begins.
fn answer(store: &Store, first: usize, count: usize, rev: usize) -> Outcome<f64> {
    let changes = (first..first + count).map(|n| change(n, rev)).collect();
    let start = Instant::now();
    let committed = store.journal.mutate(changes).or_fail("a mutation")?;
    let took = us(start);
    committed.finish().or_fail("projections")?;
    Ok(took)
}

fn rate(records: usize, times: &Series) -> f64 {
    float(records as u64) * 1e6 / times.rounds().iter().sum::<f64>()
}

impl Figures {
    pub(super) fn measure(&mut self, store: &Store, bare: &mut Bare) -> Outcome<()> {
        let [mut floor, mut floor_group, mut single, mut group] =
            [(); 4].map(|()| Series::default());
        for n in 0..SINGLES {
            floor.push(bare.append(false)?);
            single.push(answer(store, n % 50, 1, n)?);
            if n % SINGLES_A_GROUP == 0 {
                floor_group.push(bare.append(true)?);
                group.push(answer(store, 100, GROUP, n)?);
            }
        }
        let grouped = GROUP * group.rounds().len();
        self.bare.push(floor.median());
        self.mutate.push(single.median());
        self.bare_rate.push(rate(SINGLES, &floor));
        self.bare_group_rate.push(rate(grouped, &floor_group));
        self.single_rate.push(rate(SINGLES, &single));
        self.group_rate.push(rate(grouped, &group));
        Ok(())
    }
}
