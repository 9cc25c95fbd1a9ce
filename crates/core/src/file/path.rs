//! The path that a file is shared under: a name of several parts, never a place on somebody's disk.
//!
//! The rules are those of the seed (§8.1), made one spelling a path: NFC, and no empty part, since
//! `a//b` and `a/` would name what `a/b` and `a` name. Letters and digits are those of Unicode: the
//! seed's `\w` knows only ASCII, which would refuse `Übersicht.md` and make its demand for NFC idle.
//! Invisible letters stay out, because two paths that look the same must be the same.

use std::fmt;

use crate::limits::{FILE_PATH_BYTES_MAX, FILE_PATH_PART_BYTES_MAX};
use crate::names::nfc;

/// Joined to any root, it stays under that root (LF-30).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilePathError {
    #[error("the path is empty")]
    Empty,
    #[error("the path is longer than {FILE_PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("a part of the path is longer than {FILE_PATH_PART_BYTES_MAX} bytes")]
    PartTooLong,
    #[error("the path holds a NUL byte")]
    Nul,
    #[error("the path is absolute; share it under a relative one such as docs/plan.md")]
    Absolute,
    #[error("the path holds a backslash; its parts are separated by '/'")]
    Backslash,
    #[error("the path holds '..'; it cannot lead out of where it is kept")]
    Parent,
    #[error("the path holds '.' as a part; leave it out")]
    SelfReference,
    #[error("the path has an empty part: two '/' in a row, or one at its end")]
    EmptyPart,
    #[error("the path is not in NFC")]
    Spelling,
    #[error(
        "the path holds {0:?}; use letters, digits, blanks and the signs . _ - + ( ) between '/'"
    )]
    Character(char),
}

impl FilePath {
    pub fn parse(text: &str) -> Result<Self, FilePathError> {
        // Before the work of normalising: no text gets more than three times shorter by it.
        if text.len() > 3 * FILE_PATH_BYTES_MAX {
            return Err(FilePathError::TooLong);
        }
        let path = nfc(text);
        if path.is_empty() {
            return Err(FilePathError::Empty);
        }
        if path.len() > FILE_PATH_BYTES_MAX {
            return Err(FilePathError::TooLong);
        }
        if path.contains('\0') {
            return Err(FilePathError::Nul);
        }
        if path.starts_with('/') {
            return Err(FilePathError::Absolute);
        }
        if path.contains('\\') {
            return Err(FilePathError::Backslash);
        }
        path.split('/').try_for_each(check_part)?;
        match path.chars().find(|c| !may_stand(*c)) {
            Some(character) => Err(FilePathError::Character(character)),
            None => Ok(Self(path)),
        }
    }

