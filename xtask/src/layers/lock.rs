//! Rule `lock`: what must stand in `Cargo.lock` once at most, and what must not stand there at all.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::toml_text::{self, line_of};

pub(crate) const PATH: &str = "Cargo.lock";
const RULE: &str = "lock";
/// Their version follows axum, reqwest and rmcp; a second one doubles code and types.
const ONCE: &[&str] = &[
    "tungstenite",
    "tokio-tungstenite",
    "tower-http",
    "sse-stream",
];
/// TLS is ring everywhere: these bring a C library and its build tools.
const ABSENT: &[&str] = &["openssl-sys", "aws-lc-sys"];

pub(crate) fn check(text: &str) -> Vec<Finding> {
    let packages = match packages(text) {
        Ok(packages) => packages,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for (name, places) in &packages {
        if ABSENT.contains(&name.as_str()) {
            let advice = format!(
                "`{name}` must not be in the tree: ask `cargo tree -i {name}` who wants it"
            );
            findings.push(Finding::new(PATH, places[0].line, RULE, advice));
        }
        if ONCE.contains(&name.as_str()) && places.len() > 1 {
            let versions: Vec<&str> = places.iter().map(|place| place.version.as_str()).collect();
            let advice = format!(
                "`{name}` stands here as {}: pin one version",
                versions.join(" and ")
            );
            findings.push(Finding::new(PATH, places[1].line, RULE, advice));
        }
    }
    findings
}

struct Place {
    version: String,
    line: usize,
}

fn packages(text: &str) -> Result<BTreeMap<String, Vec<Place>>, Finding> {
    let root = toml_text::parse(PATH, text, RULE)?;
    let listed = root
        .get("package")
        .and_then(|list| list.get_ref().as_array());
    let mut packages: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for entry in listed.into_iter().flatten() {
        let text_at = |key: &str| {
            entry
                .get_ref()
                .get(key)
                .and_then(|value| value.get_ref().as_str())
                .unwrap_or_default()
        };
        let place = Place {
            version: text_at("version").to_owned(),
            line: line_of(text, &entry.span()),
        };
        packages
            .entry(text_at("name").to_owned())
            .or_default()
            .push(place);
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::{ABSENT, ONCE, check};

    fn package(name: &str, version: &str) -> String {
        format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n")
    }

    fn found(packages: &[String]) -> Vec<String> {
        check(&packages.concat())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_second_version_is_caught() {
        for name in ONCE {
            let found = found(&[package(name, "0.1.0"), package(name, "0.2.0")]);
            let expected = format!(
                "Cargo.lock:5: lock: `{name}` stands here as 0.1.0 and 0.2.0: pin one version"
            );
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn what_must_be_absent_is_caught() {
        for name in ABSENT {
            assert_eq!(found(&[package(name, "1.0.0")]).len(), 1, "{name}");
        }
    }

    #[test]
    fn one_version_each_and_harmless_duplicates_pass() {
        let once: Vec<String> = ONCE.iter().map(|name| package(name, "1.0.0")).collect();
        assert_eq!(found(&once), [] as [String; 0]);
        let twice = [package("base64", "0.22.0"), package("base64", "0.23.0")];
        assert_eq!(found(&twice), [] as [String; 0]);
    }

    #[test]
    fn a_broken_lock_file_is_caught() {
        assert_eq!(found(&["[[package]\n".to_owned()]).len(), 1);
    }
}
