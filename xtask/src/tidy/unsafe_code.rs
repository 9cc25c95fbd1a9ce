//! Rule `unsafe`: the word stands only in files that are listed with a reason. Tests included.

use super::source::Source;
use crate::finding::Finding;

pub(crate) const RULE: &str = "unsafe";
const ADVICE: &str = "write it safely, or list the file in xtask/exceptions.toml with a reason";

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    source
        .tokens
        .iter()
        .filter(|token| token.is_ident("unsafe"))
        .map(|token| Finding::new(&source.path, token.line, RULE, ADVICE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::lines_found;

    #[test]
    fn the_word_is_caught_wherever_it_is_code() {
        for code in [
            "fn f() { unsafe { g() } }",
            "unsafe fn f() {}",
            "unsafe impl Send for X {}",
            "#[unsafe(no_mangle)] fn f() {}",
            "wrap! { unsafe { g() } }",
        ] {
            for path in ["crates/store/src/x.rs", "crates/store/tests/x.rs"] {
                assert_eq!(lines_found(check, path, code), [1], "{code}");
            }
        }
    }

    #[test]
    fn talk_about_it_passes() {
        let text = "#![deny(unsafe_code)]\n// unsafe\n/// unsafe\nfn f() { g(\"unsafe\") }\n";
        assert_eq!(lines_found(check, "crates/store/src/x.rs", text), []);
    }
}
