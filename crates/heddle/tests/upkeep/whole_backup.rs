//! A backup has the whole home: the store, the broker, the keys and the settings; and all of it comes back.

use crate::support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use support::{Home, Ran, text_of, wait_until};

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn beside(home: &Home, name: &str) -> PathBuf {
    home.path().parent().unwrap().join(name)
}

fn join(host: &Home, guest: &Home) -> Ran {
    let answer = host.cli(&["mesh", "invite", "--json"]).ok().json();
    guest.cli_told(
        &["mesh", "join", "-", "--json"],
        answer["link"].as_str().unwrap(),
    )
}

fn is_connected(home: &Home, mesh: &str) -> bool {
    let list = home.cli(&["mesh", "list", "--json"]).json();
    let meshes = list["meshes"].as_array().unwrap();
    let found = meshes.iter().find(|one| one["mesh"] == mesh);
    found.is_some_and(|one| one["connected"] == true)
}

/// Every file below this folder with its mode.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        found.push((path.clone(), metadata.permissions().mode() & 0o777));
        if metadata.is_dir() {
            found.extend(modes(&path));
        }
    }
    found
}

#[test]
fn lf_36_a_host_that_lost_its_whole_home_has_its_guests_again_after_a_restore() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, _bob_up) = (alice.up(), bob.up());
    join(&alice, &bob).ok();
    alice.cli(&["state", "set", "plan", "7"]).ok();
    wait_until("the state at bob", || {
        bob.cli(&["--mesh", "alice-home", "state", "get", "plan"])
            .code
            == 0
    });
    let file = beside(&alice, "copy.db");
    let made = alice
        .cli(&["doctor", "--backup", file.to_str().unwrap(), "--json"])
        .ok()
        .json();
    let with: Vec<&str> = made["with"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    for one in ["broker.db", "config.toml", "keys"] {
        assert!(with.contains(&one), "{made}");
    }
    let folder = beside(&alice, "copy.db.home");
    assert_eq!(
        std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
        0o700
    );
    for (path, mode) in modes(&folder) {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}", path.display());
    }
    let settings = text_of(&alice.path().join("config.toml"));
    let port = text_of(&alice.path().join("broker.port"));
    alice_up.stop();
    std::fs::remove_dir_all(alice.path()).unwrap();
    let restored = alice
        .cli(&["daemon", "restore", file.to_str().unwrap(), "--json"])
        .ok()
        .json();
    let with: Vec<&str> = restored["with"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    assert!(
        with.contains(&"broker.db") && with.contains(&"config.toml"),
        "{restored}"
    );
    assert_eq!(text_of(&alice.path().join("config.toml")), settings);
    for (path, mode) in modes(&alice.path()) {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}", path.display());
    }
    let _alice_up = alice.up();
    assert_eq!(
        text_of(&alice.path().join("broker.port")),
        port,
        "guests look for it there"
    );
    wait_until("bob to be back", || is_connected(&bob, "alice-home"));
    bob.cli(&["--mesh", "alice-home", "state", "set", "plan", "8"])
        .ok();
    wait_until("the state of bob", || {
        alice.cli(&["state", "get", "plan"]).stdout.trim() == "8"
    });
}

#[test]
fn a_restore_replaces_no_broker_key_or_setting_unless_it_is_told_to() {
    let alice = home_of("alice");
    let up = alice.up();
    let file = beside(&alice, "copy.db");
    alice
        .cli(&["doctor", "--backup", file.to_str().unwrap()])
        .ok();
    let id = |home: &Home| home.cli(&["mesh", "info", "--json"]).ok().json()["broker_id"].clone();
    let before = id(&alice);
    up.stop();
    alice.config("[daemon]\nmember = \"alice\"\n# mine\n");
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(alice.path().join(format!("broker.db{end}")));
    }
    // A start without it makes another broker; the state since then is to stay.
    let up = alice.up();
    assert_ne!(id(&alice), before);
    alice.cli(&["state", "set", "later", "1"]).ok();
    up.stop();
    let broker = alice
        .cli(&[
            "daemon",
            "restore",
            file.to_str().unwrap(),
            "--only",
            "broker",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(broker["with"], json!(["broker.db"]), "{broker}");
    let kept = PathBuf::from(broker["before"].as_str().unwrap());
    assert!(kept.exists(), "{broker}");
    assert!(text_of(&alice.path().join("config.toml")).contains("# mine"));
    let up = alice.up();
    assert_eq!(id(&alice), before);
    assert_eq!(alice.cli(&["state", "get", "later"]).ok().stdout, "1\n");
    up.stop();
    // The whole: what is there stays there.
    let restored = alice.cli(&["daemon", "restore", file.to_str().unwrap(), "--json"]);
    let restored = restored.ok().json();
    assert_eq!(restored["with"], json!([]), "{restored}");
    assert!(text_of(&alice.path().join("config.toml")).contains("# mine"));
}
