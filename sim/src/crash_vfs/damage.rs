//! What a power cut may do to changes that were not synced: eight kinds, each a pure function of a seed.

use std::sync::Arc;

use super::disk::Device;
use super::rng::Rng;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing unsynced survives.
    LoseUnsynced,
    /// Everything survives: the process died, the machine did not.
    KeepUnsynced,
    /// Any set of 512-byte pieces survives.
    Sectors512,
    /// Any set of 4096-byte pieces survives.
    Sectors4096,
    /// Everything survives, the last write only up to some 512-byte border.
    TearLastWrite,
    /// Any set of whole writes survives, so a later one may without an earlier one.
    Reorder,
    /// Each file survives as it is or falls back to its last sync.
    WholeFiles,
    /// Pieces of 4096 bytes are old, new or garbage.
    Garble,
}

impl Damage {
    pub const ALL: [Damage; 8] = [
        Damage::LoseUnsynced,
        Damage::KeepUnsynced,
        Damage::Sectors512,
        Damage::Sectors4096,
        Damage::TearLastWrite,
        Damage::Reorder,
        Damage::WholeFiles,
        Damage::Garble,
    ];
}

/// A change of a file that no sync covers yet.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { offset: usize, data: Arc<[u8]> },
    Truncate { size: usize },
}

impl Change {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { offset, data } => put(bytes, *offset, data),
            Change::Truncate { size } => bytes.truncate(*size),
        }
    }
}

/// Writes at an offset; a gap before it reads as zeros.
pub(crate) fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if bytes.len() < offset {
        bytes.append(&mut vec![0; offset - bytes.len()]);
    }
    let over = data.len().min(bytes.len() - offset);
    bytes[offset..offset + over].copy_from_slice(&data[..over]);
    bytes.extend_from_slice(&data[over..]);
}

/// What the disk holds of one file: its synced bytes and whatever `damage` leaves of `changes`.
/// `holds_last` says whether the last change is the one that was under way when the power went.
pub(crate) fn survivors(
    damage: Damage,
    device: Device,
    rng: &mut Rng,
    synced: &[u8],
    changes: &[&Change],
    holds_last: bool,
) -> Vec<u8> {
    let mut bytes = synced.to_vec();
    let file_survives = rng.coin();
    for (at, &change) in changes.iter().enumerate() {
        let is_last = holds_last && at + 1 == changes.len();
        match (damage, change) {
            (Damage::LoseUnsynced, _) => {}
            (Damage::TearLastWrite, Change::Write { offset, data }) if is_last => {
                let kept = rng.up_to(data.len() / 512) * 512;
                put(&mut bytes, *offset, &data[..kept.min(data.len())]);
            }
            (Damage::KeepUnsynced | Damage::TearLastWrite, _) => change.apply(&mut bytes),
            (Damage::WholeFiles, _) => {
                if file_survives {
                    change.apply(&mut bytes);
                }
            }
            (Damage::Reorder, _) | (_, Change::Truncate { .. }) => {
                if rng.coin() {
                    change.apply(&mut bytes);
                }
            }
            (Damage::Sectors512, Change::Write { offset, data }) => {
                some_pieces(&mut bytes, rng, 512, *offset, data);
            }
            (Damage::Sectors4096, Change::Write { offset, data }) => {
                some_pieces(&mut bytes, rng, 4096, *offset, data);
            }
            (Damage::Garble, Change::Write { offset, data }) => {
                garbled_pieces(&mut bytes, rng, device, *offset, data);
            }
        }
    }
    bytes
}

fn some_pieces(bytes: &mut Vec<u8>, rng: &mut Rng, sector: usize, offset: usize, data: &[u8]) {
    for (at, piece) in pieces(sector, offset, data) {
        if rng.coin() {
            put(bytes, at, piece);
        }
    }
}

fn garbled_pieces(bytes: &mut Vec<u8>, rng: &mut Rng, device: Device, offset: usize, data: &[u8]) {
    for (at, piece) in pieces(4096, offset, data) {
        match rng.up_to(2) {
            0 => {}
            1 => put(bytes, at, piece),
            _ => {
                let (first, end) = match device {
                    Device::PowersafeOverwrite => (at, at + piece.len()),
                    // A plain disk may lose the whole sector, with bytes that nobody was writing.
                    Device::Plain => {
                        let first = at / 4096 * 4096;
                        (first, (first + 4096).min(bytes.len()).max(at + piece.len()))
                    }
                };
                let garbage = rng.next().to_le_bytes().repeat(4096 / 8);
                put(bytes, first, &garbage[..end - first]);
            }
        }
    }
}

/// Cuts a write at the borders of the disk's sectors.
fn pieces(sector: usize, offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == data.len() {
            return None;
        }
        let at = offset + start;
        let length = (sector - at % sector).min(data.len() - start);
        let piece = &data[start..start + length];
        start += length;
        Some((at, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::{Change, Damage, pieces, survivors};
    use crate::crash_vfs::disk::Device;
    use crate::crash_vfs::rng::Rng;

    fn writes() -> Vec<Change> {
        vec![
            Change::Write {
                offset: 0,
                data: vec![1; 1024].into(),
            },
            Change::Truncate { size: 700 },
            Change::Write {
                offset: 2048,
                data: vec![2; 1024].into(),
            },
        ]
    }

    fn left(damage: Damage, seed: u64) -> Vec<u8> {
        let writes = writes();
        survivors(
            damage,
            Device::Plain,
            &mut Rng::new(seed),
            &[9; 100],
            &writes.iter().collect::<Vec<_>>(),
            true,
        )
    }

    #[test]
    fn the_two_extremes_are_exact() {
        assert_eq!(left(Damage::LoseUnsynced, 1), vec![9; 100]);
        let mut all = vec![1; 700];
        all.resize(2048, 0);
        all.resize(3072, 2);
        assert_eq!(left(Damage::KeepUnsynced, 1), all);
    }

    #[test]
    fn every_other_kind_gives_more_than_one_outcome_and_the_same_one_for_a_seed() {
        for damage in Damage::ALL {
            let outcomes: std::collections::BTreeSet<_> =
                (0..40).map(|seed| left(damage, seed)).collect();
            for seed in 0..5 {
                assert_eq!(left(damage, seed), left(damage, seed));
            }
            let extreme = matches!(damage, Damage::LoseUnsynced | Damage::KeepUnsynced);
            assert_eq!(outcomes.len() == 1, extreme, "{damage:?}");
        }
    }

    #[test]
    fn pieces_end_at_sector_borders_and_cover_the_write() {
        let data = [0; 2000];
        let cut: Vec<_> = pieces(512, 300, &data)
            .map(|(at, piece)| (at, piece.len()))
            .collect();
        assert_eq!(
            cut,
            [
                (300, 212),
                (512, 512),
                (1024, 512),
                (1536, 512),
                (2048, 252)
            ]
        );
    }
}
