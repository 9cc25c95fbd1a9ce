//! What the doctor reads: effects.db, the bytes of blobs, and meshes that config.toml does not name.
#![cfg(test)]

mod support;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::files::{blob_files, noise, share};
use support::{Home, wait_until};

fn finding(home: &Home, check: &str) -> Value {
    let view = home.cli(&["doctor", "--json"]).json();
    let findings = view["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["check"] == check);
    found.unwrap_or(&Value::Null).clone()
}

#[test]
fn lf_39_a_damaged_effects_db_is_named_with_what_to_do() {
    let home = Home::new();
    let daemon = home.up();
    let run = [
        "effect", "run", "--key", "k", "--op", "o", "--target", "t", "--", "true",
    ];
    for number in 0..40 {
        let key = format!("k{number}");
        let mut args = run;
        args[3] = &key;
        let _ = home.cli(&args);
    }
    assert_eq!(finding(&home, "effects.db")["ok"], true);
    daemon.stop();
    assert_eq!(finding(&home, "effects.db")["ok"], true);
    let path = home.path().join("effects.db");
    let before = std::fs::read(&path).unwrap();
    let mut bytes = before.clone();
    let last = bytes.len() / 4096 - 1;
    for page in 1..=last {
        bytes[page * 4096..page * 4096 + 64].fill(0xff);
    }
    std::fs::write(&path, &bytes).unwrap();
    let check = finding(&home, "effects.db");
    assert_eq!(check["ok"], false, "{check}");
    assert!(
        check["says"].as_str().unwrap().contains("damaged"),
        "{check}"
    );
    assert!(!check["next"].as_str().unwrap().is_empty(), "{check}");
    assert_eq!(home.cli(&["doctor"]).code, 1);
    assert_eq!(
        std::fs::read(&path).unwrap(),
        bytes,
        "a look changed the file"
    );
}

#[test]
fn lf_28_a_blob_with_other_bytes_of_the_right_length_is_named() {
    let home = Home::new();
    let daemon = home.up();
    share(&daemon, "dir/whole", &noise(3, 300_000));
    share(&daemon, "dir/rotten", &noise(7, 300_000));
    assert_eq!(finding(&home, "blobs")["ok"], true);
    let hash = home.cli(&["file", "list", "--json"]).ok().json();
    let of = |path: &str| {
        let files = hash["items"].as_array().unwrap();
        let found = files.iter().find(|one| one["path"] == path).unwrap();
        found["sha256"].as_str().unwrap().to_owned()
    };
    let rotten = of("dir/rotten");
    let files = blob_files(&home);
    let file = files
        .iter()
        .find(|path| path.file_name().unwrap().to_str() == Some(rotten.as_str()))
        .unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[150_000] ^= 1;
    let mut open = std::fs::metadata(file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut open, 0o600);
    std::fs::set_permissions(file, open).unwrap();
    std::fs::write(file, bytes).unwrap();
    let check = finding(&home, "blobs");
    assert_eq!(check["ok"], false, "{check}");
    let says = check["says"].as_str().unwrap();
    assert!(
        says.contains("dir/rotten") && !says.contains("dir/whole"),
        "{check}"
    );
    daemon.stop();
    let down = finding(&home, "blobs");
    assert_eq!(
        (&down["ok"], &down["says"]),
        (&json!(false), &check["says"])
    );
}

#[test]
fn a_mesh_that_config_toml_does_not_name_any_more_is_told_by_status_doctor_and_export() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&Home::new(), &data, "127.0.0.1:0", &[]);
    let config = format!(
        "[[mesh]]\nname = \"team\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
        broker.listen(),
        data.join("broker_token")
    );
    home.config(&config);
    let daemon = home.up();
    home.cli(&["--mesh", "team", "state", "set", "k", "1"]).ok();
    assert_eq!(finding(&home, "meshes")["ok"], true);
    daemon.stop();
    home.config("");
    let down = finding(&home, "meshes");
    assert_eq!(down["ok"], false, "{down}");
    let daemon = home.up();
    let check = finding(&home, "meshes");
    assert_eq!(check["ok"], false, "{check}");
    assert!(check["says"].as_str().unwrap().contains("team"), "{check}");
    assert!(
        check["next"].as_str().unwrap().contains("config.toml"),
        "{check}"
    );
    let status = home.cli(&["status", "--json"]).ok().json();
    assert!(status["degraded"].to_string().contains("team"), "{status}");
    let export = home.cli(&["advanced", "export"]).ok();
    assert!(export.stderr.contains("team"), "{export:?}");
    daemon.stop();
    // Left on purpose: nobody is told of it any more.
    home.config("left = [\"team\"]\n");
    let daemon = home.up();
    assert_eq!(finding(&home, "meshes")["ok"], true);
    assert_eq!(
        home.cli(&["status", "--json"]).json()["degraded"],
        json!([])
    );
    daemon.stop();
    home.config(&config);
    let _daemon = home.up();
    wait_until("the mesh", || finding(&home, "meshes")["ok"] == true);
    assert_eq!(
        home.cli(&["--mesh", "team", "state", "get", "k"])
            .ok()
            .stdout,
        "1\n"
    );
}

#[test]
fn a_status_of_a_mesh_that_is_not_there_is_not_found_with_candidates() {
    let home = Home::new();
    let _daemon = home.up();
    let none = home.cli(&["status", "--mesh", "nowhere", "--json"]);
    assert_eq!(none.code, 4, "{none:?}");
    assert_eq!(none.json()["candidates"], json!(["home"]), "{none:?}");
    assert!(none.stderr.contains("home"), "{none:?}");
    home.cli(&["status", "--mesh", "home"]).ok();
    let doctor = home.cli(&["doctor", "--mesh", "nowhere"]);
    assert_eq!(doctor.code, 4, "{doctor:?}");
}
