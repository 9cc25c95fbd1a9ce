//! Segments are read and decoded ahead of their replay, by as many threads as there are cores; applied in order, by one.
//!
//! A batch never crosses segments, so each of them can be cut into batches on its own.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::JournalError;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::replay::{Known, Replay};
use crate::segments;

const WORKERS_MAX: usize = 8;
/// Segments that are in memory at once, per thread.
const HELD_PER_WORKER: usize = 2;

pub(crate) fn workers() -> usize {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, NonZeroUsize::get).min(WORKERS_MAX)
}

/// What a scan reported, kept for later.
#[derive(Debug, Default)]
pub(crate) struct Kept<'a> {
    records: Vec<Counted<'a>>,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    /// So many of the records, in order.
    Batch(usize),
    Damage(Damage),
}

impl<'a> Sink<'a> for Kept<'a> {
    fn batch(&mut self, _: &[Counted<'a>]) {}

    fn take_batch(&mut self, batch: &mut Vec<Counted<'a>>) {
        self.parts.push(Part::Batch(batch.len()));
        self.records.append(batch);
    }

    fn damage(&mut self, damage: Damage) {
        self.parts.push(Part::Damage(damage));
    }
}

impl<'a> Kept<'a> {
    fn tell(self, sink: &mut impl Sink<'a>) {
        let mut rest = self.records.as_slice();
        for part in self.parts {
            match part {
                Part::Batch(count) => {
                    let (batch, behind) = rest.split_at(count.min(rest.len()));
                    sink.batch(batch);
                    rest = behind;
                }
                Part::Damage(damage) => sink.damage(damage),
            }
        }
    }
}

type Scanned<'a> = Result<Kept<'a>, JournalError>;

/// All of these segments through the replay, in this order.
pub(crate) fn replay_all<K: Known>(
    journal: &Journal,
    firsts: &[u64],
    replay: &mut Replay<K>,
) -> Result<(), JournalError> {
    let workers = if firsts.len() > 1 { workers() } else { 1 };
    if workers == 1 {
        for first in firsts {
            let bytes = segments::read(journal.disk(), &journal.layout, *first)?;
            replay.segment(*first, &bytes, 0);
        }
        return Ok(());
    }
    for wave in firsts.chunks(workers * HELD_PER_WORKER) {
        replay_wave(journal, wave, workers, replay)?;
    }
    Ok(())
}

fn replay_wave<K: Known>(
    journal: &Journal,
    wave: &[u64],
    workers: usize,
    replay: &mut Replay<K>,
) -> Result<(), JournalError> {
    let buffers: Vec<OnceLock<Vec<u8>>> = wave.iter().map(|_| OnceLock::new()).collect();
    let (senders, receivers): (Vec<SyncSender<Scanned<'_>>>, Vec<Receiver<Scanned<'_>>>) =
        wave.iter().map(|_| sync_channel(1)).unzip();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(first) = wave.get(at) else {
                return;
            };
            let read = segments::read(journal.disk(), &journal.layout, *first);
            let scanned = read.map(|bytes| {
                let mut kept = Kept::default();
                scan(buffers[at].get_or_init(|| bytes), 0, &mut kept);
                kept
            });
            // Nobody waits any more: a segment before it could not be read.
            let _ = senders[at].send(scanned);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers.min(wave.len()) {
            scope.spawn(work);
        }
        for (first, receiver) in wave.iter().zip(&receivers) {
            let scanned = receiver.recv().map_err(JournalError::refused)?;
            replay.begin_segment(*first);
            scanned?.tell(replay);
        }
        Ok(())
    })
}
