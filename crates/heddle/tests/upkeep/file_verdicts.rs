//! What `status` and `doctor` say of a home in which nothing runs is what the next `up` does with it, whatever became of
//! its files.

use crate::support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::small_disk::SmallDisk;
use support::stub_broker::{StubBroker, features};
use support::{Home, wait_until};

const FILES: [&str; 3] = ["data.db", "broker.db", "effects.db"];

/// A home that was stopped in order, with rows in all three files.
fn stopped() -> Home {
    let home = Home::new();
    let daemon = home.up();
    for number in 0..40 {
        let id = format!("m{number}");
        let body = json!({"to": "@tester", "message": "text ".repeat(60), "client_message_id": id});
        daemon.http.post("/v1/send", &body).expect(202);
    }
    home.cli(&[
        "effect", "run", "--key", "k", "--op", "o", "--target", "t", "--", "true",
    ]);
    wait_until("the messages", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["outbox"]["done"] == 40 && status["inbox"]["items"] == 40
    });
    daemon.stop();
    home
}

fn finding(view: &Value, check: &str) -> Value {
    let findings = view["findings"].as_array().unwrap();
    let found = findings.iter().find(|one| one["check"] == check);
    found.cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn set_version(path: &Path, version: u32) {
    let raw = rusqlite::Connection::open(path).unwrap();
    raw.pragma_update(None, "user_version", version).unwrap();
}

#[test]
fn lf_35_a_file_of_a_newer_heddle_is_called_so_by_every_verb_and_touched_by_none() {
    for name in FILES {
        let home = stopped();
        let path = home.path().join(name);
        set_version(&path, 99);
        let before = std::fs::read(&path).unwrap();
        let says = |words: &str| {
            for part in [
                "newer Heddle",
                "schema 99, this one knows",
                "nothing was changed",
            ] {
                assert!(words.contains(part), "{name}: no {part:?} in {words}");
            }
            let helps = ["nstall the", "heddle doctor"];
            let is_helped = helps.iter().any(|help| words.contains(help));
            assert!(is_helped, "{name}: {words}");
        };
        let status = home.cli(&["status", "--json"]).ok().json();
        says(text(&status["degraded"][0]));
        assert_eq!(status["next"], "heddle doctor", "{status}");

        let doctor = home.cli(&["doctor", "--json"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        let check = finding(&doctor.json(), name);
        assert_eq!(check["ok"], false, "{check}");
        says(&check.to_string());

        let repair = home.cli(&["doctor", "--repair"]);
        assert_eq!(repair.code, 6, "{repair:?}");
        says(&format!("{}{}", repair.stdout, repair.stderr));

        let up = home.try_up().err().expect("it must not start");
        assert_eq!(up.code, 6, "{up:?}");
        says(&up.stderr);
        assert_eq!(std::fs::read(&path).unwrap(), before, "{name} was changed");
    }
}

/// The files as they were when the home was stopped.
struct Snapshot(Vec<(PathBuf, Vec<u8>)>);

impl Snapshot {
    fn of(home: &Home) -> Self {
        let read = |name: &&str| {
            let path = home.path().join(name);
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        };
        Self(FILES.iter().map(read).collect())
    }

    fn put_back(&self, home: &Home) {
        for entry in std::fs::read_dir(home.path()).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if FILES.iter().any(|file| name.starts_with(file)) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        for (path, bytes) in &self.0 {
            std::fs::write(path, bytes).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(path, private).unwrap();
        }
    }
}

/// The header's fields, the head of the first page, and the heads of a few more.
fn places(bytes: &[u8]) -> Vec<usize> {
    let mut places = vec![0, 16, 18, 19, 21, 31, 47, 52, 59, 63, 100, 103];
    let pages = bytes.len() / 4096;
    places.extend([pages / 3, pages / 2, pages - 1].map(|page| page * 4096));
    places.extend([pages / 3, pages / 2].map(|page| page * 4096 + 4));
    places
}

/// What is said and what is done agree, byte by byte.
fn agrees(name: &str) {
    let home = stopped();
    let whole = Snapshot::of(&home);
    let path = home.path().join(name);
    let mut refused = 0;
    for at in places(&std::fs::read(&path).unwrap()) {
        whole.put_back(&home);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let status = home.cli(&["status", "--json"]).ok().json();
        let doctor = home.cli(&["doctor", "--json"]).json();
        let check = finding(&doctor, name);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name} byte {at}");
        match home.try_up() {
            Ok(daemon) => {
                assert_eq!(status["next"], "heddle up", "{name} byte {at}: {status}");
                let is_right = check["ok"] == true || text(&check["next"]).contains("heddle up");
                assert!(is_right, "{name} byte {at}: {check}");
                daemon.stop();
            }
            Err(up) => {
                assert_eq!(
                    status["next"], "heddle doctor",
                    "{name} byte {at}: {status} {up:?}"
                );
                assert_eq!(check["ok"], false, "{name} byte {at}: {check} {up:?}");
                assert!(up.code == 1 || up.code == 6, "{name} byte {at}: {up:?}");
                assert!(!up.stderr.contains("CREATE TABLE"), "{up:?}");
                assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name} byte {at}");
                refused += 1;
            }
        }
    }
    assert!(refused > 5, "{name}: {refused}");
}

#[test]
fn lf_39_what_is_said_of_a_damaged_data_db_is_what_a_start_does() {
    agrees("data.db");
}

#[test]
fn lf_39_what_is_said_of_a_damaged_broker_db_is_what_a_start_does() {
    agrees("broker.db");
}

#[test]
fn lf_39_what_is_said_of_a_damaged_effects_db_is_what_a_start_does() {
    agrees("effects.db");
}

#[test]
fn lf_38_a_header_that_cannot_be_right_is_mended_by_a_repair_and_no_row_is_lost() {
    let home = stopped();
    let whole = Snapshot::of(&home);
    let path = home.path().join("data.db");
    // Which format it is written in, which format its list of tables has, which schema it has.
    for at in [0, 18, 19, 47, 59, 63] {
        whole.put_back(&home);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] = if at == 63 { 3 } else { bytes[at] ^ 0xff };
        std::fs::write(&path, &bytes).unwrap();
        home.try_up().err().expect("it must not start");
        let repaired = home.cli(&["doctor", "--repair", "--json"]).ok().json();
        assert_eq!(
            (&repaired["repaired"], &repaired["lost"]),
            (&json!(true), &json!(false)),
            "byte {at}: {repaired}"
        );
        let daemon = home.up();
        let status = daemon.http.get("/v1/status").expect(200);
        assert_eq!(status["outbox"]["done"], 40, "byte {at}: {status}");
        assert_eq!(status["inbox"]["items"], 40, "byte {at}: {status}");
        daemon.stop();
    }
}

