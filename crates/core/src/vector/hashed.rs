//! `heddle-hash-v1`: an embedding of text that needs no model, no network and no luck.
//!
//! Features of the folded text are hashed into 384 signed buckets. It finds texts that share words,
//! neighbouring words, or parts of words (so also inflections and typing errors); it knows nothing of
//! meaning. The recipe never changes: another one is another model. `vectors/heddle_hash_v1.json`
//! holds examples for other implementations.
//!
//! 1. Fold: NFC, every character to upper case and then to lower case (both without context), NFC.
//! 2. Words are the longest runs of alphanumeric characters and combining marks.
//! 3. Features, each with a weight: `w WORD` 1; `b WORD NEXT` 0.5; `g GRAM` 0.25 for every 3 and 4
//!    characters in a row of `<WORD>`; `s CHARACTER` 0.25 for every other character that is no
//!    white space. A feature that occurs n times counts its weight times √n.
//! 4. Each feature's UTF-8 bytes are hashed (FNV-1a with 64 bits, then the finish of MurmurHash3). The hash modulo
//!    384 is the bucket, its highest bit set means minus. Sums run over features in order of bytes.
//! 5. Divided by its length, as doubles; rounded to 32-bit numbers at the very end.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::embedding::Embedding;
use super::model::{ModelError, ModelIdentity, QUANTIZATION};

/// The name of the provider and of its only model.
pub const HASHED: &str = "heddle-hash-v1";
const DIM: usize = 384;
const GRAM_LENGTHS: [usize; 2] = [3, 4];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing in the text to make an embedding of")]
pub struct NothingToEmbed;

pub fn hashed_identity() -> Result<ModelIdentity, ModelError> {
    ModelIdentity::new(HASHED, HASHED, "1", DIM, QUANTIZATION)
}

pub fn hashed(text: &str) -> Result<Embedding, NothingToEmbed> {
    let mut sums = vec![0_f64; DIM];
    for (feature, (weight, count)) in features(&fold(text)) {
        let hash = hash(feature.as_bytes());
        #[allow(clippy::cast_possible_truncation, reason = "below 384")]
        let bucket = (hash % DIM as u64) as usize;
        let value = weight * f64::from(count).sqrt();
        sums[bucket] += if hash >> 63 == 1 { -value } else { value };
    }
    let length = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
    #[allow(clippy::cast_possible_truncation, reason = "at most one")]
    let numbers = sums.iter().map(|sum| (sum / length) as f32).collect();
    // Without features the length is zero, and nothing divided by it is a number.
    Embedding::new(numbers).map_err(|_| NothingToEmbed)
}

fn fold(text: &str) -> String {
    text.nfc()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfc()
        .collect()
}

/// What occurs in the text: the weight of one, and how many.
fn features(text: &str) -> BTreeMap<String, (f64, u32)> {
    let mut found: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    let mut note = |feature: String, weight| {
        let entry = found.entry(feature).or_insert((weight, 0));
        entry.1 = entry.1.saturating_add(1);
    };
    let is_of_word = |c: char| c.is_alphanumeric() || is_combining_mark(c);
    let words: Vec<&str> = text
        .split(|c| !is_of_word(c))
        .filter(|word| !word.is_empty())
        .collect();
    for word in &words {
        note(format!("w {word}"), 1.0);
        let framed: Vec<char> = format!("<{word}>").chars().collect();
        for length in GRAM_LENGTHS {
            for gram in framed.windows(length) {
                note(format!("g {}", gram.iter().collect::<String>()), 0.25);
            }
        }
    }
    for pair in words.windows(2) {
        note(format!("b {}", pair.join(" ")), 0.5);
    }
    for symbol in text
        .chars()
        .filter(|c| !is_of_word(*c) && !c.is_whitespace())
    {
        note(format!("s {symbol}"), 0.25);
    }
    found
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likeness(a: &str, b: &str) -> f32 {
        let (a, b) = (hashed(a).unwrap(), hashed(b).unwrap());
        a.as_slice()
            .iter()
            .zip(b.as_slice())
            .map(|(a, b)| a * b)
            .sum()
    }

    #[test]
    fn case_form_and_spelling_of_characters_make_no_difference() {
        assert_eq!(
            hashed("CAFE\u{301} stra\u{df}e"),
            hashed("caf\u{e9}  STRASSE")
        );
        assert_eq!(hashed("ΟΔΟΣ"), hashed("οδος"));
    }

    #[test]
    fn nothing_gives_nothing_and_everything_else_a_vector_of_length_one() {
        for empty in ["", " \t\n", "\u{2003}"] {
            assert_eq!(hashed(empty), Err(NothingToEmbed), "{empty:?}");
        }
        for text in ["a", "!", "日本語", "हिन्दी", "👩‍👩‍👧", "\0", &"x ".repeat(9999)]
        {
            let vector = hashed(text).unwrap();
            let length: f32 = vector.as_slice().iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5, "{text:.20}: {length}");
        }
    }

    #[test]
    fn texts_that_share_words_or_parts_of_words_are_nearer() {
        let text = "the deploy of the billing service failed at night";
        let order = [
            "The deploy of the billing service failed at night!",
            "billing deploys failing",
            "a recipe for plum cake with cinnamon",
        ];
        let near: Vec<f32> = order.iter().map(|other| likeness(text, other)).collect();
        assert!(
            near.windows(2).all(|pair| pair[0] > pair[1] + 0.1),
            "{near:?}"
        );
    }
}
