//! The three outcomes of a key at the gate.

use crate::fingerprint::Fingerprint;

/// What a key and a fingerprint amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The key is free: the effect may be committed now, with the key, in one transaction.
    Fresh,
    /// The key was consumed by this very request: the first result is the answer.
    Duplicate,
    /// The key was consumed by another request: refused, nothing is written.
    Conflict,
}

/// Decides by comparing the consumed key's fingerprint, all 32 bytes of it, with the presented one.
pub fn outcome(consumed: Option<Fingerprint>, presented: Fingerprint) -> Outcome {
    match consumed {
        None => Outcome::Fresh,
        Some(stored) if stored == presented => Outcome::Duplicate,
        Some(_) => Outcome::Conflict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_the_fingerprint_decides() {
        let stored = Fingerprint([0; 32]);
        assert_eq!(outcome(None, stored), Outcome::Fresh);
        assert_eq!(outcome(Some(stored), stored), Outcome::Duplicate);
        for bit in 0..256 {
            let mut other = [0; 32];
            other[bit / 8] = 1 << (bit % 8);
            assert_eq!(outcome(Some(stored), Fingerprint(other)), Outcome::Conflict);
        }
    }
}
