//! The checksum of a log, and which single bit a disk has changed if its result is wrong.
//!
//! It is a sum of 32-bit words, each times a factor that depends on its place alone. So a changed bit changes both halves
//! of the result by what its place says: it is found, not guessed. Of the highest bits of a word only the last few bits of
//! the factor count, and these are the same in several places; then it is known that one bit is wrong, and not which.

/// Both halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) first: u32,
    pub(super) second: u32,
}

/// How a log reads the words of its pages: as the machine that began it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Big,
    Little,
}

impl Order {
    fn word(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }
}

impl Sum {
    /// Goes on from what came before. `bytes` are pairs of words.
    pub(super) fn over(self, order: Order, bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        let Self {
            mut first,
            mut second,
        } = self;
        for [one, other] in pairs {
            first = first.wrapping_add(order.word(*one)).wrapping_add(second);
            second = second.wrapping_add(order.word(*other)).wrapping_add(first);
        }
        Self { first, second }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            first: self.first.wrapping_sub(other.first),
            second: self.second.wrapping_sub(other.second),
        }
    }

    fn shifted(self, bit: u32) -> Self {
        Self {
            first: self.first << bit,
            second: self.second << bit,
        }
    }
}

/// A byte, and the bits of it that are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flip {
    pub(super) at: usize,
    pub(super) mask: u8,
}

/// The bits of `bytes`, each of which alone would make its sum `right` instead of `wrong`, the first ones last.
pub(super) fn flipped_bits(order: Order, bytes: &[u8], wrong: Sum, right: Sum) -> Vec<Flip> {
    let mut found = Vec::new();
    let missing = right.minus(wrong);
    // What one more in the first and in the second word of a pair adds, from the last pair on.
    let mut one = Sum {
        first: 1,
        second: 1,
    };
    let mut other = Sum {
        first: 0,
        second: 1,
    };
    let next = |sum: Sum| {
        let first = sum.first.wrapping_add(sum.second);
        let second = first.wrapping_add(sum.second);
        Sum { first, second }
    };
    let (words, _) = bytes.as_chunks::<4>();
    for (number, word) in words.iter().enumerate().rev() {
        let factor = if number % 2 == 0 { one } else { other };
        let value = order.word(*word);
        for bit in 0..u32::BITS {
            let by = factor.shifted(bit);
            let change = if value >> bit & 1 == 1 {
                Sum::default().minus(by)
            } else {
                by
            };
            if change == missing {
                found.push(place(order, number, bit));
            }
        }
        if number % 2 == 0 {
            (one, other) = (next(one), next(other));
        }
    }
    found
}

fn place(order: Order, word: usize, bit: u32) -> Flip {
    let byte = bit as usize / 8;
    let byte = match order {
        Order::Little => byte,
        Order::Big => 3 - byte,
    };
    Flip {
        at: word * 4 + byte,
        mask: 1 << (bit % 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_single_bit_of_a_page_is_found_and_two_are_not() {
        let (mut sure, mut several) = (0, 0);
        for order in [Order::Little, Order::Big] {
            let page: Vec<u8> = (0..4104_u32)
                .map(|n| (n * n + n / 7).to_le_bytes()[0])
                .collect();
            let seed = Sum {
                first: 0x1234_5678,
                second: 0x9abc_def0,
            };
            let right = seed.over(order, &page);
            for at in (0..page.len()).step_by(13).chain([0, 1, 4102, 4103]) {
                for bit in 0..8 {
                    let mut changed = page.clone();
                    changed[at] ^= 1 << bit;
                    let wrong = seed.over(order, &changed);
                    let found = flipped_bits(order, &changed, wrong, right);
                    assert!(found.contains(&Flip { at, mask: 1 << bit }), "{at} {bit}");
                    let count = if found.len() == 1 {
                        &mut sure
                    } else {
                        &mut several
                    };
                    *count += 1;
                    changed[(at + 800) % 4104] ^= 4;
                    let wrong = seed.over(order, &changed);
                    assert_eq!(flipped_bits(order, &changed, wrong, right), []);
                }
            }
        }
        assert!(sure > 2 * several, "{sure} {several}");
    }
}
