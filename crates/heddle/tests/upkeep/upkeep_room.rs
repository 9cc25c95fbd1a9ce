//! Making room in and beside a home: what a killed backup left goes away, and the home's files give back what was deleted.

use crate::support;

use std::path::PathBuf;

use serde_json::json;
use support::Home;
use support::files::noise;
use support::small_disk::SmallDisk;

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn beside(home: &Home, name: &str) -> PathBuf {
    home.path().parent().unwrap().join(name)
}

fn dump(home: &Home, mesh: &str) -> String {
    home.cli(&["--mesh", mesh, "advanced", "dump"]).stdout
}

#[test]
fn lf_36_leftovers_of_a_killed_backup_make_room_for_the_next_and_nothing_else_does() {
    let alice = home_of("alice");
    alice.up().stop();
    let file = beside(&alice, "copy.db");
    let path = file.to_str().unwrap();
    let left = |name: &str| beside(&alice, name);
    // As a kill leaves them at its steps: the companions on their way, then named, then the store with its blobs.
    for folder in ["copy.db.home.part", "copy.db.home"] {
        std::fs::create_dir(left(folder)).unwrap();
        std::fs::write(left(folder).join(".unfinished"), "").unwrap();
        std::fs::write(left(folder).join("config.toml"), "old").unwrap();
    }
    std::fs::create_dir(left("copy.db.blobs.part")).unwrap();
    std::fs::create_dir(left("copy.db.blobs")).unwrap();
    std::fs::write(left("copy.db.part"), b"SQLite format 3\0 and so on").unwrap();
    alice.cli(&["doctor", "--backup", path]).ok();
    for gone in ["copy.db.part", "copy.db.home.part", "copy.db.blobs.part"] {
        assert!(!left(gone).exists(), "{gone}");
    }
    assert!(!left("copy.db.home").join(".unfinished").exists());
    let settings = std::fs::read_to_string(left("copy.db.home").join("config.toml")).unwrap();
    assert!(settings.contains("alice"), "{settings}");
    // A whole one is not replaced, nor what is no leftover of ours.
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(alice.cli(&["doctor", "--backup", path]).code, 3);
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    let other = beside(&alice, "other.db");
    std::fs::write(left("other.db.part"), "somebody's").unwrap();
    let refused = alice.cli(&["doctor", "--backup", other.to_str().unwrap()]);
    assert_eq!(refused.code, 3, "{refused:?}");
    std::fs::remove_file(left("other.db.part")).unwrap();
    std::fs::create_dir(left("other.db.home")).unwrap();
    let refused = alice.cli(&["doctor", "--backup", other.to_str().unwrap()]);
    assert_eq!(refused.code, 3, "{refused:?}");
}

#[test]
fn the_room_of_what_was_deleted_is_given_back_and_nothing_else_changes() {
    let alice = home_of("alice");
    let up = alice.up();
    let text = "x".repeat(200_000);
    for number in 0..20 {
        let body = json!({"key": format!("k{number}"), "value": text});
        up.http.post("/v1/memory/remember", &body).expect(200);
    }
    alice.cli(&["state", "set", "stays", "1"]).ok();
    let busy = alice.cli(&["doctor", "--compact"]);
    assert_eq!(busy.code, 3, "a daemon has the files: {busy:?}");
    for number in 0..20 {
        let body = json!({"key": format!("k{number}"), "value": 1});
        up.http.post("/v1/memory/remember", &body).expect(200);
    }
    let before = dump(&alice, "home");
    up.stop();
    let told = alice.cli(&["doctor", "--compact", "--json"]).ok().json();
    let bytes = |name: &str| told[name].as_u64().unwrap();
    assert!(bytes("bytes_before") > 4_000_000, "{told}");
    assert!(bytes("bytes_after") < 2_000_000, "{told}");
    let size = std::fs::metadata(alice.path().join("data.db")).unwrap();
    assert_eq!(told["files"][0]["bytes_after"], size.len(), "{told}");
    assert_eq!(alice.cli(&["doctor"]).code, 0);
    let up = alice.up();
    assert_eq!(dump(&alice, "home"), before);
    up.stop();
    // A damaged file is left to the repair, as it is.
    let data = alice.path().join("data.db");
    let mut bytes = std::fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&data, &bytes).unwrap();
    let refused = alice.cli(&["doctor", "--compact"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert_eq!(std::fs::read(&data).unwrap(), bytes);
}

/// What the doctor advises on a full disk is taken there: what fills it leaves room for a delete, which writes a little first.
#[test]
fn c33_a_disk_that_the_home_filled_by_itself_takes_deletes() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), 24);
    let daemon = home.up();
    let file = home.path().parent().unwrap().join("file");
    let mut paths = Vec::new();
    for bytes in [1_000_000, 200_000, 70_000] {
        loop {
            let path = format!("f{}", paths.len());
            std::fs::write(&file, noise(paths.len() as u64 * 2 + 1, bytes)).unwrap();
            let body = json!({"path": path, "from": file});
            match daemon.http.post("/v1/file/share", &body).status {
                200 => paths.push(path),
                507 => break,
                other => panic!("{other}"),
            }
        }
    }
    let mut keys = Vec::new();
    for bytes in [60_000, 5_000, 200] {
        loop {
            let key = format!("k{}", keys.len());
            let body = json!({"key": key, "value": "x".repeat(bytes)});
            match daemon.http.post("/v1/state/set", &body).status {
                200 => keys.push(key),
                507 => break,
                other => panic!("{other}"),
            }
        }
    }
    let free = disk.free_bytes();
    let gone = home.cli(&["file", "delete", &paths[0]]);
    assert_eq!(gone.code, 0, "{free} bytes are free: {gone:?}");
    for key in keys.iter().take(3) {
        home.cli(&["state", "delete", key]).ok();
    }
    home.cli(&["file", "delete", &paths[1]]).ok();
    home.cli(&["advanced", "sweep", "--grace-seconds", "0"])
        .ok();
}
