//! `cargo xtask layers`: arrows between crates point one way only, and some outside crates stay outside.

mod arrows;
mod lock;
mod manifest;
mod table;

use std::io;
use std::path::Path;

use crate::finding::{Finding, Verdict};
use manifest::Renames;

const ROOT_MANIFEST: &str = "Cargo.toml";

pub(crate) fn run(root: &Path) -> io::Result<Verdict> {
    let mut findings = Vec::new();
    let renames =
        manifest::renames(ROOT_MANIFEST, &read(root, ROOT_MANIFEST)?).unwrap_or_else(|finding| {
            findings.push(finding);
            Renames::new()
        });
    let folders = crate_folders(root)?;
    for folder in &folders {
        let path = format!("{folder}/{ROOT_MANIFEST}");
        findings.extend(check_manifest(&path, folder, &read(root, &path)?, &renames));
    }
    findings.extend(lock::check(&read(root, lock::PATH)?));
    Ok(Verdict {
        findings,
        summary: format!(
            "layers: the arrows of {} crates and the lock file hold",
            folders.len()
        ),
    })
}

fn check_manifest(path: &str, folder: &str, text: &str, renames: &Renames) -> Vec<Finding> {
    match manifest::parse(path, text, renames) {
        Ok(manifest) => arrows::check(path, folder, &manifest),
        Err(finding) => vec![finding],
    }
}

/// Every folder with a manifest, in the root and in `crates/`: whoever adds one is seen, listed as a member or not.
fn crate_folders(root: &Path) -> io::Result<Vec<String>> {
    let mut folders = Vec::new();
    for prefix in ["", "crates/"] {
        for entry in std::fs::read_dir(root.join(prefix))? {
            let entry = entry?;
            if entry.path().join(ROOT_MANIFEST).is_file() {
                folders.push(format!("{prefix}{}", entry.file_name().to_string_lossy()));
            }
        }
    }
    folders.sort();
    Ok(folders)
}

fn read(root: &Path, path: &str) -> io::Result<String> {
    std::fs::read_to_string(root.join(path))
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Renames, check_manifest, crate_folders};

    #[test]
    fn crates_are_found_in_the_root_and_below() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folders = crate_folders(root).unwrap();
        assert!(folders.contains(&"xtask".to_owned()));
        assert!(folders.contains(&"crates/core".to_owned()));
    }

    #[test]
    fn a_manifest_that_does_not_parse_is_caught() {
        let findings = check_manifest("a/Cargo.toml", "a", "[", &Renames::new());
        assert_eq!(findings[0].rule, "manifest");
    }
}
