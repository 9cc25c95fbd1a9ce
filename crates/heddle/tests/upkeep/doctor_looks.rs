//! What the doctor reads: effects.db, the bytes of blobs, and meshes that config.toml does not name.

use crate::support;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::files::{blob_files, noise, share};
use support::{Home, Ran, wait_until};

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

/// Bytes that are no text and numbers that are none: SQLite finds nothing wrong with either.
fn spoil(home: &Home) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    let trigger: String = raw
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = 'memory_is_changed'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    raw.execute_batch("DROP TRIGGER memory_is_changed").unwrap();
    for sql in [
        "UPDATE memory SET value = CAST(x'22ff22' AS TEXT) WHERE key = 'k2'",
        "UPDATE state_kv SET value = CAST(x'22ff22' AS TEXT) WHERE key = 's2'",
        "UPDATE files SET content = x'66666666' WHERE path = 'f2'",
    ] {
        assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
    }
    raw.execute_batch(&trigger).unwrap();
    let place: i64 = raw
        .query_row(
            "SELECT place FROM vector_metadata WHERE key = 'v2'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let chunks: String = raw
        .query_row(
            "SELECT name FROM sqlite_schema WHERE name LIKE 'vectors_%_vector_chunks00'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let rows = chunks.replace("_vector_chunks00", "_rowids");
    let offset: i64 = raw
        .query_row(
            &format!("SELECT chunk_offset FROM \"{rows}\" WHERE rowid = ?1"),
            [place],
            |row| row.get(0),
        )
        .unwrap();
    // One number of 384 with the bits of none.
    let at = offset * 384 * 4;
    let sql = format!(
        "UPDATE \"{chunks}\" SET vectors = CAST(substr(vectors, 1, {at}) || x'0000c07f'
            || substr(vectors, {at} + 5) AS BLOB)"
    );
    assert_eq!(raw.execute(&sql, []).unwrap(), 1);
    let verdict: String = raw
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// A home with three rows of each noun, of which the second cannot be read.
fn spoilt() -> Home {
    let home = Home::new();
    let daemon = home.up();
    for number in 1..=3 {
        let name = |noun: &str| format!("{noun}{number}");
        home.cli(&["remember", &name("k"), "kept here"]).ok();
        home.cli(&["state", "set", &name("s"), "kept here"]).ok();
        home.cli(&["vector", "store", &name("v"), "kept here"]).ok();
        let body = json!({"path": name("f"), "content_base64": "aGVyZQ=="});
        daemon.http.post("/v1/file/share", &body).expect(200);
    }
    daemon.stop();
    home.cli(&["doctor"]).ok();
    spoil(&home);
    home
}

const BAD: [&str; 4] = [
    "memory \"k2\"",
    "state \"s2\"",
    "file \"f2\"",
    "vector \"v2\"",
];

#[test]
fn rows_that_nobody_can_read_hold_up_no_list_are_named_and_taken_out_by_a_repair() {
    let home = spoilt();
    let looked = home.cli(&["doctor"]);
    assert_eq!(looked.code, 1, "{looked:?}");
    for bad in BAD {
        assert!(looked.stdout.contains(bad), "{bad}: {looked:?}");
    }
    let daemon = home.up();
    wait_until("the status to know of it", || {
        let status = daemon.http.get("/v1/status").expect(200);
        status["verdict"] == "degraded" && status["degraded"].to_string().contains("k2")
    });
    let lists: [(&[&str], &str, &str); 6] = [
        (&["recall"], "k3", BAD[0]),
        (&["recall", "--search", "kept"], "k3", BAD[0]),
        (&["state", "list"], "s3", BAD[1]),
        (&["vector", "search", "kept here"], "v3", BAD[3]),
        (&["advanced", "dump"], "v3", BAD[3]),
        (&["advanced", "export"], "v3", BAD[3]),
    ];
    for (call, there, bad) in lists {
        let ran = home.cli(call);
        // What is meant to be all there is says by its exit code, too, that it is not.
        let is_all = call[0] == "advanced";
        assert_eq!(ran.code, i32::from(is_all), "{call:?}: {ran:?}");
        assert!(ran.stdout.contains(there), "{call:?}: {ran:?}");
        let words = ran.stderr.replace('\\', "");
        assert!(words.contains("left out"), "{call:?}: {ran:?}");
        assert!(words.contains(bad), "{call:?}: {ran:?}");
    }
    // Twice the same: what a search holds in memory does not forget it.
    let again = home
        .cli(&["vector", "search", "kept here", "--json"])
        .json();
    assert_eq!(again["left_out"], json!(["vector \"v2\""]), "{again}");
    // Who asks for that very key is told so, and not that there is none.
    let asked = home.cli(&["recall", "k2"]);
    assert_eq!(asked.code, 1, "{asked:?}");
    assert!(asked.stderr.contains("k2"), "{asked:?}");
    // Writing it again mends it.
    home.cli(&["state", "set", "s2", "anew"]).ok();
    assert!(!home.cli(&["state", "list"]).ok().stderr.contains("s2"));
    daemon.stop();
    let mended = home.cli(&["doctor", "--repair"]);
    for bad in [BAD[0], BAD[2]] {
        let words = mended.stdout.replace('\\', "");
        assert!(words.contains(bad), "{bad}: {mended:?}");
    }
    home.cli(&["doctor"]).ok();
    let daemon = home.up();
    for call in [["advanced", "dump"], ["advanced", "export"]] {
        let ran = home.cli(&call).ok();
        assert!(!ran.stderr.contains("left out"), "{ran:?}");
        assert!(ran.stdout.contains("k3") && ran.stdout.contains("anew"));
        assert!(!ran.stdout.contains("\"k2\""), "{ran:?}");
    }
    home.cli(&["vector", "search", "kept here"]).ok();
    home.cli(&["doctor"]).ok();
    daemon.stop();
}

#[test]
fn a_publish_says_what_it_left_out() {
    let home = spoilt();
    let _daemon = home.up();
    let ran = home.cli(&["mesh", "publish"]).ok();
    let words = ran.stdout.replace('\\', "");
    assert!(words.contains("8 of 12 rows are at its broker"), "{ran:?}");
    for bad in BAD {
        assert!(words.contains(bad), "{bad}: {ran:?}");
    }
}

#[test]
fn a_backup_with_rows_that_nobody_can_read_is_not_called_whole() {
    let home = spoilt();
    let folder = home.path().parent().unwrap().to_owned();
    let back_up = |name: &str, json: bool| {
        let file = folder.join(name);
        let file = file.to_str().unwrap();
        let call: &[&str] = &["doctor", "--backup", file];
        if json {
            return home.cli(&[call, &["--json"]].concat());
        }
        home.cli(call)
    };
    let told = |ran: &Ran| {
        let words = ran.stdout.replace('\\', "");
        assert!(!words.contains("whole copy"), "{ran:?}");
        assert!(words.contains("4 rows cannot be read"), "{ran:?}");
        for bad in BAD {
            assert!(words.contains(bad), "{bad}: {ran:?}");
        }
        assert!(words.contains("heddle doctor --repair"), "{ran:?}");
    };
    told(&back_up("down.db", false).ok());
    let daemon = home.up();
    told(&back_up("up.db", false).ok());
    let made = back_up("json.db", true).ok().json();
    assert_eq!(made["unreadable"].as_array().unwrap().len(), 1, "{made}");
    daemon.stop();
    home.cli(&["doctor", "--repair"]).ok();
    let whole = back_up("whole.db", false).ok();
    assert!(whole.stdout.contains("is a whole copy"), "{whole:?}");
    let made = back_up("whole-json.db", true).ok().json();
    assert_eq!(made["unreadable"], json!([]), "{made}");
}

/// A key or an owner that is no text: SQLite finds nothing wrong with either.
#[test]
fn a_vector_whose_key_or_owner_is_damaged_holds_up_no_search_of_its_model() {
    let home = Home::new();
    let daemon = home.up();
    for number in 1..=4 {
        let key = format!("v{number}");
        home.cli(&["vector", "store", &key, "kept here"]).ok();
    }
    daemon.stop();
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    for sql in [
        "UPDATE vector_metadata SET key = CAST(x'7632ff' AS TEXT) WHERE key = 'v2'",
        "UPDATE vector_metadata SET peer = CAST(x'ff' AS TEXT) WHERE key = 'v3'",
    ] {
        assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
    }
    drop(raw);
    let daemon = home.up();
    let search = || {
        let found = home.cli(&["vector", "search", "kept here", "--json"]);
        let found = found.ok().json();
        let items = found["items"].as_array().unwrap().iter();
        let keys: Vec<String> = items.map(|item| item["key"].to_string()).collect();
        (keys, found["left_out"].clone())
    };
    let names = json!(["vector \"v2\u{fffd}\"", "vector \"v3\""]);
    // The second one finds what the first has read.
    for _ in 0..2 {
        assert_eq!(
            search(),
            (
                vec!["\"v1\"".to_owned(), "\"v4\"".to_owned()],
                names.clone()
            )
        );
    }
    let words = home.cli(&["vector", "search", "kept here"]).ok();
    assert!(words.stderr.contains("2 rows are left out"), "{words:?}");
    // What is written meanwhile is found beside them.
    home.cli(&["vector", "store", "v5", "kept here"]).ok();
    home.cli(&["vector", "store", "v3", "kept here"]).ok();
    let (keys, left_out) = search();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert_eq!(left_out, names);
    daemon.stop();
    home.cli(&["doctor", "--repair"]).ok();
    let daemon = home.up();
    let (keys, left_out) = search();
    assert_eq!((keys.len(), left_out), (4, Value::Null), "{keys:?}");
    daemon.stop();
}
