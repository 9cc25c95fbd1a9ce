//! A migration that fails when a home starts: taken back whole, said with what to do, and nothing is lost.

use crate::support;

use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::json;
use support::Home;
use support::small_disk::SmallDisk;

fn version(connection: &Connection) -> u32 {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

#[test]
fn lf_35_a_migration_that_fails_is_taken_back_whole_and_the_way_on_is_said() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": "kept"});
    daemon.http.post("/v1/state/set", &body).expect(200);
    daemon.stop();
    let data = home.path().join("data.db");
    let raw = Connection::open(&data).unwrap();
    let newest = version(&raw);
    // As an older version would have left it, with a table in the way of the last step.
    raw.execute("DELETE FROM _migrations WHERE version = ?1", [newest])
        .unwrap();
    raw.pragma_update(None, "user_version", newest - 1).unwrap();
    drop(raw);

    let failed = home.try_up().err().expect("the start must fail");
    assert_ne!(failed.code, 0);
    let said = format!("{}{}", failed.stdout, failed.stderr);
    assert!(said.contains(&format!("migration {newest}")), "{said}");
    assert!(said.contains("as it was before"), "{said}");
    assert!(said.contains("heddle doctor"), "{said}");
    let status = home.cli(&["status"]).ok().stdout;
    let wanted = format!("data.db: migration {newest} ");
    assert!(
        status.contains(&wanted) && status.contains("cannot be taken"),
        "{status}"
    );
    assert!(status.contains("next: heddle doctor"), "{status}");
    assert!(
        !status.contains("ALTER") && !status.contains("CREATE"),
        "{status}"
    );
    let raw = Connection::open(&data).unwrap();
    assert_eq!(version(&raw), newest - 1, "the step is not there in part");
    let kept: String = raw
        .query_row("SELECT value FROM state_kv WHERE key = 'k'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(kept, "\"kept\"");
    drop(raw);

    let number = newest.to_string();
    let args = ["doctor", "--rollback-migration", &number, "--json"];
    let told = home.cli(&args).ok().json();
    assert_eq!(told["rolled_back"], json!(true));
    assert_eq!(told["version"], json!(newest - 1));
    // One that much builds on is not undone, and the answer says what to do instead.
    let refused = home.cli(&["doctor", "--rollback-migration", "1"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(
        refused.stderr.contains("heddle daemon restore"),
        "{refused:?}"
    );
    assert_eq!(
        home.cli(&["doctor", "--rollback-migration", "9999"]).code,
        4
    );
    assert_eq!(home.cli(&["doctor", "--rollback-migration", "x"]).code, 2);

    // What was in the way is gone: the next start goes on, with everything that was there.
    let raw = Connection::open(&data).unwrap();
    raw.execute(
        "INSERT INTO _migrations (version, name) VALUES (?1, 'mended')",
        [newest],
    )
    .unwrap();
    raw.pragma_update(None, "user_version", newest).unwrap();
    drop(raw);
    let daemon = home.up();
    let state = daemon.http.get("/v1/state/get?key=k").expect(200);
    assert_eq!(state["value"], "kept");
}

/// The step is out of the file and what was written stays; the same Heddle takes it again and goes on.
#[test]
fn lf_35_the_newest_step_is_undone_in_place_with_the_daemon_down_and_taken_again_by_a_start() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": "kept"});
    daemon.http.post("/v1/state/set", &body).expect(200);
    let data = home.path().join("data.db");
    let newest = version(&Connection::open(&data).unwrap());
    let number = newest.to_string();
    let undo = ["doctor", "--rollback-migration", &number, "--json"];
    let held = home.cli(&undo);
    assert_eq!(held.code, 3, "a daemon has the file: {held:?}");
    assert_eq!(version(&Connection::open(&data).unwrap()), newest);
    daemon.stop();
    let told = home.cli(&undo);
    if told.code == 6 {
        // The newest step of all has no way back in place: then it says which way there is.
        assert!(told.stderr.contains("heddle daemon restore"), "{told:?}");
        return;
    }
    let told = told.ok().json();
    assert_eq!(
        (&told["rolled_back"], &told["undone"], &told["version"]),
        (&json!(true), &json!(true), &json!(newest - 1))
    );
    let raw = Connection::open(&data).unwrap();
    assert_eq!(version(&raw), newest - 1);
    let noted: u32 = raw
        .query_row("SELECT max(version) FROM _migrations", [], |row| row.get(0))
        .unwrap();
    assert_eq!(noted, newest - 1);
    drop(raw);
    // Again: there is nothing of it any more.
    let told = home.cli(&undo).ok().json();
    assert_eq!(told["version"], json!(newest - 1));
    assert!(told["undone"].is_null());
    home.cli(&["doctor"]).ok();
    let daemon = home.up();
    let state = daemon.http.get("/v1/state/get?key=k").expect(200);
    assert_eq!(state["value"], "kept");
    drop(daemon);
    assert_eq!(version(&Connection::open(&data).unwrap()), newest);
}

/// A new home as the Heddle of before the newest step has left it, and the number of that step.
fn one_step_back(home: &Home) -> (PathBuf, u32) {
    home.up().stop();
    let data = home.path().join("data.db");
    let newest = version(&Connection::open(&data).unwrap());
    let number = newest.to_string();
    home.cli(&["doctor", "--rollback-migration", &number]).ok();
    (data, newest)
}

/// Undoes the newest steps while that can be done; the version then, and what the refusal said.
fn undone_as_far_as_it_goes(home: &Home) -> (u32, String) {
    let data = home.path().join("data.db");
    loop {
        let version = version(&Connection::open(&data).unwrap());
        let number = version.to_string();
        let undone = home.cli(&["doctor", "--rollback-migration", &number]);
        if undone.code == 0 {
            continue;
        }
        assert_eq!(undone.code, 6, "{undone:?}");
        return (version, undone.stderr);
    }
}

/// Every start that takes steps keeps the file of before beside it; a step that cannot be undone names that file.
#[test]
fn lf_35_a_start_that_takes_steps_keeps_the_file_of_before_and_the_refusal_names_it() {
    let home = Home::new();
    let daemon = home.up();
    let newest = version(&Connection::open(home.path().join("data.db")).unwrap());
    let set = |daemon: &support::Daemon, value: &str| {
        let body = json!({"key": "k", "value": value});
        daemon.http.post("/v1/state/set", &body).expect(200);
    };
    set(&daemon, "first");
    daemon.stop();
    let (reached, said) = undone_as_far_as_it_goes(&home);
    assert!(reached < newest && reached > 1, "{reached}: {said}");
    assert!(said.contains("heddle daemon restore FILE"), "{said}");
    let copy = home
        .path()
        .join(format!("data.db.before-migration-{}", reached + 1));
    assert!(!copy.exists());
    for value in ["second", "third"] {
        let daemon = home.up();
        let before: (u32, String) = {
            let kept = Connection::open(&copy).unwrap();
            let sql = "SELECT value FROM state_kv WHERE key = 'k'";
            let value = kept.query_row(sql, [], |row| row.get(0)).unwrap();
            (version(&kept), value)
        };
        let expected = if value == "second" { "first" } else { "second" };
        assert_eq!(before, (reached, format!("\"{expected}\"")));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&copy).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        set(&daemon, value);
        daemon.stop();
        assert_eq!(undone_as_far_as_it_goes(&home).0, reached);
    }
    // A copy from before the very step is named, with who has to take it.
    let older = home.path().join("data.db.before-migration-2");
    std::fs::copy(&copy, &older).unwrap();
    let (_, said) = undone_as_far_as_it_goes(&home);
    let named = format!("heddle daemon restore {}", older.display());
    assert!(said.contains(&named), "{said}");
    assert!(said.contains("Heddle of before"), "{said}");
}

