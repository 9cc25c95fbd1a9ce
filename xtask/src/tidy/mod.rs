//! `cargo xtask tidy`: the list of house rules that a machine can hold, one file each.
//!
//! A rule is a function from one source to its findings and reads nothing else; `unlisted` alone looks at all of them. Adding a rule: its file, its `mod`
//! line, its line in `RULES`.

mod clock;
mod environment;
mod exceptions;
mod file_lines;
mod function_lines;
mod head;
mod ignored;
mod leftovers;
mod one_place;
mod printing;
mod randomness;
mod source;
mod sql;
mod test_code;
mod tokens;
mod tree;
mod unlisted;
mod unsafe_code;

use std::io;
use std::path::Path;

use crate::finding::{Finding, Verdict};
use source::Source;

type Rule = fn(&Source) -> Vec<Finding>;

const RULES: &[Rule] = &[
    head::check,
    file_lines::check,
    function_lines::check,
    leftovers::check,
    clock::check,
    randomness::check,
    environment::check,
    printing::check,
    sql::check,
    unsafe_code::check,
    ignored::check,
];

pub(crate) fn run(root: &Path) -> io::Result<Verdict> {
    let (sources, mut findings) = tree::load(root)?;
    findings.extend(sources.iter().flat_map(check));
    findings.extend(unlisted::check(&sources));

    let listed = std::fs::read_to_string(root.join(exceptions::PATH))?;
    let (exceptions, malformed) = exceptions::parse(&listed);
    findings = exceptions::apply(&exceptions, findings);
    findings.extend(malformed);

    Ok(Verdict {
        findings,
        summary: format!(
            "tidy: {} files hold {} rules, {} exceptions",
            sources.len(),
            RULES.len() + 1,
            exceptions.len()
        ),
    })
}

fn check(source: &Source) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(source)).collect()
}

/// For the tests of every rule: `path:line` of what `rule` finds in one sample.
#[cfg(test)]
fn lines_found(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    let source = Source::parse(path, text.to_owned()).expect("the sample parses");
    rule(&source).iter().map(|finding| finding.line).collect()
}

#[cfg(test)]
mod tests {
    use super::{check, source::Source};

    #[test]
    fn one_file_can_break_several_rules_at_once() {
        let text = "fn f() {\n    println!(\"SELECT 1\");\n    let _ = SystemTime::now();\n}\n";
        let source = Source::parse("crates/daemon/src/f.rs", text.to_owned()).unwrap();
        let mut rules: Vec<_> = check(&source).iter().map(|finding| finding.rule).collect();
        rules.sort_unstable();
        assert_eq!(rules, ["clock", "head", "printing", "sql"]);
    }

    #[test]
    fn a_plain_file_breaks_none() {
        let text = "//! A file that does one small thing.\n\nfn f() -> u8 {\n    1\n}\n";
        let source = Source::parse("crates/daemon/src/f.rs", text.to_owned()).unwrap();
        assert_eq!(check(&source), []);
    }
}
