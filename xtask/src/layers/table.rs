//! The arrows of STYLE.md as data: which crate stands where, what it may use, what it must never know of.

/// One row of the table; crates are named by their folder.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) folder: &'static str,
    pub(crate) package: &'static str,
    pub(crate) may_use: &'static [&'static str],
    /// External crates, each with its family: `hyper` also means `hyper-util`.
    pub(crate) never: &'static [&'static str],
    /// Nothing may depend on a tool, not even a test.
    pub(crate) is_tool: bool,
}

const CORE: &str = "crates/core";
const WIRE: &str = "crates/wire";
const SQLITE: &str = "crates/sqlite";
const JOURNAL: &str = "crates/journal";
const STORE: &str = "crates/store";
const REGISTRAR: &str = "crates/registrar";
const BROKER: &str = "crates/broker";
const DAEMON: &str = "crates/daemon";
const HEDDLE: &str = "crates/heddle";
const EVERYTHING: &[&str] = &[
    CORE, WIRE, SQLITE, JOURNAL, STORE, REGISTRAR, BROKER, DAEMON, HEDDLE,
];

/// Top of the list: knows nothing. A row may use only rows above it.
pub(crate) const LAYERS: &[Layer] = &[
    layer(
        CORE,
        "heddle-core",
        &[],
        &[
            "tokio",
            "rusqlite",
            "axum",
            "hyper",
            "tokio-postgres",
            "redis",
            "getrandom",
        ],
    ),
    layer(
        WIRE,
        "heddle-wire",
        &[CORE],
        &["rusqlite", "axum", "tokio-postgres"],
    ),
    layer(SQLITE, "heddle-sqlite", &[CORE], &["hyper", "axum"]),
    layer(
        JOURNAL,
        "heddle-journal",
        &[CORE],
        &["rusqlite", "hyper", "axum"],
    ),
    layer(
        STORE,
        "heddle-store",
        &[CORE, SQLITE],
        &["hyper", "axum", "tungstenite", "tokio-tungstenite"],
    ),
    layer(
        REGISTRAR,
        "heddle-registrar",
        &[CORE, SQLITE],
        &["hyper", "axum"],
    ),
    layer(
        BROKER,
        "heddle-broker",
        &[CORE, WIRE, SQLITE, REGISTRAR],
        &[],
    ),
    layer(
        DAEMON,
        "heddle-daemon",
        &[CORE, WIRE, STORE, REGISTRAR, JOURNAL],
        &[],
    ),
    // Not SQLITE: the binary reaches tables only through the crates that own them.
    layer(
        HEDDLE,
        "heddle",
        &[CORE, WIRE, JOURNAL, STORE, REGISTRAR, BROKER, DAEMON],
        &[],
    ),
    tool("sim", EVERYTHING),
    tool("bench", EVERYTHING),
    tool("xtask", &[]),
];

const fn layer(
    folder: &'static str,
    package: &'static str,
    may_use: &'static [&'static str],
    never: &'static [&'static str],
) -> Layer {
    Layer {
        folder,
        package,
        may_use,
        never,
        is_tool: false,
    }
}

const fn tool(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer {
        folder: name,
        package: name,
        may_use,
        never: &[],
        is_tool: true,
    }
}

pub(crate) fn by_folder(folder: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.folder == folder)
}

pub(crate) fn by_package(package: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.package == package)
}

#[cfg(test)]
mod tests {
    use super::{LAYERS, by_folder};

    #[test]
    fn arrows_point_up_the_list_only_so_no_circle_is_possible() {
        for (index, layer) in LAYERS.iter().enumerate() {
            for used in layer.may_use {
                let above = LAYERS[..index].iter().any(|other| other.folder == *used);
                assert!(above, "{} uses {used}", layer.folder);
            }
        }
    }

    #[test]
    fn nothing_may_use_a_tool() {
        for layer in LAYERS {
            for used in layer.may_use {
                assert!(
                    !by_folder(used).unwrap().is_tool,
                    "{} uses {used}",
                    layer.folder
                );
            }
        }
    }

    #[test]
    fn folders_and_packages_are_named_once() {
        for layer in LAYERS {
            let same = |other: &&super::Layer| {
                other.folder == layer.folder || other.package == layer.package
            };
            assert_eq!(LAYERS.iter().filter(same).count(), 1, "{}", layer.folder);
        }
    }
}
