//! Reads every Rust file that git knows or would add, and settles which of them are test code as a whole.

use std::io;
use std::path::Path;
use std::process::Command;

use super::source::Source;
use super::test_code::ChildFile;
use crate::finding::Finding;

/// The files that parse, and a finding for each that does not.
pub(crate) fn load(root: &Path) -> io::Result<(Vec<Source>, Vec<Finding>)> {
    let mut texts = Vec::new();
    for path in list(root)? {
        let text = std::fs::read_to_string(root.join(&path))
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        texts.push((path, text));
    }
    Ok(parse(texts))
}

fn parse(texts: Vec<(String, String)>) -> (Vec<Source>, Vec<Finding>) {
    let mut sources = Vec::new();
    let mut findings = Vec::new();
    for (path, text) in texts {
        match Source::parse(&path, text) {
            Ok(source) => sources.push(source),
            Err(finding) => findings.push(finding),
        }
    }
    settle_test_files(&mut sources);
    (sources, findings)
}

fn settle_test_files(sources: &mut [Source]) {
    let children: Vec<ChildFile> = sources
        .iter_mut()
        .flat_map(|source| std::mem::take(&mut source.test_children))
        .collect();
    for source in sources {
        if children.iter().any(|child| child.covers(&source.path)) {
            source.mark_all_test();
        }
    }
}

/// Tracked and untracked, not ignored; a tracked file that was just deleted is left out.
fn list(root: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "-z", "--", "*.rs"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("git ls-files: {}", why.trim())));
    }
    let listed = String::from_utf8(output.stdout).map_err(io::Error::other)?;
    let mut paths: Vec<String> = listed
        .split_terminator('\0')
        .filter(|path| root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{list, parse};

    #[test]
    fn a_file_declared_for_tests_elsewhere_is_all_test() {
        let texts = [
            ("x/src/a.rs", "#[cfg(test)]\nmod tests;\n"),
            ("x/src/a/tests.rs", "fn f() {}\n"),
            ("x/src/b.rs", "fn f() {}\n"),
        ];
        let (sources, findings) = parse(
            texts
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .to_vec(),
        );
        let all_test: Vec<bool> = sources.iter().map(super::Source::is_all_test).collect();
        assert_eq!(all_test, [false, true, false]);
        assert_eq!(findings, []);
    }

    #[test]
    fn this_very_file_is_in_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let paths = list(root).unwrap();
        assert!(paths.iter().any(|path| path == "xtask/src/tidy/tree.rs"));
        assert!(!paths.iter().any(|path| path.starts_with("target/")));
    }
}
