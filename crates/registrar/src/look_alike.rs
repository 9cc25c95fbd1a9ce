//! Names that a person reads as another name: letters of two alphabets in one word, or letters of another alphabet that all
//! have the shape of a Latin one. A rule for `deploy` must not be escaped by what only looks like it.
//!
//! No table of all confusable characters: what is neither mixed nor made of the shapes below can be told from ASCII by
//! whoever reads it, and is never approved without being asked for (`policy`).

use unicode_normalization::UnicodeNormalization;

/// An alphabet, as far as this needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    Latin,
    /// Phonetic signs and small capitals: Latin by their script, and in no orthography beside plain letters.
    Phonetic,
    /// Chinese, Japanese, Korean: written beside Latin letters every day, and of no Latin shape.
    EastAsian,
    /// Any other, by the first character of its block: enough to tell two of them apart.
    Other(u32),
}

/// The letters of Cyrillic, Greek, Armenian and Coptic that have the shape of a Latin one, in the case in which they do.
const SHAPES: &str = "АВЕЅІЈКМНОРСТУХҮԌԚԜѴӀаеіјѕорсухһԁԛԝѵӏүҽ\
    ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳαγικνορσυϲ\
    ԱՏՍՕԼհոսօցզյա\
    ⲀⲂⲈⲎⲒⲔⲘⲚⲞⲢⲤⲦⲨⲬⲟⲣⲥⲭ";
/// Marks that are read as `-`, `/`, `:` or `*`.
const MARKS: &str = "\u{2d7}\u{2010}\u{2011}\u{2012}\u{2013}\u{2043}\u{2212}\u{2044}\u{2215}\u{29f8}\u{2d0}\u{2236}\u{a789}\u{2217}\u{204e}";

/// Where each alphabet begins that has letters which are taken for Latin ones, and those around it; sorted.
const BEGINS: &[u32] = &[
    0x370, 0x400, 0x530, 0x590, 0x600, 0x700, 0x900, 0xe00, 0x10a0, 0x13a0, 0x1400, 0x1680, 0x1780,
    0x1c80, 0x1cd0, 0x2c00, 0x2c80, 0x2d00, 0x2de0, 0xa4d0, 0xa500, 0xa640, 0xa6a0, 0xab70,
    0x10280,
];

fn alphabet(c: char) -> Option<Alphabet> {
    if !c.is_alphabetic() {
        return None;
    }
    Some(match u32::from(c) {
        0..0x250 | 0x1e00..0x1f00 | 0x2c60..0x2c80 => Alphabet::Latin,
        0x250..0x2b0 | 0x1d00..0x1dc0 | 0xa720..0xa800 | 0xab30..0xab70 => Alphabet::Phonetic,
        0x1100..0x1200
        | 0x2e80..0xa000
        | 0xa960..0xa980
        | 0xac00..0xd800
        | 0xf900..0xfb00
        | 0x1b000..0x1b300
        | 0x20000..0x32000 => Alphabet::EastAsian,
        // Modifier letters and marks that count as letters belong to whatever they stand beside.
        0x2b0..0x370 => return None,
        0x1f00..0x2000 => Alphabet::Other(0x370),
        0x1c80..0x1c90 | 0x2de0..0x2e00 | 0xa640..0xa6a0 => Alphabet::Other(0x400),
        point => {
            let block = BEGINS.iter().rev().find(|begins| **begins <= point);
            Alphabet::Other(block.copied().unwrap_or(point))
        }
    })
}

/// The character because of which this name is read as another one, if there is one.
pub(crate) fn found(text: &str) -> Option<char> {
    let read: String = text.nfkc().collect();
    read.chars()
        .find(|c| MARKS.contains(*c))
        .or_else(|| mixed(&read))
        .or_else(|| shaped(&read))
}

/// Of a word with letters of two alphabets: one that is not Latin, which is the one to look at.
fn mixed(text: &str) -> Option<char> {
    let mut word: Option<(Alphabet, char)> = None;
    for c in text.chars() {
        let Some(of) = alphabet(c) else {
            // A mark stays with its letter; anything else ends the word.
            if !('\u{300}'..='\u{36f}').contains(&c) {
                word = None;
            }
            continue;
        };
        let Some((before, letter)) = word.filter(|(before, _)| *before != of) else {
            word = Some((of, c));
            continue;
        };
        let two = [before, of];
        if !(two.contains(&Alphabet::EastAsian) && two.contains(&Alphabet::Latin)) {
            return Some(if of == Alphabet::Latin { letter } else { c });
        }
        word = Some((Alphabet::Latin, c));
    }
    None
}

/// Of a name whose letters of another alphabet all have a Latin shape: the first of them.
fn shaped(text: &str) -> Option<char> {
    let is_other = |c: &char| matches!(alphabet(*c), Some(Alphabet::Other(_)));
    let mut others = text.chars().filter(is_other);
    let first = others.clone().next()?;
    others.all(|c| SHAPES.contains(c)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_as_another_name_is_found() {
        for name in [
            "d\u{435}ploy",
            "\u{440}ay",
            "prod-\u{435}u",
            // Every letter Cyrillic, Greek or Armenian, and none that shows it.
            "\u{440}\u{430}\u{443}",
            "\u{420}\u{410}\u{423}",
            "prod-\u{441}\u{43e}\u{440}\u{443}",
            "\u{3c1}\u{3b1}\u{3b3}",
            "\u{585}\u{585}",
            // Latin by script, and in no word.
            "mi\u{261}rate",
            "p\u{251}y",
            "pa\u{28f}",
            // Two that are not Latin.
            "\u{441}\u{3bf}\u{440}\u{44f}",
            // Marks.
            "prod\u{2010}eu",
            "a\u{2215}b",
            "a\u{2236}b",
            // A mark on a letter does not end the word.
            "d\u{435}\u{301}ploy",
        ] {
            let other = found(name);
            assert!(other.is_some_and(|c| !c.is_ascii()), "{name:?}: {other:?}");
        }
    }

    #[test]
    fn an_honest_name_of_whichever_language_is_none_of_them() {
        for name in [
            "deploy",
            "Pay_2.0/eu-west:1",
            "caf\u{e9}",
            "gr\u{f6}\u{df}e",
            "s\u{131}n\u{131}f",
            "\u{10d}esk\u{fd}",
            "ti\u{1ebf}ng",
            "\u{442}\u{435}\u{441}\u{442}",
            "\u{441}\u{435}\u{440}\u{432}\u{435}\u{440} \u{430}",
            "\u{440}\u{435}\u{43b}\u{438}\u{437}-v2",
            "\u{3b4}\u{3bf}\u{3ba}\u{3b9}\u{3bc}\u{3ae}",
            "prod\u{74b0}\u{5883}",
            "\u{672c}\u{756a}\u{30c7}\u{30fc}\u{30bf}",
            "\u{bc30}\u{d3ec}v2",
            "\u{5d4}\u{5e4}\u{5e6}\u{5d4}",
            "\u{62a}\u{639}\u{64a}\u{64a}\u{646}",
            "\u{92a}\u{94d}\u{930}",
            "\u{ff44}\u{ff45}ploy",
        ] {
            assert_eq!(found(name), None, "{name:?}");
        }
    }
}
