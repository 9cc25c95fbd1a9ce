//! A broker is put back from an older copy together with homes: what its log has lost is sent again by the homes that
//! made it, told where only others have it, and given back by hand; in the end all hold the same bytes.

use crate::support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::{Home, wait_until, wait_until_within};

pub(crate) const AGREE: Duration = Duration::from_secs(120);
pub(crate) const THERE: &str = "alice-home";

pub(crate) fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn beside(home: &Home, name: &str) -> PathBuf {
    home.path().parent().unwrap().join(name)
}

pub(crate) fn join(host: &Home, guest: &Home) {
    let answer = host.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = answer["link"].as_str().unwrap();
    guest.cli_told(&["mesh", "join", "-", "--json"], link).ok();
}

fn dump(home: &Home, mesh: &str) -> String {
    home.cli(&["--mesh", mesh, "advanced", "dump"]).stdout
}

fn agree(what: &str, host: &Home, guest: &Home, key: &str) {
    wait_until_within(AGREE, what, || {
        let (here, there) = (dump(host, "home"), dump(guest, THERE));
        here == there && here.contains(key)
    });
}

fn back_up(home: &Home) -> PathBuf {
    let file = beside(home, "copy.db");
    home.cli(&["doctor", "--backup", file.to_str().unwrap()])
        .ok();
    file
}

fn restore(home: &Home, file: &Path, more: &[&str]) {
    let mut args = vec!["daemon", "restore", file.to_str().unwrap()];
    args.extend(more);
    home.cli(&args).ok();
}

pub(crate) fn status(home: &Home) -> Value {
    home.cli(&["status", "--json"]).json()
}

/// The home itself says so, and where the rest is: its broker was put back as well.
fn says_that_it_was_put_back(home: &Home) {
    let notes = status(home)["notes"].to_string();
    for words in [
        "this home was put back at",
        "no change that it had made since has come back",
        "heddle mesh take-back FILE",
    ] {
        assert!(notes.contains(words), "{notes}");
    }
}

#[test]
fn lf_16_what_a_restored_host_had_made_is_told_where_it_is_and_given_back() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, _bob_up) = (alice.up(), bob.up());
    alice.cli(&["state", "set", "before", "1"]).ok();
    join(&alice, &bob);
    agree("the first agreement", &alice, &bob, "\"before\"");
    let copy = back_up(&alice);
    for number in 0..5 {
        let (here, there) = (format!("a{number}"), format!("b{number}"));
        alice.cli(&["state", "set", &here, "1"]).ok();
        bob.cli(&["--mesh", THERE, "state", "set", &there, "1"])
            .ok();
    }
    alice.cli(&["state", "delete", "a4"]).ok();
    let added = alice.cli(&["task", "add", "since", "--json"]).ok().json();
    let task = added["task"]["id"].as_str().unwrap().to_owned();
    alice.cli(&["task", "claim", &task]).ok();
    agree("everything of since", &alice, &bob, "since");
    let whole = dump(&bob, THERE);
    alice_up.stop();
    std::fs::remove_dir_all(alice.path()).unwrap();
    restore(&alice, &copy, &[]);

    let _alice_up = alice.up();
    wait_until("what bob had made", || {
        dump(&alice, "home").contains("\"b4\"")
    });
    says_that_it_was_put_back(&alice);
    // Only bob has what alice had made, and says so: four values, a mark, and two steps of a task.
    wait_until("bob to tell it", || {
        status(&bob)["degraded"]
            .to_string()
            .contains("7 changes that others made")
    });
    assert_eq!(dump(&bob, THERE), whole);
    assert!(!dump(&alice, "home").contains("\"a0\""));
    let doctor = bob.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.stdout.contains("heddle mesh take-back FILE"));
    let file = beside(&bob, "kept.jsonl");
    let path = file.to_str().unwrap();
    let given = bob.cli(&[
        "--mesh",
        THERE,
        "mesh",
        "give-back",
        "--out",
        path,
        "--json",
    ]);
    assert_eq!(given.ok().json()["count"], 7);
    // A file that is there is not replaced, and bob takes nothing that is not his.
    let again = bob.cli(&["--mesh", THERE, "mesh", "give-back", "--out", path]);
    assert_ne!(again.code, 0);
    let not_his = bob.cli(&["mesh", "take-back", path, "--json"]).ok().json();
    assert_eq!(not_his["taken"], 0, "{not_his}");
    assert_eq!(not_his["of_others"], 7, "{not_his}");

    let taken = alice.cli(&["mesh", "take-back", path, "--json"]);
    let taken = taken.ok().json();
    assert_eq!(taken["taken"], 7, "{taken}");
    agree("the bytes of before", &alice, &bob, "\"a0\"");
    assert_eq!(dump(&alice, "home"), whole, "no stamp has changed");
    let twice = alice.cli(&["mesh", "take-back", path, "--json"]).ok();
    assert_eq!(twice.json()["taken"], 0, "the same file again is known");
    wait_until("all is well", || {
        [&alice, &bob]
            .iter()
            .all(|home| status(home)["degraded"] == json!([]))
    });
    let carol = home_of("carol");
    let _carol_up = carol.up();
    join(&alice, &carol);
    agree("whoever joins gets all of it", &alice, &carol, "\"a0\"");
}

