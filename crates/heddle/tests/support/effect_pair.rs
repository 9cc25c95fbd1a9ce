//! Two homes and one mesh: Alice hosts it and decides about its effects, Bob has joined.

use serde_json::json;

use super::{Daemon, Home, Ran, wait_until};

pub const MESH: &str = "alice-home";

pub fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

pub struct Pair {
    pub alice: Home,
    pub bob: Home,
    pub up: (Option<Daemon>, Daemon),
}

/// Alice hosts, Bob has joined.
pub fn pair(policy: &str) -> Pair {
    pair_with(policy, "bob")
}

/// The same; in his own home, Bob's person has this name.
pub fn pair_with(policy: &str, person: &str) -> Pair {
    let (alice, bob) = (home_of("alice"), home_of(person));
    if !policy.is_empty() {
        std::fs::write(alice.path().join("effects.toml"), policy).unwrap();
    }
    let up = (Some(alice.up()), bob.up());
    let link = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    let joined = bob
        .cli_told(
            &["mesh", "join", "-", "--name", "bob", "--json"],
            link["link"].as_str().unwrap(),
        )
        .ok()
        .json();
    assert_eq!(
        (&joined["mesh"], &joined["connected"]),
        (&json!(MESH), &json!(true))
    );
    Pair { alice, bob, up }
}

impl Pair {
    /// Bob, in Alice's mesh.
    pub fn bob(&self, args: &[&str]) -> Ran {
        self.bob.cli(&[&["--mesh", MESH], args].concat())
    }

    pub fn wait_connected(&self) {
        wait_until("bob to be connected", || {
            let list = self.bob.cli(&["mesh", "list", "--json"]).json();
            let meshes = list["meshes"].as_array().unwrap();
            meshes
                .iter()
                .any(|one| one["mesh"] == MESH && one["connected"] == true)
        });
    }
}

pub fn run<'a>(key: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut args = vec![
        "effect", "run", "--json", "--key", key, "--op", "deploy", "--target", "prod",
    ];
    args.extend(options);
    args.extend(["--", "/bin/sh", "-c", script]);
    args
}

pub fn request(key: &str) -> Vec<&str> {
    vec![
        "effect", "request", "--json", "--key", key, "--op", "deploy", "--target", "prod",
    ]
}
