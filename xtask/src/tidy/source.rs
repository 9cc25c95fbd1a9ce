//! One Rust file, read once: its text, its tokens, its syntax tree, and which of its lines are test code.

use std::ops::RangeInclusive;

use proc_macro2::TokenStream;

use super::test_code::{self, ChildFile};
use super::tokens::{Token, flatten};
use crate::finding::Finding;

const RULE: &str = "syntax";

pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) file: syn::File,
    /// Files that this one declares as a `#[cfg(test)] mod name;`.
    pub(crate) test_children: Vec<ChildFile>,
    test_modules: Vec<RangeInclusive<usize>>,
    all_test: bool,
}

impl Source {
    pub(crate) fn parse(path: &str, text: String) -> Result<Self, Finding> {
        let refuse = |span: proc_macro2::Span, why: String| {
            Finding::new(
                path,
                span.start().line,
                RULE,
                format!("does not parse: {why}"),
            )
        };
        let stream: TokenStream = text
            .parse()
            .map_err(|e: proc_macro2::LexError| refuse(e.span(), e.to_string()))?;
        let file: syn::File =
            syn::parse2(stream.clone()).map_err(|e| refuse(e.span(), e.to_string()))?;
        let found = test_code::find(path, &file);
        Ok(Self {
            path: path.to_owned(),
            tokens: flatten(stream),
            test_modules: found.modules,
            test_children: found.children,
            all_test: found.whole_file || in_tests_folder(path),
            text,
            file,
        })
    }

    /// Another file declared this one under `#[cfg(test)]`.
    pub(crate) fn mark_all_test(&mut self) {
        self.all_test = true;
    }

    pub(crate) fn is_all_test(&self) -> bool {
        self.all_test
    }

    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.all_test || self.in_test_module(line)
    }

    pub(crate) fn line_count(&self) -> usize {
        self.text.lines().count()
    }

    /// Lines outside `#[cfg(test)]` modules.
    pub(crate) fn product_line_count(&self) -> usize {
        (1..=self.line_count())
            .filter(|line| !self.in_test_module(*line))
            .count()
    }

    fn in_test_module(&self, line: usize) -> bool {
        self.test_modules
            .iter()
            .any(|module| module.contains(&line))
    }
}

/// Cargo's `tests/` beside `src/`, and any folder of that name below it.
pub(crate) fn in_tests_folder(path: &str) -> bool {
    path.rsplit('/').skip(1).any(|folder| folder == "tests")
}

#[cfg(test)]
mod tests {
    use super::{Source, in_tests_folder};

    #[test]
    fn what_does_not_parse_is_a_finding_with_its_line() {
        for text in ["//! Head.\nfn f( {}\n", "//! Head.\nlet 1 = ;\n"] {
            let finding = Source::parse("a.rs", text.to_owned()).err().unwrap();
            assert_eq!((finding.rule, finding.line), ("syntax", 2), "{text}");
        }
    }

    #[test]
    fn only_a_folder_named_tests_is_one() {
        assert!(in_tests_folder("crates/core/tests/gate.rs"));
        assert!(in_tests_folder("crates/core/tests/common/mod.rs"));
        assert!(!in_tests_folder("crates/core/src/tests.rs"));
        assert!(!in_tests_folder("crates/contests/src/lib.rs"));
    }

    #[test]
    fn lines_of_a_test_module_are_not_product_lines() {
        let text = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n";
        let source = Source::parse("a.rs", text.to_owned()).unwrap();
        assert_eq!((source.line_count(), source.product_line_count()), (7, 3));
        assert!(source.is_test_line(3) && source.is_test_line(6));
        assert!(!source.is_test_line(2) && !source.is_test_line(7));
    }
}