#[test]
fn lf_16_own_changes_whose_ops_are_gone_with_the_older_file_are_sent_again() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, bob_up) = (alice.up(), bob.up());
    alice.cli(&["state", "set", "before", "1"]).ok();
    join(&alice, &bob);
    agree("the first agreement", &alice, &bob, "\"before\"");
    let copies = (back_up(&alice), back_up(&bob));
    for number in 0..5 {
        let (here, there) = (format!("a{number}"), format!("b{number}"));
        alice.cli(&["remember", &here, "1"]).ok();
        bob.cli(&["--mesh", THERE, "state", "set", &there, "1"])
            .ok();
    }
    agree("everything of since", &alice, &bob, "\"b4\"");
    let whole = dump(&alice, "home");
    alice_up.stop();
    bob_up.stop();
    restore(&alice, &copies.0, &[]);
    restore(&bob, &copies.1, &[]);
    let (alice_up, _bob_up) = (alice.up(), bob.up());
    agree("all of it from the log", &alice, &bob, "\"b4\"");
    assert_eq!(dump(&alice, "home"), whole);
    alice_up.stop();
    restore(&alice, &copies.0, &["--only", "broker"]);

    let _alice_up = alice.up();
    let carol = home_of("carol");
    let _carol_up = carol.up();
    join(&alice, &carol);
    wait_until_within(AGREE, "whoever joins gets all of it", || {
        dump(&carol, THERE) == whole
    });
    assert_eq!(dump(&bob, THERE), whole);
    wait_until("all is well", || {
        [&alice, &bob]
            .iter()
            .all(|home| status(home)["degraded"] == json!([]))
    });
}

/// Mail between agents of a guest, which the host never sees: nothing here tells it that its file is an older one.
#[test]
fn lf_16_a_broker_that_is_put_back_gives_no_place_out_twice_before_others_come_back() {
    for more in [&["--only", "broker"][..], &[]] {
        let (alice, bob) = (home_of("alice"), home_of("bob"));
        let (alice_up, bob_up) = (alice.up(), bob.up());
        join(&alice, &bob);
        bob.cli(&["--mesh", THERE, "agent", "register", "g1"]).ok();
        alice.cli(&["agent", "register", "pl"]).ok();
        let to_bob = |text: &str| {
            let args = ["--mesh", THERE, "send", "@bob/g1", text, "--agent", "g1"];
            bob.cli(&[&args[..], &["--id", text, "--wait=delivered"]].concat())
                .ok();
        };
        to_bob("before");
        let copy = back_up(&alice);
        ["r1", "r2", "r3"].into_iter().for_each(to_bob);
        bob_up.stop();
        alice_up.stop();
        // Twice: what began after the first must not begin again after the second.
        for round in ["s1", "s2"] {
            restore(&alice, &copy, more);
            let alice_up = alice.up();
            alice
                .cli(&["send", "@bob/g1", round, "--agent", "pl", "--id", round])
                .ok();
            let status = ["send", "@bob/g1", round, "--agent", "pl", "--id", round];
            wait_until("the broker has it", || {
                alice.cli(&[&status[..], &["--json"]].concat()).json()["duplicate"] == true
            });
            let bob_up = bob.up();
            wait_until_within(AGREE, "everything, and the new one", || {
                let inbox = ["--mesh", THERE, "inbox", "--agent", "g1", "--json"];
                let inbox = bob.cli(&inbox).json();
                let items = inbox["items"].as_array().cloned().unwrap_or_default();
                let has = |text| items.iter().filter(|item| item["body"] == text).count() == 1;
                ["before", "r1", "r2", "r3", round].into_iter().all(has)
            });
            bob_up.stop();
            alice_up.stop();
        }
    }
}

#[test]
fn files_that_are_no_kept_changes_are_refused_in_words() {
    let alice = home_of("alice");
    let _up = alice.up();
    let file = beside(&alice, "bad.jsonl");
    let head =
        json!({"format": "heddle.kept.v1", "mesh": "m", "mesh_id": "01J0000000000000000000000Z"});
    for (bytes, code) in [
        (b"".to_vec(), 2),
        (b"\xff\n".to_vec(), 2),
        (b"{}\n".to_vec(), 2),
        (vec![b'x'; 2 << 20], 2),
        (format!("{head}\nnot an op\n").into_bytes(), 4),
    ] {
        std::fs::write(&file, &bytes).unwrap();
        let ran = alice.cli(&["mesh", "take-back", file.to_str().unwrap()]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains("next:"), "{ran:?}");
    }
    let given = alice.cli(&["mesh", "give-back"]).ok();
    assert_eq!(given.stdout.lines().count(), 1, "nothing but its head");
}

