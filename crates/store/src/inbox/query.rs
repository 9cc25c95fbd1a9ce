//! What a person types becomes a full-text expression that SQLite always understands.
//!
//! The language is small: words that must all occur, `"a phrase"`, and `prefix*`. Everything else is
//! taken literally, so no query is a syntax error and none reaches FTS5's own operators.

use heddle_core::limits::{SEARCH_QUERY_BYTES_MAX, SEARCH_TERMS_MAX};
use heddle_core::names::{nfc, nfd};

/// A query: words as FTS5 takes them, and parts of texts whose scripts put no space between words. The index
/// has only whole words, and of such a text a sentence is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    words: String,
    /// In small letters.
    parts: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SearchQueryError {
    #[error("a search is at most {SEARCH_QUERY_BYTES_MAX} bytes long")]
    TooLong,
    #[error("a search has at most {SEARCH_TERMS_MAX} words and phrases")]
    TooManyTerms,
    #[error("a search holds no control characters")]
    ControlCharacter,
    #[error("a search needs at least one word: letters or digits")]
    NoWord,
}

impl SearchQuery {
    pub fn parse(text: &str) -> Result<Self, SearchQueryError> {
        if text.len() > SEARCH_QUERY_BYTES_MAX {
            return Err(SearchQueryError::TooLong);
        }
        let is_blank = |c: char| matches!(c, '\t' | '\n' | '\r');
        if text.chars().any(|c| c.is_control() && !is_blank(c)) {
            return Err(SearchQueryError::ControlCharacter);
        }
        let (words, parts) = terms(&nfc(text));
        match words.len() + parts.len() {
            0 => Err(SearchQueryError::NoWord),
            count if count > SEARCH_TERMS_MAX => Err(SearchQueryError::TooManyTerms),
            _ => Ok(Self {
                words: words.join(" AND "),
                parts,
            }),
        }
    }

    /// The words, for the index.
    pub(crate) fn as_str(&self) -> &str {
        &self.words
    }

    pub(crate) fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// The index alone does not find what it asks for.
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Whether every part stands in this text.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        let text = nfc(text).to_lowercase();
        self.parts.iter().all(|part| text.contains(part))
    }
}

/// Letters of scripts that write without spaces, or tie particles to their words.
fn is_unspaced(c: char) -> bool {
    matches!(
        c,
        '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{a4cf}'
            | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ffdc}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// The words and phrases, each as a string of FTS5, and the parts. What holds neither letter nor digit has no
/// token and is left out.
fn terms(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut terms, mut parts) = (Vec::new(), Vec::new());
    for (index, part) in text.split('"').enumerate() {
        let is_phrase = index % 2 == 1;
        let words: Vec<&str> = if is_phrase {
            vec![part]
        } else {
            part.split_whitespace().collect()
        };
        for word in words {
            let stem = word.strip_suffix('*').filter(|_| !is_phrase);
            let plain = stem.unwrap_or(word);
            if plain.chars().any(is_unspaced) {
                parts.push(plain.to_lowercase());
            } else {
                terms.extend(term(plain, stem.is_some()));
            }
        }
    }
    (terms, parts)
}

fn term(text: &str, is_prefix: bool) -> Option<String> {
    // No quotes are left in it: they were the separators.
    if !text.chars().any(char::is_alphanumeric) {
        return None;
    }
    let suffix = if is_prefix { "*" } else { "" };
    // Values and messages are kept as they came, and the index strips the marks of Latin letters only.
    let apart = nfd(text);
    Some(if apart == text {
        format!("\"{text}\"{suffix}")
    } else {
        format!("(\"{text}\"{suffix} OR \"{apart}\"{suffix})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_phrases_and_prefixes_are_quoted_and_nothing_else_has_a_meaning() {
        for (typed, expected) in [
            ("deploy failed", r#""deploy" AND "failed""#),
            (r#""deploy failed" now"#, r#""deploy failed" AND "now""#),
            ("dep*", r#""dep"*"#),
            ("a AND NOT b", r#""a" AND "AND" AND "NOT" AND "b""#),
            ("body:x ^y {z}", r#""body:x" AND "^y" AND "{z}""#),
            (
                r#"unclosed "phrase here"#,
                r#""unclosed" AND "phrase here""#,
            ),
            ("NEAR(a b, 3)", r#""NEAR(a" AND "b," AND "3)""#),
            ("- * a", r#""a""#),
            ("größe", "(\"gr\u{f6}ße\" OR \"gro\u{308}ße\")"),
            ("gro\u{308}ße*", "(\"gr\u{f6}ße\"* OR \"gro\u{308}ße\"*)"),
        ] {
            let query = SearchQuery::parse(typed).unwrap();
            assert_eq!(query.as_str(), expected, "{typed}");
        }
    }

    #[test]
    fn words_of_scripts_without_spaces_are_parts_and_the_others_stay_words() {
        let query = SearchQuery::parse("deploy API部署 \"完了 した\" ล้ม*").unwrap();
        assert_eq!(query.as_str(), r#""deploy""#);
        assert_eq!(query.parts, ["api部署", "完了 した", "ล้ม"]);
        assert!(query.is_in("今日のApi部署は完了 したล้มเหลว"));
        assert!(!query.is_in("部署"));
        let plain = SearchQuery::parse("größe naïve Ελλάδα дом").unwrap();
        assert!(!plain.has_parts() && plain.has_words());
        assert!(!SearchQuery::parse("部署").unwrap().has_words());
    }

    #[test]
    fn what_cannot_be_searched_is_refused_with_its_reason() {
        let long = "x".repeat(SEARCH_QUERY_BYTES_MAX + 1);
        let many = "a ".repeat(SEARCH_TERMS_MAX + 1);
        for (typed, reason) in [
            (long.as_str(), SearchQueryError::TooLong),
            (&many, SearchQueryError::TooManyTerms),
            ("a\0b", SearchQueryError::ControlCharacter),
            ("\u{1b}[31m", SearchQueryError::ControlCharacter),
            ("", SearchQueryError::NoWord),
            (r#""" "" * -- '"#, SearchQueryError::NoWord),
        ] {
            assert_eq!(SearchQuery::parse(typed), Err(reason), "{typed:?}");
        }
    }
}
