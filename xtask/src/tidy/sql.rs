//! Rule `sql`: statements live in the storage rooms, so that a schema change has one list of readers.

use super::one_place::{BENCH, SIM, in_rooms};
use super::source::{Source, in_tests_folder};
use super::tokens::Kind;
use crate::finding::Finding;

const RULE: &str = "sql";
const ADVICE: &str = "move the statement into crates/store, crates/sqlite or a storage/ folder of broker or registrar";
const ROOMS: &[&str] = &[
    "crates/sqlite/",
    "crates/store/",
    "crates/broker/src/storage/",
    "crates/registrar/src/storage/",
    BENCH,
    SIM,
];

/// What must come after a first word for the text to be a statement and not, say, an HTTP method.
enum Next {
    /// The word alone is a statement.
    Nothing,
    /// Any second word.
    Word,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// Lower case, or this table would be its own finding; the source is compared in upper case.
const STATEMENTS: &[(&str, Next)] = &[
    ("select", Next::Word),
    ("insert", Next::OneOf(&["into", "or"])),
    ("update", Next::Word),
    ("delete", Next::OneOf(&["from"])),
    ("create", Next::Word),
    ("alter", Next::Word),
    ("pragma", Next::Word),
    ("savepoint", Next::Word),
    ("begin", Next::Nothing),
    ("commit", Next::Nothing),
];

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if in_tests_folder(&source.path) || in_rooms(&source.path, ROOMS) {
        return Vec::new();
    }
    let literals = source.tokens.iter().filter_map(|token| match &token.kind {
        Kind::Literal(literal) => Some((token.line, literal)),
        _ => None,
    });
    literals
        .filter(|(line, _)| !source.is_test_line(*line))
        .filter(|(_, literal)| match syn::Lit::new((*literal).clone()) {
            syn::Lit::Str(text) => is_statement(&text.value()),
            _ => false,
        })
        .map(|(line, _)| Finding::new(&source.path, line, RULE, ADVICE))
        .collect()
}

fn is_statement(text: &str) -> bool {
    let mut words = text
        .split(|c: char| c.is_whitespace() || c == ';')
        .filter(|w| !w.is_empty());
    let Some(first) = words.next() else {
        return false;
    };
    let second = words.next();
    STATEMENTS.iter().any(|(word, next)| {
        is_upper_of(first, word)
            && match next {
                Next::Nothing => true,
                Next::Word => second.is_some(),
                Next::OneOf(list) => {
                    second.is_some_and(|second| list.iter().any(|w| is_upper_of(second, w)))
                }
            }
    })
}

fn is_upper_of(text: &str, lower: &str) -> bool {
    text == lower.to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::{STATEMENTS, check};
    use crate::tidy::lines_found;

    const OUTSIDE: &str = "crates/daemon/src/x.rs";

    fn in_literal(statement: &str) -> String {
        format!("fn f() {{\n    run(r#\"{statement}\"#)\n}}\n")
    }

    #[test]
    fn every_statement_is_caught_outside_the_storage_rooms() {
        for statement in [
            "SELECT 1",
            "\n    SELECT\n  x FROM y",
            "INSERT INTO t VALUES (1)",
            "INSERT OR IGNORE INTO t VALUES (1)",
            "UPDATE t SET a = 1",
            "DELETE FROM t",
            "CREATE TABLE t (a)",
            "ALTER TABLE t ADD b",
            "PRAGMA journal_mode = WAL",
            "SAVEPOINT s",
            "BEGIN",
            "BEGIN IMMEDIATE;",
            "COMMIT;",
        ] {
            let lines = lines_found(check, OUTSIDE, &in_literal(statement));
            assert_eq!(lines, [2], "{statement}");
        }
        assert_eq!(STATEMENTS.len(), 10, "a new row needs its line above");
    }

    #[test]
    fn statements_in_macros_are_caught() {
        let text = "fn f() {\n    let q = format!(\"SELECT {x}\");\n    concat!(\"UPDATE t\", \" SET\");\n}\n";
        assert_eq!(lines_found(check, OUTSIDE, text), [2, 3]);
    }

    #[test]
    fn text_that_is_no_statement_passes() {
        for text in [
            "SELECT",
            "SELECTED rows",
            "select 1",
            "DELETE",
            "DELETE /v1/messages HTTP/1.1",
            "INSERT",
            "UPDATED at",
            "a SELECT 1",
            "BEGINNING",
            "",
        ] {
            assert_eq!(lines_found(check, OUTSIDE, &in_literal(text)), [], "{text}");
        }
        let comments = "//! SELECT 1\n/// DELETE FROM t\nfn f() {} // COMMIT\n";
        assert_eq!(lines_found(check, OUTSIDE, comments), []);
    }

    #[test]
    fn storage_rooms_and_tests_may_hold_statements() {
        let text = in_literal("SELECT 1");
        for path in [
            "crates/store/src/outbox.rs",
            "crates/sqlite/src/pragmas.rs",
            "crates/broker/src/storage/sqlite.rs",
            "crates/broker/tests/x.rs",
            "sim/src/x.rs",
        ] {
            assert_eq!(lines_found(check, path, &text), [], "{path}");
        }
        let in_module = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(lines_found(check, OUTSIDE, &in_module), []);
        assert_eq!(
            lines_found(check, "crates/broker/src/accept/mod.rs", &text),
            [2]
        );
    }
}
