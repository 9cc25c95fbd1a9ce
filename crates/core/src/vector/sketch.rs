//! A vector in 512 bits: the signs of its products with 512 fixed directions.
//!
//! The directions are random signs followed by a Walsh-Hadamard transform, so that also a vector with few
//! numbers in it spreads over all bits. The share of bits in which two sketches differ estimates the
//! angle between the vectors; it only chooses who is measured exactly, and is never kept on disk.

pub(super) const BITS: usize = 512;
pub(super) const WORDS: usize = BITS / 64;

/// Turns vectors of one dimension into sketches.
#[derive(Debug, Clone)]
pub(super) struct Sketcher {
    /// The signs of each round; every round gives as many bits as it is wide.
    rounds: Vec<Vec<f32>>,
}

impl Sketcher {
    pub(super) fn new(dim: usize) -> Self {
        let width = dim.next_power_of_two();
        let rounds = (BITS / width).max(1);
        let sign = |place: usize| {
            if mixed(place as u64) >> 63 == 1 {
                -1.0
            } else {
                1.0
            }
        };
        let signs = |round: usize| (0..width).map(|n| sign(round * width + n)).collect();
        Self {
            rounds: (0..rounds).map(signs).collect(),
        }
    }

    pub(super) fn sketch(&self, unit: &[f32]) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let mut bit = 0;
        for signs in &self.rounds {
            let mut turned: Vec<f32> = signs
                .iter()
                .zip(unit.iter().chain(std::iter::repeat(&0.0)))
                .map(|(sign, x)| sign * x)
                .collect();
            transform(&mut turned);
            for value in turned.iter().take(BITS - bit) {
                words[bit / 64] |= u64::from(*value < 0.0) << (bit % 64);
                bit += 1;
            }
        }
        words
    }
}

/// Walsh-Hadamard, in place; the length is a power of two.
fn transform(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for block in values.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// SplitMix64: the n-th of a fixed row of random numbers.
fn mixed(n: u64) -> u64 {
    let mut z = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differing(a: &[f32], b: &[f32]) -> u32 {
        let sketcher = Sketcher::new(a.len());
        let (a, b) = (sketcher.sketch(a), sketcher.sketch(b));
        a.iter().zip(&b).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    #[test]
    fn the_share_of_differing_bits_follows_the_angle_in_every_dimension() {
        for dim in [5, 64, 384, 600, 3072] {
            let mut a = vec![0.0; dim];
            let mut b = vec![0.0; dim];
            for n in 0..dim {
                let length = 1.0 + f32::from(u8::try_from(n % 7).unwrap()) / 10.0;
                a[n] = if mixed(n as u64 + 7) >> 63 == 1 {
                    length
                } else {
                    -length
                };
                b[n] = if n * 4 < dim { -a[n] } else { a[n] };
            }
            let opposite: Vec<f32> = a.iter().map(|x| -x).collect();
            assert_eq!(differing(&a, &a), 0);
            assert!(differing(&a, &opposite) > 500, "{dim}");
            let near = differing(&a, &b);
            assert!((60..=300).contains(&near) || dim < 8, "{dim}: {near}");
        }
    }
}