fn damage_page_of(path: &Path, table: &str) {
    let raw = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: i64 = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    drop(raw);
    let mut bytes = std::fs::read(path).unwrap();
    let start = usize::try_from(page - 1).unwrap() * 4096;
    bytes[start..start + 64].fill(0xff);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn dr_16_a_damaged_inbox_is_a_starts_work_and_told_until_its_file_is_taken_away() {
    let home = stopped();
    damage_page_of(&home.path().join("data.db"), "inbox");
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle up", "{status}");
    let why = text(&status["degraded"][0]);
    assert!(why.contains("the next start sets the inbox aside"), "{why}");
    let doctor = home.cli(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let check = finding(&doctor.json(), "data.db");
    assert!(text(&check["next"]).contains("`heddle up`"), "{check}");

    let daemon = home.up();
    let told = |view: &Value| finding(view, "inbox that was set aside");
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["verdict"], "degraded", "{status}");
    let doctor = home.cli(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let check = told(&doctor.json());
    assert_eq!(check["ok"], false, "{check}");
    assert!(text(&check["says"]).contains("data.db.parked-"), "{check}");
    daemon.stop();
    assert_eq!(told(&home.cli(&["doctor", "--json"]).json())["ok"], false);
    for entry in std::fs::read_dir(home.path()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(".parked-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    home.cli(&["doctor"]).ok();
    let _daemon = home.up();
    home.cli(&["doctor"]).ok();
    assert_eq!(home.cli(&["status", "--json"]).json()["verdict"], "ok");
}

#[test]
fn br_19_after_a_broker_that_cannot_be_used_the_doctor_says_what_helps() {
    let broker = StubBroker::start();
    let low = json!({"mode": "retention_scoped", "dedupe_retention_days": 6, "request_fingerprint": true});
    broker.features(features(low));
    let home = Home::new();
    home.config(&broker.config());
    let up = home.try_up().err().expect("it must not start");
    assert!(up.stderr.contains("4012"), "{up:?}");
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle doctor", "{status}");
    assert!(text(&status["degraded"][0]).contains("4012"), "{status}");
    let doctor = home.cli(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let check = finding(&doctor.json(), "last stop");
    assert!(text(&check["says"]).contains("4012"), "{check}");
    assert!(
        text(&check["next"]).contains("dedupe_retention_days"),
        "{check}"
    );
    // What it advises helps, and then nothing is left to say.
    home.config(&StubBroker::start().config());
    home.up().stop();
    let status = home.cli(&["status", "--json"]).ok().json();
    assert_eq!(status["next"], "heddle up", "{status}");
    assert_eq!(
        finding(&home.cli(&["doctor", "--json"]).json(), "last stop"),
        Value::Null
    );
}

#[test]
fn a_token_that_the_broker_refuses_is_told_by_doctor_and_status_with_what_to_do() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&Home::new(), &data, "127.0.0.1:0", &[]);
    let token = data.join("wrong_token");
    std::fs::write(&token, "not the token").unwrap();
    home.config(&format!(
        "[[mesh]]\nname = \"team\"\nurl = \"ws://{}/\"\ntoken_file = {token:?}\n",
        broker.listen()
    ));
    let doctor = home.cli(&["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let check = finding(&doctor.json(), "broker of mesh team");
    assert_eq!(check["ok"], false, "{check}");
    assert!(
        text(&check["says"]).contains("refuses the token"),
        "{check}"
    );
    assert!(text(&check["next"]).contains("token_file"), "{check}");

    let _daemon = home.up();
    wait_until("the refusal", || {
        home.cli(&["status", "--json"]).json()["next"] == "heddle doctor"
    });
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("refuses the token"), "{doctor:?}");
    // Read anew at each try.
    std::fs::copy(data.join("broker_token"), &token).unwrap();
    wait_until("the connection", || home.cli(&["doctor"]).code == 0);
    assert_eq!(home.cli(&["status", "--json"]).json()["verdict"], "ok");
}

#[test]
fn on_a_short_disk_the_doctor_offers_only_what_gives_room() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    let _disk = SmallDisk::over(&home.path(), 48);
    let daemon = home.up();
    let disk = || finding(&home.cli(&["doctor", "--json"]).json(), "disk");
    let check = disk();
    assert_eq!(check["ok"], false, "{check}");
    assert!(!text(&check["next"]).contains("outbox prune"), "{check}");
    assert!(
        text(&check["next"]).contains("give nothing back"),
        "{check}"
    );
    let body = json!({"to": "@tester", "message": "x".repeat(200_000), "client_message_id": "big"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("the message", || {
        daemon.http.get("/v1/outbox/big").expect(200)["status"] == "done"
    });
    let check = disk();
    assert!(text(&check["next"]).contains("outbox prune"), "{check}");
    assert!(text(&check["next"]).contains(" 19"), "how much: {check}");
    home.cli(&[
        "daemon",
        "outbox",
        "prune",
        "--older-than",
        "0s",
        "--confirm",
    ])
    .ok();
    assert!(
        text(&disk()["next"]).contains("give nothing back"),
        "{}",
        disk()
    );
}
