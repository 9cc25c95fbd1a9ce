//! What a `Cargo.toml` says about its package and its dependencies, with line numbers and renames resolved.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use crate::finding::Finding;
use crate::toml_text::{self, line_of};

const RULE: &str = "manifest";

/// The key of a `[workspace.dependencies]` entry, and the package behind it.
pub(crate) type Renames = BTreeMap<String, String>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) package: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) package: String,
    pub(crate) line: usize,
    /// In the tests only; build scripts count as product.
    pub(crate) is_dev: bool,
}

/// Reads `[workspace.dependencies]` of the root manifest.
pub(crate) fn renames(path: &str, text: &str) -> Result<Renames, Finding> {
    let root = toml_text::parse(path, text, RULE)?;
    let listed = table_at(&root, "workspace").and_then(|table| table_at(table, "dependencies"));
    Ok(listed
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let package = renamed(value.get_ref()).unwrap_or(key.get_ref());
            (key.get_ref().to_string(), package.to_owned())
        })
        .collect())
}

pub(crate) fn parse(path: &str, text: &str, renames: &Renames) -> Result<Manifest, Finding> {
    let root = toml_text::parse(path, text, RULE)?;
    let package = table_at(&root, "package")
        .and_then(|package| package.get("name"))
        .and_then(|name| name.get_ref().as_str())
        .map(str::to_owned);

    let mut dependencies = Vec::new();
    collect(&root, text, renames, &mut dependencies);
    for (_, target) in table_at(&root, "target").into_iter().flatten() {
        if let Some(target) = target.get_ref().as_table() {
            collect(target, text, renames, &mut dependencies);
        }
    }
    Ok(Manifest {
        package,
        dependencies,
    })
}

fn collect(table: &DeTable<'_>, text: &str, renames: &Renames, out: &mut Vec<Dependency>) {
    let sections = [
        ("dependencies", false),
        ("build-dependencies", false),
        ("dev-dependencies", true),
    ];
    for (section, is_dev) in sections {
        for (key, value) in table_at(table, section).into_iter().flatten() {
            let name = key.get_ref().to_string();
            let package = renamed(value.get_ref())
                .or_else(|| renames.get(&name).map(String::as_str))
                .map_or_else(|| name.clone(), str::to_owned);
            let line = line_of(text, &key.span());
            out.push(Dependency {
                package,
                line,
                is_dev,
            });
        }
    }
}

fn table_at<'a, 't>(table: &'a DeTable<'t>, key: &str) -> Option<&'a DeTable<'t>> {
    table.get(key)?.get_ref().as_table()
}

/// The `package = "…"` of a dependency that goes by another name here.
fn renamed<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    value.as_table()?.get("package")?.get_ref().as_str()
}

#[cfg(test)]
mod tests {
    use super::{Dependency, Renames, parse, renames};

    fn dependency(package: &str, line: usize, is_dev: bool) -> Dependency {
        Dependency {
            package: package.to_owned(),
            line,
            is_dev,
        }
    }

    #[test]
    fn every_section_is_read_and_a_rename_is_seen_through() {
        let root =
            "[workspace.dependencies]\nshort = { package = \"heddle-store\", path = \"x\" }\n";
        let renames = renames("Cargo.toml", root).unwrap();
        let text = "[package]\nname = \"heddle-core\"\n[dependencies]\nserde = \"1\"\n\
            short = { workspace = true }\n[dev-dependencies]\n\
            own = { package = \"tokio\", version = \"1\" }\n[build-dependencies]\ncc = \"1\"\n\
            [target.'cfg(unix)'.dependencies]\nrustix = \"1\"\n[dependencies.axum]\nversion = \"1\"\n";
        let manifest = parse("Cargo.toml", text, &renames).unwrap();
        assert_eq!(manifest.package.as_deref(), Some("heddle-core"));
        assert_eq!(
            manifest.dependencies,
            [
                dependency("axum", 12, false),
                dependency("serde", 4, false),
                dependency("heddle-store", 5, false),
                dependency("cc", 9, false),
                dependency("tokio", 7, true),
                dependency("rustix", 11, false),
            ]
        );
    }

    #[test]
    fn a_broken_manifest_is_a_finding() {
        let finding = parse("a/Cargo.toml", "[package\n", &Renames::new()).unwrap_err();
        assert_eq!(
            (finding.path.as_str(), finding.rule),
            ("a/Cargo.toml", "manifest")
        );
    }
}
