//! One vector as it is kept and sent: finite 32-bit numbers, not all of them zero.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::limits::VECTOR_DIM_MAX;

const NUMBER_BYTES: usize = size_of::<f32>();
/// As much of a SHA-256 as tells numbers apart that a disk has changed.
const DIGEST_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbeddingError {
    #[error("an embedding has 1 to {VECTOR_DIM_MAX} numbers, not {0}")]
    Length(usize),
    #[error("number {0} of the embedding is not finite as a 32-bit number")]
    NotFinite(usize),
    #[error("an embedding of nothing but zeros points nowhere")]
    Zero,
    #[error("the embedding is not base64 of 32-bit numbers")]
    Form,
}

/// Kept byte for byte, so that replicas hold the same bytes.
#[derive(Debug, Clone)]
pub struct Embedding(Vec<f32>);

impl Embedding {
    pub fn new(numbers: Vec<f32>) -> Result<Self, EmbeddingError> {
        if numbers.is_empty() || numbers.len() > VECTOR_DIM_MAX {
            return Err(EmbeddingError::Length(numbers.len()));
        }
        if let Some(place) = numbers.iter().position(|number| !number.is_finite()) {
            return Err(EmbeddingError::NotFinite(place));
        }
        if numbers.iter().all(|number| *number == 0.0) {
            return Err(EmbeddingError::Zero);
        }
        Ok(Self(numbers))
    }

    /// As JSON carries them.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "what does not fit becomes infinite and is refused"
    )]
    pub fn from_doubles(numbers: &[f64]) -> Result<Self, EmbeddingError> {
        if numbers.len() > VECTOR_DIM_MAX {
            return Err(EmbeddingError::Length(numbers.len()));
        }
        Self::new(numbers.iter().map(|number| *number as f32).collect())
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EmbeddingError> {
        let (numbers, rest) = bytes.as_chunks::<NUMBER_BYTES>();
        if !rest.is_empty() {
            return Err(EmbeddingError::Form);
        }
        if numbers.len() > VECTOR_DIM_MAX {
            return Err(EmbeddingError::Length(numbers.len()));
        }
        Self::new(
            numbers
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
        )
    }

    /// Little-endian, also where the machine is not.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    /// What is kept beside the bytes of [`Embedding::to_bytes`]: any bits are some numbers, so only this says whether
    /// they are those that were stored.
    pub fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
        let whole: [u8; 32] = Sha256::digest(bytes).into();
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&whole[..DIGEST_BYTES]);
        digest
    }

    pub fn from_base64(text: &str) -> Result<Self, EmbeddingError> {
        // Before anything is decoded: text that cannot be one needs no memory.
        if text.len() > VECTOR_DIM_MAX * NUMBER_BYTES * 4 / 3 + 4 {
            return Err(EmbeddingError::Form);
        }
        let bytes = STANDARD.decode(text).map_err(|_| EmbeddingError::Form)?;
        Self::from_bytes(&bytes)
    }

    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.to_bytes())
    }

    pub fn as_slice(&self) -> &[f32] {
        &self.0
    }

    pub fn dim(&self) -> usize {
        self.0.len()
    }

    /// The same direction at length one. In doubles: neither huge nor tiny numbers lose their way.
    #[allow(clippy::cast_possible_truncation, reason = "at most one")]
    pub fn unit(&self) -> Vec<f32> {
        let squares: f64 = self.0.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let length = squares.sqrt();
        self.0
            .iter()
            .map(|x| (f64::from(*x) / length) as f32)
            .collect()
    }
}

/// By bytes: the same vector again is the same bytes again.
impl PartialEq for Embedding {
    fn eq(&self, other: &Self) -> bool {
        let bits = |embedding: &Self| embedding.0.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        bits(self) == bits(other)
    }
}

impl Eq for Embedding {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_direction_is_refused() {
        assert_eq!(Embedding::new(vec![]), Err(EmbeddingError::Length(0)));
        let long = vec![1.0; VECTOR_DIM_MAX + 1];
        assert_eq!(
            Embedding::new(long),
            Err(EmbeddingError::Length(VECTOR_DIM_MAX + 1))
        );
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(
                Embedding::new(vec![1.0, bad]),
                Err(EmbeddingError::NotFinite(1))
            );
        }
        assert_eq!(Embedding::new(vec![0.0, -0.0]), Err(EmbeddingError::Zero));
        // Finite as a double, infinite as what is kept; and too small to be anything.
        assert_eq!(
            Embedding::from_doubles(&[1e300]),
            Err(EmbeddingError::NotFinite(0))
        );
        assert_eq!(
            Embedding::from_doubles(&[1e-300]),
            Err(EmbeddingError::Zero)
        );
    }

    #[test]
    fn hostile_base64_is_refused_before_it_is_believed() {
        for bad in [
            "",
            "A",
            "AAAA",
            "AACAPw",
            "AACAPw==\n",
            "!!!!",
            &"A".repeat(1 << 20),
        ] {
            assert!(Embedding::from_base64(bad).is_err(), "{bad:.20}");
        }
        assert_eq!(
            Embedding::from_base64("AACAPw==").unwrap().as_slice(),
            [1.0]
        );
    }

    #[test]
    fn the_largest_and_the_smallest_numbers_have_a_direction() {
        for length in [f32::MAX, f32::MIN_POSITIVE / 1e6] {
            let unit = Embedding::new(vec![length, 0.0, -length]).unwrap().unit();
            assert!(
                (unit[0] - 0.5_f32.sqrt()).abs() < 1e-6 && (unit[0] + unit[2]).abs() < 1e-9,
                "{unit:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn bytes_and_base64_bring_back_every_bit(numbers in proptest::collection::vec(any::<f32>(), 1..40)) {
            if let Ok(embedding) = Embedding::new(numbers) {
                prop_assert_eq!(&Embedding::from_bytes(&embedding.to_bytes()).unwrap(), &embedding);
                prop_assert_eq!(&Embedding::from_base64(&embedding.to_base64()).unwrap(), &embedding);
            }
        }
    }
}