/// The home of a guest goes back; the log of the mesh has what it had made since.
#[test]
fn lf_16_a_home_that_was_put_back_says_so_and_what_the_log_has_given_back() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (_alice_up, bob_up) = (alice.up(), bob.up());
    join(&alice, &bob);
    bob.cli(&["--mesh", THERE, "state", "set", "before", "1"])
        .ok();
    agree("the first agreement", &alice, &bob, "\"before\"");
    let notes = status(&bob)["notes"].to_string();
    assert!(!notes.contains("put back"), "{notes}");
    let copy = back_up(&bob);
    for number in 0..3 {
        let key = format!("since{number}");
        bob.cli(&["--mesh", THERE, "state", "set", &key, "1"]).ok();
    }
    agree("everything of since", &alice, &bob, "\"since2\"");
    bob_up.stop();
    restore(&bob, &copy, &[]);
    let doctor = bob.cli(&["doctor"]).ok();
    assert!(
        doctor.stdout.contains("this home was put back at"),
        "{doctor:?}"
    );
    let _bob_up = bob.up();
    // What it makes from now on is not among it.
    bob.cli(&["--mesh", THERE, "state", "set", "anew", "1"])
        .ok();
    wait_until("what the log gives back", || {
        let notes = status(&bob)["notes"].to_string();
        notes.contains(&format!(
            "3 changes that it had made since have come back from the log of mesh {THERE}"
        ))
    });
    agree("all of it", &alice, &bob, "\"anew\"");
    let told = bob.cli(&["status"]);
    assert!(
        told.stdout.contains("3 changes that it had made since"),
        "{told:?}"
    );
    assert!(told.stdout.contains("before-restore-"), "{told:?}");
    let doctor = bob.cli(&["doctor"]);
    assert!(
        doctor.stdout.contains("3 changes that it had made since"),
        "{doctor:?}"
    );
}

/// Not by the verb: somebody copies an older data.db over the present one.
#[test]
fn lf_16_an_older_data_db_that_was_copied_over_is_noticed_and_told() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (_alice_up, bob_up) = (alice.up(), bob.up());
    join(&alice, &bob);
    let set = |key: &str, value: &str| {
        bob.cli(&["--mesh", THERE, "state", "set", key, value]).ok();
    };
    set("before", "1");
    agree("the first agreement", &alice, &bob, "\"before\"");
    bob_up.stop();
    let (file, older) = (bob.path().join("data.db"), beside(&bob, "older.db"));
    std::fs::copy(&file, &older).unwrap();
    let bob_up = bob.up();
    for number in 0..4 {
        set(&format!("since{number}"), "1");
    }
    agree("everything of since", &alice, &bob, "\"since3\"");
    let notes = status(&bob)["notes"].to_string();
    assert!(!notes.contains("does not know all"), "{notes}");
    bob_up.stop();
    for name in ["data.db-wal", "data.db-shm"] {
        let _ = std::fs::remove_file(bob.path().join(name));
    }
    std::fs::copy(&older, &file).unwrap();
    let _bob_up = bob.up();
    wait_until("what the log gives back", || {
        let notes = status(&bob)["notes"].to_string();
        notes.contains("data.db does not know all that this home has made")
            && notes.contains(&format!(
                "4 changes that it had made since have come back from the log of mesh {THERE}"
            ))
    });
    let doctor = bob.cli(&["doctor"]);
    assert!(doctor.stdout.contains("does not know all"), "{doctor:?}");
    agree("all of it", &alice, &bob, "\"since3\"");
    // LF-02: whatever it stamps from now on, it has not stamped before.
    let anew = bob.cli(&["--mesh", THERE, "state", "set", "anew", "1", "--json"]);
    assert_eq!(anew.ok().json()["stamp"]["incarnation"], 2);
    agree("what is new", &alice, &bob, "\"anew\"");
}

#[test]
fn a_file_that_is_there_already_is_no_place_for_a_give_back_as_for_every_verb_that_writes_one() {
    let home = Home::new();
    let _daemon = home.up();
    let file = home.path().join("kept");
    std::fs::write(&file, "mine").unwrap();
    let given = home.cli(&["mesh", "give-back", "--out", file.to_str().unwrap()]);
    assert_eq!(given.code, 3, "{given:?}");
    assert!(given.stderr.contains("is there already"), "{given:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// What is missing may have come by itself since the status has told of it.
#[test]
fn with_nothing_to_give_back_nothing_is_written() {
    let home = home_of("alice");
    let daemon = home.up();
    let file = beside(&home, "kept.jsonl");
    for more in [&["--out", file.to_str().unwrap()][..], &[]] {
        let args = [&["mesh", "give-back"], more].concat();
        let said = home.cli(&args).ok().stdout;
        assert!(said.starts_with("nothing to give back"), "{said}");
        assert!(!said.contains("take-back"), "{said}");
    }
    assert!(!file.exists());
    daemon.stop();
}