    /// As another home wrote it: in its one spelling, or not at all.
    pub fn kept(text: &str) -> Result<Self, FilePathError> {
        let path = Self::parse(text)?;
        if path.as_str() != text {
            return Err(FilePathError::Spelling);
        }
        Ok(path)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_part(part: &str) -> Result<(), FilePathError> {
    match part {
        "" => Err(FilePathError::EmptyPart),
        "." => Err(FilePathError::SelfReference),
        ".." => Err(FilePathError::Parent),
        long if long.len() > FILE_PATH_PART_BYTES_MAX => Err(FilePathError::PartTooLong),
        _ => Ok(()),
    }
}

fn may_stand(c: char) -> bool {
    let is_mark = unicode_normalization::char::is_combining_mark;
    matches!(c, '.' | ' ' | '_' | '-' | '/' | '+' | '(' | ')')
        || ((c.is_alphanumeric() || is_mark(c)) && !is_invisible(c))
}

/// Letters and marks that show nothing: joiners, fillers, variation selectors.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0100}'..='\u{e01ef}'
    )
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path, PathBuf};

    use proptest::prelude::*;

    use super::FilePathError::{
        Absolute, Backslash, Empty, EmptyPart, Nul, Parent, PartTooLong, SelfReference, TooLong,
    };
    use super::*;

    /// Taken as they stand.
    const GOOD: &[&str] = &[
        "a",
        "README.md",
        "docs/plan.md",
        "a/b/c/d/e/f/g",
        "with blank.txt",
        " ",
        " leading and trailing ",
        "-rf",
        "--help",
        "_",
        "+",
        "()",
        "a+b(1).tar.gz",
        ".hidden",
        ".config/file",
        "...",
        "....",
        "a...b",
        "..a",
        "a..",
        "a../b",
        "..a/b",
        ".a/.b",
        "a./b",
        "0",
        "CON",
        "nul.txt",
        "a.b.c",
        "\u{dc}bersicht.md",
        "日本語/計画.txt",
        "проект/план",
        "اختبار",
        "हिन्दी/क्षेत्र",
        "한국어",
        "x\u{302}",
        "٣٤",
    ];

    /// Signs that no path holds: those of shells and other systems, look-alikes of the ones that mean
    /// something, and what is not seen or turns the line around.
    const WRONG_SIGNS: &[(&str, char)] = &[
        ("C:/Windows", ':'),
        ("a:b", ':'),
        ("a\nb", '\n'),
        ("a\rb", '\r'),
        ("a\tb", '\t'),
        ("\u{1b}[31m", '\u{1b}'),
        ("a\u{7f}", '\u{7f}'),
        ("~/a", '~'),
        ("$HOME", '$'),
        ("a;b", ';'),
        ("a|b", '|'),
        ("a&b", '&'),
        ("a`b`", '`'),
        ("a*", '*'),
        ("a?", '?'),
        ("a<b", '<'),
        ("a>b", '>'),
        ("a\"b", '"'),
        ("a'b", '\''),
        ("%2e%2e/a", '%'),
        ("a#b", '#'),
        ("a@b", '@'),
        ("a=b", '='),
        ("a,b", ','),
        ("a[b]", '['),
        ("a{b}", '{'),
        ("a!b", '!'),
        ("a^b", '^'),
        ("\u{ff0e}\u{ff0e}/a", '\u{ff0e}'),
        ("a\u{ff0f}b", '\u{ff0f}'),
        ("a\u{2215}b", '\u{2215}'),
        ("a\u{2024}b", '\u{2024}'),
        ("\u{2025}", '\u{2025}'),
        ("a\u{29f5}b", '\u{29f5}'),
        ("a\u{200b}b", '\u{200b}'),
        ("a\u{202e}b", '\u{202e}'),
        ("a\u{200d}b", '\u{200d}'),
        ("\u{feff}a", '\u{feff}'),
        ("a\u{a0}b", '\u{a0}'),
        ("a\u{2028}b", '\u{2028}'),
        ("a\u{34f}b", '\u{34f}'),
        ("\u{3164}", '\u{3164}'),
        ("a\u{fe0f}", '\u{fe0f}'),
        ("a\u{e0001}", '\u{e0001}'),
        ("👩", '👩'),
    ];

    fn bad() -> Vec<(String, FilePathError)> {
        let text = |path: &str, error| (path.to_owned(), error);
        let wrong = |(path, c): &(&str, char)| ((*path).to_owned(), FilePathError::Character(*c));
        let mut bad = vec![
            text("", Empty),
            text("/", Absolute),
            text("/etc/passwd", Absolute),
            text("//a", Absolute),
            text("/..", Absolute),
            text("..", Parent),
            text("../a", Parent),
            text("a/..", Parent),
            text("a/../b", Parent),
            text("a/b/../../../c", Parent),
            text("../../../../etc/passwd", Parent),
            text(".", SelfReference),
            text("./a", SelfReference),
            text("a/.", SelfReference),
            text("a/./b", SelfReference),
            text("a//b", EmptyPart),
            text("a/", EmptyPart),
            text("a/b//", EmptyPart),
            text("a\\b", Backslash),
            text("..\\..\\a", Backslash),
            text("C:\\Windows", Backslash),
            text("a\0b", Nul),
            text("a\0", Nul),
            text("../\0", Nul),
            (format!("{}a", "a/".repeat(512)), TooLong),
            ("é".repeat(2 * FILE_PATH_BYTES_MAX), TooLong),
            ("a".repeat(FILE_PATH_PART_BYTES_MAX + 1), PartTooLong),
            (
                format!("a/{}", "b".repeat(FILE_PATH_PART_BYTES_MAX + 1)),
                PartTooLong,
            ),
        ];
        bad.extend(WRONG_SIGNS.iter().map(wrong));
        bad
    }

    #[test]
    fn t_16_every_path_of_the_table_is_taken_as_it_stands_or_refused_for_its_reason() {
        for path in GOOD {
            let parsed = FilePath::parse(path);
            assert_eq!(parsed.as_ref().map(FilePath::as_str), Ok(*path), "{path:?}");
        }
        let bad = bad();
        for (path, reason) in &bad {
            assert_eq!(FilePath::parse(path).as_ref(), Err(reason), "{path:?}");
        }
        assert!(GOOD.len() + bad.len() >= 100);
        let longest = format!("{}ab", "a/".repeat(511));
        assert_eq!(longest.len(), FILE_PATH_BYTES_MAX);
        assert!(FilePath::parse(&longest).is_ok());
        assert!(FilePath::parse(&"p".repeat(FILE_PATH_PART_BYTES_MAX)).is_ok());
    }

    #[test]
    fn lf_07_two_spellings_of_one_letter_are_one_path() {
        let composed = FilePath::parse("caf\u{e9}/x").unwrap();
        assert_eq!(FilePath::parse("cafe\u{301}/x").unwrap(), composed);
        assert_eq!(composed.name(), "x");
        assert_eq!(
            FilePath::kept("cafe\u{301}/x"),
            Err(FilePathError::Spelling)
        );
        assert_eq!(FilePath::kept("caf\u{e9}/x"), Ok(composed));
        // NFC can also make a sign out of another: it is looked at afterwards.
        assert_eq!(
            FilePath::parse("a\u{37e}b"),
            Err(FilePathError::Character(';'))
        );
    }

    fn any_path() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[a./ \\\\\u{301}é-]{0,12}",
            "([a-z.]{0,3}/){0,4}[a-z. ]{0,3}",
        ]
    }

    proptest! {
        #[test]
        fn lf_30_any_accepted_path_joined_to_any_root_stays_under_it(
            path in any_path(), root in "(/|[a-z./]{0,9})"
        ) {
            if let Ok(path) = FilePath::parse(&path) {
                let root = PathBuf::from(root);
                let joined = root.join(path.as_str());
                prop_assert!(joined.starts_with(&root));
                let below = joined.strip_prefix(&root).unwrap();
                let parts = path.as_str().split('/').count();
                prop_assert_eq!(below.components().count(), parts);
                prop_assert!(below.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(!Path::new(path.as_str()).is_absolute());
            }
        }

        #[test]
        fn an_accepted_path_is_its_own_only_spelling(path in any_path()) {
            if let Ok(parsed) = FilePath::parse(&path) {
                prop_assert_eq!(FilePath::parse(parsed.as_str()), Ok(parsed.clone()));
            }
        }
    }
}
