//! What a person types becomes a full-text expression that SQLite always understands.
//!
//! The language is small: words that must all occur, `"a phrase"`, and `prefix*`. Everything else is
//! taken literally, so no query is a syntax error and none reaches FTS5's own operators.

use heddle_core::limits::{SEARCH_QUERY_BYTES_MAX, SEARCH_TERMS_MAX};

/// A query as FTS5 takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery(String);

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
        let terms = terms(text);
        match terms.len() {
            0 => Err(SearchQueryError::NoWord),
            count if count > SEARCH_TERMS_MAX => Err(SearchQueryError::TooManyTerms),
            _ => Ok(Self(terms.join(" AND "))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The words and phrases, each as a string of FTS5. What holds neither letter nor digit has no token
/// and is left out.
fn terms(text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        let is_phrase = index % 2 == 1;
        if is_phrase {
            terms.extend(term(part, false));
        } else {
            let words = part.split_whitespace();
            terms.extend(words.filter_map(|word| match word.strip_suffix('*') {
                Some(stem) => term(stem, true),
                None => term(word, false),
            }));
        }
    }
    terms
}

fn term(text: &str, is_prefix: bool) -> Option<String> {
    // No quotes are left in it: they were the separators.
    let has_token = text.chars().any(char::is_alphanumeric);
    let suffix = if is_prefix { "*" } else { "" };
    has_token.then(|| format!("\"{text}\"{suffix}"))
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
            ("größe", r#""größe""#),
        ] {
            let query = SearchQuery::parse(typed).unwrap();
            assert_eq!(query.as_str(), expected, "{typed}");
        }
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
