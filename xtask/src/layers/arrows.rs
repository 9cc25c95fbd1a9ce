//! Rules `layer` and `never`: a manifest against its row of the table.

use super::manifest::{Dependency, Manifest};
use super::table::{Layer, by_folder, by_package};
use crate::finding::Finding;

const LAYER: &str = "layer";
const NEVER: &str = "never";

/// `path` is the manifest's, `folder` that of its crate.
pub(crate) fn check(path: &str, folder: &str, manifest: &Manifest) -> Vec<Finding> {
    let Some(layer) = by_folder(folder) else {
        let advice = "a crate that the table does not know: give it a row in STYLE.md and in xtask/src/layers/table.rs";
        return vec![Finding::new(path, 1, LAYER, advice)];
    };
    let mut findings = Vec::new();
    if manifest.package.as_deref() != Some(layer.package) {
        let advice = format!("the package in `{folder}` is called `{}`", layer.package);
        findings.push(Finding::new(path, 1, LAYER, advice));
    }
    for dependency in &manifest.dependencies {
        let complaint = arrow(layer, dependency)
            .map(|advice| (LAYER, advice))
            .or_else(|| forbidden(layer, dependency).map(|advice| (NEVER, advice)));
        if let Some((rule, advice)) = complaint {
            findings.push(Finding::new(path, dependency.line, rule, advice));
        }
    }
    findings
}

fn arrow(layer: &Layer, dependency: &Dependency) -> Option<String> {
    let package = &dependency.package;
    let Some(used) = by_package(package) else {
        return package
            .starts_with("heddle-")
            .then(|| format!("`{package}` is a crate that the table does not know"));
    };
    if used.is_tool {
        return Some(format!("`{package}` is a tool: nothing depends on it"));
    }
    if dependency.is_dev || layer.may_use.contains(&used.folder) {
        return None;
    }
    let allowed: Vec<&str> = layer
        .may_use
        .iter()
        .map(|folder| folder.trim_start_matches("crates/"))
        .collect();
    let allowed = if allowed.is_empty() {
        "nothing here".to_owned()
    } else {
        allowed.join(", ")
    };
    Some(format!(
        "`{}` must not use `{package}`; it may use {allowed}",
        layer.package
    ))
}

fn forbidden(layer: &Layer, dependency: &Dependency) -> Option<String> {
    if dependency.is_dev {
        return None;
    }
    let name = layer
        .never
        .iter()
        .find(|name| is_family(&dependency.package, name))?;
    let package = &dependency.package;
    Some(format!(
        "`{}` must never know of {name}: take `{package}` out",
        layer.package
    ))
}

/// `hyper` and `hyper-util`, but not `hyperfine`.
fn is_family(package: &str, name: &str) -> bool {
    package
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{Renames, parse};
    use super::super::table::LAYERS;
    use super::{check, is_family};

    fn complaints(folder: &str, package: &str, section: &str, dependency: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{package}\"\n[{section}]\n{dependency} = \"1\"\n");
        let manifest = parse("Cargo.toml", &text, &Renames::new()).unwrap();
        check("Cargo.toml", folder, &manifest)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn every_pair_of_crates_is_allowed_or_caught_as_the_table_says() {
        for user in LAYERS {
            for used in LAYERS {
                let found = |section| {
                    !complaints(user.folder, user.package, section, used.package).is_empty()
                };
                let what = format!("{} -> {}", user.package, used.package);
                let allowed = user.may_use.contains(&used.folder);
                assert_eq!(found("dependencies"), !allowed, "{what}");
                assert_eq!(found("build-dependencies"), !allowed, "{what}, build");
                assert_eq!(found("dev-dependencies"), used.is_tool, "{what}, dev");
            }
        }
    }

    #[test]
    fn the_arrows_that_hurt_most_are_caught_by_name() {
        for (folder, package, dependency) in [
            ("crates/core", "heddle-core", "heddle-wire"),
            ("crates/store", "heddle-store", "heddle-journal"),
            ("crates/broker", "heddle-broker", "heddle-store"),
            ("crates/daemon", "heddle-daemon", "heddle-broker"),
            ("crates/daemon", "heddle-daemon", "heddle-sqlite"),
            ("crates/wire", "heddle-wire", "heddle-unheard"),
        ] {
            let found = complaints(folder, package, "dependencies", dependency);
            assert_eq!(found.len(), 1, "{package} -> {dependency}");
            assert!(
                found[0].starts_with("Cargo.toml:4: layer: "),
                "{}",
                found[0]
            );
        }
    }

    #[test]
    fn what_a_crate_must_never_know_of_is_caught_with_its_family_but_not_in_tests() {
        for layer in LAYERS {
            for never in layer.never {
                for name in [(*never).to_owned(), format!("{never}-extra")] {
                    let found = complaints(layer.folder, layer.package, "dependencies", &name);
                    assert_eq!(found.len(), 1, "{} -> {name}", layer.package);
                    assert!(found[0].contains(": never: "), "{}", found[0]);
                    let dev = complaints(layer.folder, layer.package, "dev-dependencies", &name);
                    assert!(dev.is_empty(), "{} -> {name}", layer.package);
                }
            }
        }
        assert!(complaints("crates/core", "heddle-core", "dependencies", "serde").is_empty());
        assert!(is_family("hyper-util", "hyper") && !is_family("hyperfine", "hyper"));
    }

    #[test]
    fn an_unknown_folder_and_a_wrong_name_are_caught() {
        let unknown = complaints("crates/utils", "heddle-utils", "dependencies", "serde");
        assert!(
            unknown[0].contains("the table does not know"),
            "{}",
            unknown[0]
        );
        let wrong = complaints("crates/core", "core", "dependencies", "serde");
        assert!(wrong[0].contains("`heddle-core`"), "{}", wrong[0]);
    }
}
