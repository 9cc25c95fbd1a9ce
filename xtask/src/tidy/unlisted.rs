//! Rule `unlisted`: a file beside a suite's `main.rs` that has no `mod` line there is never compiled, so its tests never run.

use std::collections::BTreeMap;

use super::source::Source;
use crate::finding::Finding;

const RULE: &str = "unlisted";
const MAIN: &str = "main.rs";

/// It looks at all files together: what one of them lists decides about the others.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let suites: BTreeMap<&str, &str> = sources
        .iter()
        .filter_map(|source| Some((suite(&source.path, MAIN)?, source.text.as_str())))
        .collect();
    let is_unlisted = |source: &&Source| {
        let Some((folder, name)) = source.path.rsplit_once('/') else {
            return false;
        };
        let (Some(main), Some(stem)) = (suites.get(folder), name.strip_suffix(".rs")) else {
            return false;
        };
        let line = format!("mod {stem};");
        name != MAIN && !main.lines().any(|one| one == line)
    };
    sources
        .iter()
        .filter(is_unlisted)
        .map(|source| {
            let advice = "give it a `mod` line in main.rs beside it, or no test of it ever runs";
            Finding::new(&source.path, 1, RULE, advice)
        })
        .collect()
}

/// The folder of a suite, if this is the file of that name in it: `…/tests/SUITE/main.rs`.
fn suite<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let folder = path.strip_suffix(name)?.strip_suffix('/')?;
    let (above, _) = folder.rsplit_once('/')?;
    (above == "tests" || above.ends_with("/tests")).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::{Source, check};

    fn paths_found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::parse(path, (*text).to_owned()).expect("it parses"))
            .collect();
        let found = check(&sources);
        found.iter().map(|finding| finding.path.clone()).collect()
    }

    #[test]
    fn a_file_without_a_line_in_its_suite_is_caught_and_others_are_not() {
        let main = "mod support;\n\nmod known;\n";
        let found = paths_found(&[
            ("crates/a/tests/suite/main.rs", main),
            ("crates/a/tests/suite/known.rs", ""),
            ("crates/a/tests/suite/forgotten.rs", ""),
            ("crates/a/tests/alone.rs", ""),
            ("crates/a/tests/support/mod.rs", ""),
            ("crates/a/tests/support/part.rs", ""),
            ("crates/a/src/main.rs", main),
            ("crates/a/src/other.rs", ""),
        ]);
        assert_eq!(found, ["crates/a/tests/suite/forgotten.rs"]);
    }
}
