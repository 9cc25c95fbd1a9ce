//! TOML with line numbers: the little that the exception list, the manifests and the lock file need.

use std::ops::Range;

use toml::de::DeTable;

use crate::finding::Finding;

/// Parses `text`, or says in one finding where it is broken.
pub(crate) fn parse<'t>(
    path: &str,
    text: &'t str,
    rule: &'static str,
) -> Result<DeTable<'t>, Finding> {
    DeTable::parse(text)
        .map(toml::Spanned::into_inner)
        .map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, &span));
            Finding::new(path, line, rule, format!("not TOML: {}", error.message()))
        })
}

/// The line, counted from 1, on which `span` begins.
pub(crate) fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().get(..span.start).unwrap_or(text.as_bytes());
    before.split(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::{line_of, parse};

    #[test]
    fn a_span_begins_on_its_line() {
        assert_eq!(line_of("a\nb\nc", &(0..1)), 1);
        assert_eq!(line_of("a\nb\nc", &(4..5)), 3);
        assert_eq!(line_of("a\nb\nc", &(99..100)), 3, "past the end");
    }

    #[test]
    fn broken_text_is_a_finding_with_its_line() {
        let finding = parse("x.toml", "a = 1\nb = = 2\n", "rule").unwrap_err();
        assert_eq!((finding.path.as_str(), finding.line), ("x.toml", 2));
        assert!(parse("x.toml", "a = 1\n", "rule").is_ok());
    }
}
