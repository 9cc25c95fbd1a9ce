//! Rule `leftover`: work that was put off is an issue or an ADR, never a word in the source. Tests included.

use super::source::Source;
use super::tokens::Token;
use crate::finding::Finding;

const RULE: &str = "leftover";
/// Split, or this file would be its own finding.
const WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        for word in WORDS.iter().filter(|word| has_word(line, word)) {
            let advice = format!("`{word}`: do it now, or write it down outside the source");
            findings.push(Finding::new(&source.path, index + 1, RULE, advice));
        }
    }
    for pair in source.tokens.windows(2) {
        for name in MACROS.iter().filter(|name| is_macro(pair, name)) {
            let advice = format!("`{name}!`: finish it or take it out");
            findings.push(Finding::new(&source.path, pair[0].line, RULE, advice));
        }
    }
    findings
}

fn is_macro(pair: &[Token], name: &str) -> bool {
    pair[0].is_ident(name) && pair[1].is_punct('!')
}

/// `word` with no letter, digit or underscore on either side.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::{MACROS, WORDS, check};
    use crate::tidy::lines_found;

    #[test]
    fn every_word_is_caught_in_comments_docs_and_strings() {
        for word in WORDS {
            for text in [
                format!("fn f() {{}}\n// {word}: later\n"),
                format!("fn f() {{}}\n/// ({word})\nfn g() {{}}\n"),
                format!("fn f() {{}}\nconst S: &str = \"{word}\";\n"),
            ] {
                assert_eq!(lines_found(check, "a.rs", &text), [2], "{text}");
            }
        }
    }

    #[test]
    fn every_macro_is_caught_even_in_tests_and_inside_other_macros() {
        for name in MACROS {
            for text in [
                format!("fn f() {{\n    {name}!(1)\n}}\n"),
                format!("fn f() {{\n    assert!({name}!(1))\n}}\n"),
                format!("#[cfg(test)]\nmod tests {{ fn f() {{ {name}!() }} }}\n"),
            ] {
                assert_eq!(lines_found(check, "a.rs", &text), [2], "{text}");
            }
        }
    }

    #[test]
    fn a_longer_word_and_an_own_name_pass() {
        let long = WORDS[2].repeat(2);
        for text in [
            format!("const TEMPLATE: &str = \"heddle.{long}\";\n"),
            format!("const {}_LIST: u8 = 1;\n", WORDS[0]),
            "// What is to do is done: todo, dbg!(x), unimplemented!().\nfn todo() { todo() }\n"
                .into(),
        ] {
            assert_eq!(lines_found(check, "a.rs", &text), [], "{text}");
        }
    }
}
