//! Rule `ignored`: a test that nobody runs proves nothing, so it runs or it goes.

use super::source::Source;
use super::tokens::{Kind, Token};
use crate::finding::Finding;

const RULE: &str = "ignored";
const ADVICE: &str = "let the test run, or take it out";
const ATTRIBUTE: &str = "ignore";

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let tokens = &source.tokens;
    (0..tokens.len())
        .filter(|at| is_ignored(&tokens[*at..]))
        .map(|at| Finding::new(&source.path, tokens[at].line, RULE, ADVICE))
        .collect()
}

/// An attribute begins here, and it is the one or applies it under a condition.
fn is_ignored(tokens: &[Token]) -> bool {
    let [hash, open, name, rest @ ..] = tokens else {
        return false;
    };
    let attribute = hash.is_punct('#') && open.opens('[');
    attribute && (name.is_ident(ATTRIBUTE) || (name.is_ident("cfg_attr") && applies_it(rest)))
}

/// `(condition, …, ignore, …)`: the word stands right after a comma of the list itself.
fn applies_it(list: &[Token]) -> bool {
    let mut depth = 0_usize;
    for pair in list.windows(2) {
        match pair[0].kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth = depth.saturating_sub(1),
            Kind::Punct(',') if depth == 1 && pair[1].is_ident(ATTRIBUTE) => return true,
            _ => {}
        }
        if depth == 0 {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    fn test_with(attribute: &str) -> String {
        format!("#[test]\n#[{attribute}]\nfn f() {{}}\n")
    }

    #[test]
    fn every_way_to_ignore_a_test_is_caught() {
        for attribute in [
            "ignore",
            "ignore = \"slow\"",
            "cfg_attr(unix, ignore)",
            "cfg_attr(all(unix, windows), inline, ignore = \"slow\")",
        ] {
            let text = test_with(attribute);
            assert_eq!(
                lines_found(check, "a/tests/x.rs", &text),
                [2],
                "{attribute}"
            );
            let inside = format!("proptest! {{\n{text}}}\n");
            assert_eq!(
                lines_found(check, "a/tests/x.rs", &inside),
                [3],
                "{attribute}"
            );
        }
    }

    #[test]
    fn other_attributes_and_the_plain_word_pass() {
        for attribute in [
            "should_panic",
            "cfg_attr",
            "cfg_attr(ignore, inline)",
            "allow(ignore)",
        ] {
            let text = test_with(attribute);
            assert_eq!(lines_found(check, "a/tests/x.rs", &text), [], "{attribute}");
        }
        let word = "fn ignore() { let _ = [ignore, 1]; }\n";
        assert_eq!(lines_found(check, "a/tests/x.rs", word), []);
    }
}