/// A file of which this program knows that no start goes on with it is not called well, and there is a way on.
#[test]
fn lf_35_a_step_that_is_refused_is_told_by_all_who_are_asked_and_a_repair_leads_on() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"key": "k", "value": "kept"});
    daemon.http.post("/v1/state/set", &body).expect(200);
    daemon.stop();
    let (reached, _) = undone_as_far_as_it_goes(&home);
    let data = home.path().join("data.db");
    let stray = "CREATE TABLE vector_digest (x)";
    Connection::open(&data).unwrap().execute(stray, []).unwrap();
    for call in [&["up"][..], &["up", "--detach"]] {
        let failed = home.cli(call);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(failed.stderr.contains("nothing was changed"), "{failed:?}");
        assert!(
            failed.stderr.contains(&format!("(version {reached})")),
            "{failed:?}"
        );
        assert!(
            failed.stderr.contains("next: `heddle doctor`"),
            "{failed:?}"
        );
        // The steps before the one that failed went with it: the Heddle of before reads the file.
        assert_eq!(version(&Connection::open(&data).unwrap()), reached);
        let copies = std::fs::read_dir(home.path()).unwrap();
        let copies = copies.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("before-migration")
        });
        assert_eq!(copies.count(), 0);
    }
    let told = home.cli(&["doctor"]);
    assert_eq!(told.code, 1, "{told:?}");
    for words in [
        "(vector_digest) cannot be taken: ",
        "already exists",
        "heddle doctor --repair",
        &format!("heddle doctor --rollback-migration {reached}"),
    ] {
        assert!(told.stdout.contains(words), "{words}: {told:?}");
    }
    let mended = home.cli(&["doctor", "--repair"]).ok();
    assert!(mended.stdout.contains("vector_digest"), "{mended:?}");
    home.cli(&["doctor"]).ok();
    let status = home.cli(&["status"]).ok().stdout;
    assert!(status.contains("next: heddle up"), "{status}");
    let daemon = home.up();
    let state = daemon.http.get("/v1/state/get?key=k").expect(200);
    assert_eq!(state["value"], "kept");
    let status = home.cli(&["status"]).ok().stdout;
    assert!(!status.contains("note"), "nothing was cut off: {status}");
    daemon.stop();
}

