//! The two loops that touch every row. Written so that the compiler vectorises them, and run with the
//! widest instructions that the machine turns out to have.
//!
//! Products are summed in 32 lanes and the lanes pairwise, without fused multiply-add: the same bits on
//! every machine, whatever its instructions are.

use pulp::Arch;

const LANES: usize = 32;

/// `found[n]` becomes the product of row n with `query`.
pub(super) fn products(rows: &[f32], query: &[f32], found: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (row, found) in rows.chunks_exact(query.len()).zip(found) {
                *found = product(row, query);
            }
        },
    );
}

/// `found[n]` becomes the number of bits in which row n differs from `query`.
pub(super) fn differences(rows: &[u64], query: &[u64], found: &mut [u32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (row, found) in rows.chunks_exact(query.len()).zip(found) {
                let pairs = row.iter().zip(query);
                *found = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
            }
        },
    );
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "it must become part of a loop with wider instructions"
)]
pub(super) fn product(a: &[f32], b: &[f32]) -> f32 {
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a_whole.iter().zip(b_whole) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum += a * b;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_wide_loops_give_the_bits_of_the_plain_ones(
            dim in 1..130_usize, numbers in proptest::collection::vec(-1.0_f32..1.0, 520)
        ) {
            let (query, rows) = numbers.split_at(dim);
            let rows = &rows[..rows.len() / dim * dim];
            let mut found = vec![0.0; rows.len() / dim];
            products(rows, query, &mut found);
            for (row, found) in rows.chunks_exact(dim).zip(&found) {
                prop_assert_eq!(product(row, query).to_bits(), found.to_bits());
                let exact: f64 = row.iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                prop_assert!((exact - f64::from(*found)).abs() < 1e-4);
            }
        }

        #[test]
        fn differing_bits_are_counted(rows in proptest::collection::vec(any::<[u64; 3]>(), 1..9), query: [u64; 3]) {
            let flat: Vec<u64> = rows.iter().flatten().copied().collect();
            let mut found = vec![0; rows.len()];
            differences(&flat, &query, &mut found);
            for (row, found) in rows.iter().zip(found) {
                let bits = |at: usize| (0..64).filter(|bit| (row[at] ^ query[at]) >> bit & 1 == 1).count();
                prop_assert_eq!((0..3).map(bits).sum::<usize>(), found as usize);
            }
        }
    }
}
