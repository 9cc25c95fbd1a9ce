//! Prune: payloads are given back in small transactions; nothing else about a row changes (C33), unless an operator
//! retires dead rows.

use heddle_core::limits::PRUNE_BYTES_MAX;
use heddle_store::{PruneFilter, StoreError};

use crate::shared::Shared;

/// What a prune has done, or would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pruned {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Where to go on; `None` when everything was looked at.
    pub(crate) next: Option<i64>,
}

/// What becomes of the rows that are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prune {
    Count,
    Empty,
    /// Dead ones are aborted, too.
    Retire,
}

/// Goes through at most so many stretches of the outbox behind `after`.
///
/// Even giving back needs room in the log, for the pages that held a row's head: on a disk with little room
/// a transaction takes few rows, and the log is moved into the file between two of them.
pub(crate) async fn run(
    shared: &Shared,
    filter: PruneFilter,
    after: i64,
    stretches_max: usize,
    what: Prune,
) -> Result<Pruned, StoreError> {
    let mut pruned = Pruned {
        next: Some(after),
        ..Pruned::default()
    };
    for _ in 0..stretches_max {
        let Some(after) = pruned.next else { break };
        let look = shared.store.prune_look(filter.clone(), after).await?;
        for chunk in chunks(&look.rows, shared.disk.prune_rows_max()) {
            match what {
                Prune::Count => {}
                Prune::Empty => empty(shared, chunk).await?,
                Prune::Retire => retire(shared, chunk).await?,
            }
        }
        pruned.rows += look.rows.len() as u64;
        pruned.bytes += look
            .rows
            .iter()
            .map(|(_, bytes)| *bytes as u64)
            .sum::<u64>();
        pruned.next = look.next;
    }
    if what != Prune::Count && pruned.rows > 0 {
        shared.disk.count_anew();
    }
    Ok(pruned)
}

async fn retire(shared: &Shared, chunk: &[(i64, usize)]) -> Result<(), StoreError> {
    let arrivals = chunk.iter().map(|(arrival, _)| *arrival).collect();
    let at = shared.clock.wall();
    shared
        .store
        .retire(arrivals, "operator", at)
        .await
        .map(drop)
}

/// One transaction; on a full disk row by row, because even giving back needs a little room in the log.
async fn empty(shared: &Shared, chunk: &[(i64, usize)]) -> Result<(), StoreError> {
    let arrivals: Vec<i64> = chunk.iter().map(|(arrival, _)| *arrival).collect();
    match shared.store.prune(arrivals.clone()).await {
        Err(StoreError::DiskFull) if arrivals.len() > 1 => {
            for arrival in arrivals {
                shared.store.prune(vec![arrival]).await?;
            }
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Pieces that one transaction empties well within its 100 ms.
fn chunks(rows: &[(i64, usize)], rows_max: usize) -> Vec<&[(i64, usize)]> {
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for (index, (_, size)) in rows.iter().enumerate() {
        let is_full = index - start >= rows_max || bytes + size > PRUNE_BYTES_MAX;
        if is_full && index > start {
            chunks.push(&rows[start..index]);
            start = index;
            bytes = 0;
        }
        bytes += size;
    }
    if start < rows.len() {
        chunks.push(&rows[start..]);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use heddle_core::limits::PRUNE_ROWS_MAX;

    use super::*;

    #[test]
    fn a_chunk_keeps_both_bounds_and_a_large_row_goes_alone() {
        let rows =
            |sizes: &[usize]| -> Vec<(i64, usize)> { (1..).zip(sizes.iter().copied()).collect() };
        let sizes = |rows: &[(i64, usize)]| -> Vec<usize> {
            chunks(rows, PRUNE_ROWS_MAX)
                .iter()
                .map(|c| c.len())
                .collect()
        };
        assert!(sizes(&[]).is_empty());
        assert_eq!(sizes(&rows(&[1; 3])), [3]);
        assert_eq!(
            sizes(&rows(&vec![1; PRUNE_ROWS_MAX * 2 + 1])),
            [PRUNE_ROWS_MAX, PRUNE_ROWS_MAX, 1]
        );
        let large = PRUNE_BYTES_MAX;
        assert_eq!(sizes(&rows(&[1, large, large + 5, 1, 1])), [1, 1, 1, 2]);
        assert_eq!(chunks(&rows(&[1; 9]), 4).len(), 3);
        let all: usize = sizes(&rows(&[large / 3; 10])).iter().sum();
        assert_eq!(all, 10);
    }
}