/// To whoever asks, and in the log.
#[test]
fn a_start_says_that_it_took_steps_and_that_the_session_before_it_was_cut_off() {
    let home = Home::new();
    home.up().stop();
    let (reached, _) = undone_as_far_as_it_goes(&home);
    let told = home.cli(&["doctor"]).ok();
    let wanted = format!("data.db is at version {reached} of ");
    assert!(told.stdout.contains(&wanted), "{told:?}");
    let daemon = home.up();
    let copy = home
        .path()
        .join(format!("data.db.before-migration-{}", reached + 1));
    let status = home.cli(&["status"]).ok().stdout;
    let wanted = format!("data.db from version {reached} of its schema to ");
    for words in [wanted.as_str(), &copy.display().to_string()] {
        assert!(status.contains(words), "{words}: {status}");
    }
    let log = home.cli(&["logs"]).ok().stdout;
    assert!(log.contains("the schema was brought up to date"), "{log}");
    daemon.kill();
    let daemon = home.up();
    let status = home.cli(&["status"]).ok().stdout;
    assert!(
        status.contains("the last session did not end in order"),
        "{status}"
    );
    assert!(!status.contains("of its schema to"), "{status}");
    daemon.stop();
    let told = home.cli(&["up", "--detach"]).ok().stdout;
    assert!(!told.contains("note: "), "{told}");
    home.cli(&["down"]).ok();
    undone_as_far_as_it_goes(&home);
    let told = home.cli(&["up", "--detach"]).ok().stdout;
    assert!(
        told.contains(&format!("note: this start brought {wanted}")),
        "{told}"
    );
    home.cli(&["down"]).ok();
}

/// Whoever starts and whoever looks name the same disk, and the same room that it lacks.
#[test]
fn a_disk_without_room_for_a_migration_is_told_by_start_status_and_doctor_in_the_same_words() {
    let home = Home::new();
    let disk = SmallDisk::over(&home.path(), 16);
    let (data, newest) = one_step_back(&home);
    disk.fill();
    for spare in [100 << 10, 300 << 10] {
        disk.give_back(spare);
        let failed = home.cli(&["up", "--detach"]);
        assert_eq!(failed.code, 1, "{failed:?}");
        let (_, needed) = failed.stderr.split_once("a start may need ").unwrap();
        let needed = needed.split(" for steps").next().unwrap();
        assert!(
            needed.contains(" MB, ") && needed.ends_with("of it"),
            "{failed:?}"
        );
        for call in ["status", "doctor", "up"] {
            let ran = home.cli(&[call]);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(said.contains(needed), "{call}, {needed}: {said}");
        }
        assert_eq!(version(&Connection::open(&data).unwrap()), newest - 1);
    }
    disk.free();
    assert!(
        home.cli(&["status"])
            .ok()
            .stdout
            .contains("next: heddle up")
    );
    home.up().stop();
    assert_eq!(version(&Connection::open(&data).unwrap()), newest);
}

#[test]
fn lf_35_without_room_for_the_copy_no_step_is_taken() {
    let home = Home::new();
    let (data, newest) = one_step_back(&home);
    // Something is in the way of the copy, and cannot be removed.
    let draft = format!("data.db.before-migration-{newest}.part");
    let draft = home.path().join(draft);
    std::fs::create_dir(&draft).unwrap();
    let failed = home.try_up().err().expect("the start must fail");
    let said = format!("{}{}", failed.stdout, failed.stderr);
    assert!(said.contains("wait for a copy"), "{said}");
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(version(&Connection::open(&data).unwrap()), newest - 1);
    std::fs::remove_dir(&draft).unwrap();
    home.up().stop();
    assert_eq!(version(&Connection::open(&data).unwrap()), newest);
}

/// The file is not as it was before, whatever kept the start from getting through: the way back is named.
#[test]
fn a_start_that_fails_behind_its_migrations_names_the_copy() {
    let home = Home::new();
    let (data, newest) = one_step_back(&home);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    home.config(&format!("[daemon]\nhttp_port = {port}\n"));
    let copy = home
        .path()
        .join(format!("data.db.before-migration-{newest}"));
    let wanted = format!("for the one of before it is kept as {}", copy.display());
    for call in [&["up", "--detach"][..], &["up"]] {
        let failed = home.cli(call);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(failed.stderr.contains("http_port"), "{failed:?}");
        // The next start takes none.
        let is_first = call.len() == 2;
        assert_eq!(failed.stderr.contains(&wanted), is_first, "{failed:?}");
        assert_eq!(version(&Connection::open(&data).unwrap()), newest);
    }
}
