//! The loops that touch every row. Written so that the compiler vectorises them, and run with the
//! widest instructions that the machine turns out to have.
//!
//! Products are summed in 32 lanes and the lanes pairwise, without fused multiply-add: the same bits on
//! every machine, whatever its instructions are.

use pulp::Arch;

/// Numbers of the narrowest register that is worth a loop of its own.
const WIDTH: usize = 8;
/// Registers that add up at the same time: fewer would wait for each other.
const REGISTERS: usize = 4;
const LANES: usize = WIDTH * REGISTERS;

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

/// `found[n]` becomes the product of the n-th of the picked rows with `query`.
pub(super) fn picked_products(rows: &[f32], picked: &[usize], query: &[f32], found: &mut [f32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (at, found) in picked.iter().zip(found) {
                let start = at * query.len();
                *found = product(&rows[start..start + query.len()], query);
            }
        },
    );
}

/// `found[n]` becomes the number of bits in which row n differs from `query`.
pub(super) fn differences<const N: usize>(rows: &[u64], query: &[u64; N], found: &mut [u32]) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (row, found) in rows.as_chunks::<N>().0.iter().zip(found) {
                let pairs = row.iter().zip(query);
                *found = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
            }
        },
    );
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "it must become part of a loop with wider instructions, and numbers known to the compiler lead there"
)]
pub(super) fn product(a: &[f32], b: &[f32]) -> f32 {
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    // One array for each register, never borrowed and only looked up by numbers that the compiler knows: otherwise
    // it keeps the sums in memory, and that takes three times as long as the rows take to come (P18).
    let mut sums = [[0.0_f32; WIDTH]; REGISTERS];
    for (a, b) in a_whole.iter().zip(b_whole) {
        for register in 0..REGISTERS {
            for lane in 0..WIDTH {
                let at = register * WIDTH + lane;
                sums[register][lane] += a[at] * b[at];
            }
        }
    }
    let mut lanes = [0.0_f32; LANES];
    for register in 0..REGISTERS {
        for lane in 0..WIDTH {
            lanes[register * WIDTH + lane] = sums[register][lane];
        }
    }
    for (sum, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum += a * b;
    }
    let halves: [f32; LANES / 2] = folded(lanes);
    let eight: [f32; WIDTH] = folded(halves);
    let four: [f32; WIDTH / 2] = folded(eight);
    let [even, odd]: [f32; WIDTH / 4] = folded(four);
    even + odd
}

/// The upper half added to the lower one.
#[inline(always)]
#[allow(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "as above"
)]
fn folded<const N: usize, const HALF: usize>(lanes: [f32; N]) -> [f32; HALF] {
    let mut half = [0.0; HALF];
    for lane in 0..HALF {
        half[lane] = lanes[lane] + lanes[lane + HALF];
    }
    half
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
            let backwards: Vec<usize> = (0..found.len()).rev().collect();
            let mut picked = vec![0.0; found.len()];
            picked_products(rows, &backwards, query, &mut picked);
            picked.reverse();
            prop_assert_eq!(&picked, &found);
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
