//! An older broker.db is put back by hand, and goes on before anybody comes back who has seen more: no message is lost, none
//! lands twice, and nobody is told of a delivery that was none.

use crate::support;

use std::path::PathBuf;

use serde_json::Value;
use support::{Home, wait_until, wait_until_within};

use crate::given_back::{AGREE, THERE, home_of, join, status};

const FILES: [&str; 3] = ["broker.db", "broker.db-wal", "broker.db-shm"];
const MARKS: &str = "broker.marks";

/// The broker of a home that is down, as it is.
fn copy(home: &Home) -> PathBuf {
    let folder = home.path().parent().unwrap().join("older");
    std::fs::create_dir(&folder).unwrap();
    for name in FILES {
        if home.path().join(name).exists() {
            std::fs::copy(home.path().join(name), folder.join(name)).unwrap();
        }
    }
    folder
}

fn put_back(home: &Home, folder: &std::path::Path) {
    for name in FILES {
        let _ = std::fs::remove_file(home.path().join(name));
        if folder.join(name).exists() {
            std::fs::copy(folder.join(name), home.path().join(name)).unwrap();
        }
    }
}

/// The texts in a mailbox of the shared mesh, sorted.
fn inbox(home: &Home, mesh: &str, agent: &str) -> Vec<String> {
    let answer = home.cli(&["--mesh", mesh, "inbox", "--agent", agent, "--json"]);
    let mut texts: Vec<String> = answer.json()["items"]
        .as_array()
        .map(|items| items.iter().map(|item| item["body"].to_string()).collect())
        .unwrap_or_default();
    texts.sort();
    texts
}

fn explain(home: &Home, id: &str) -> Value {
    home.cli(&["explain", id, "--json"]).json()
}

fn quoted(texts: &[&str]) -> Vec<String> {
    let mut quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    quoted.sort();
    quoted
}

/// `has_marks`: the broker's own, which tell it at once. Without them it is the guest who tells it.
fn goes_on(has_marks: bool) {
    let (alice, bob, carol) = (home_of("alice"), home_of("bob"), home_of("carol"));
    let up = [alice.up(), bob.up(), carol.up()];
    join(&alice, &bob);
    join(&alice, &carol);
    alice.cli(&["agent", "register", "pl"]).ok();
    bob.cli(&["--mesh", THERE, "agent", "register", "g1"]).ok();
    carol
        .cli(&["--mesh", THERE, "agent", "register", "c1"])
        .ok();
    let [alice_up, bob_up, carol_up] = up;
    carol_up.stop();
    alice_up.stop();
    let older = copy(&alice);
    let alice_up = alice.up();
    let from_bob = |to: &str, text: &str, wait: &str| {
        let args = ["--mesh", THERE, "send", to, text, "--agent", "g1"];
        bob.cli(&[&args[..], &["--id", text, wait]].concat()).ok();
    };
    for text in ["r1", "r2", "r3"] {
        from_bob("@bob/g1", text, "--wait=delivered");
    }
    // Told as committed, and lost with the file.
    from_bob("@carol/c1", "for-carol", "--wait=committed");
    bob_up.stop();
    alice_up.stop();
    assert!(alice.path().join(MARKS).exists());
    put_back(&alice, &older);
    if !has_marks {
        std::fs::remove_file(alice.path().join(MARKS)).unwrap();
    }
    let _alice_up = alice.up();
    let sent = ["s1", "s2", "s3", "s4", "s5", "s6"];
    for text in sent {
        let args = ["send", "@bob/g1", text, "--agent", "pl", "--id", text];
        alice.cli(&[&args[..], &["--wait=committed"]].concat()).ok();
    }
    let epoch = |id: &str| {
        let place = explain(&alice, id)["broker"]["history_id"].clone();
        let place = place.as_str().unwrap_or("1.0");
        place.split_once('.').unwrap().0.to_owned()
    };
    assert_eq!(epoch("s1") == "1", !has_marks, "who noticed it");
    let _bob_up = bob.up();
    let all = quoted(&[&["r1", "r2", "r3"], &sent[..]].concat());
    wait_until_within(AGREE, "everything, each once", || {
        inbox(&bob, THERE, "g1") == all
    });
    // Her own connection is made anew for it; until then her home tells what it knows.
    wait_until("its new place", || epoch("s1") != "1");
    for text in sent {
        wait_until("alice hears of it", || {
            explain(&alice, text)["deliveries"][0]["delivered_at"].is_string()
        });
    }
    let _carol_up = carol.up();
    wait_until_within(AGREE, "what was lost with the file", || {
        inbox(&carol, THERE, "c1") == quoted(&["for-carol"])
    });
    assert_eq!(inbox(&bob, THERE, "g1"), all);
    is_well(&[&alice, &bob, &carol]);
}

/// The host is the first.
fn is_well(homes: &[&Home]) {
    wait_until("nothing is open", || {
        homes.iter().all(|home| status(home)["verdict"] == "ok")
    });
    let alice = homes[0];
    let data = alice.path();
    let data = data.to_str().unwrap();
    let check = ["broker", "orphan-check", "--json", "--data", data];
    let orphans = alice.cli(&check).ok().json();
    assert_eq!(orphans["orphans"], serde_json::json!([]), "{orphans}");
}

#[test]
fn lf_16_a_broker_that_was_put_back_by_hand_knows_by_its_own_marks() {
    goes_on(true);
}

#[test]
fn lf_16_a_broker_that_was_put_back_by_hand_and_went_on_is_told_by_who_has_seen_more() {
    goes_on(false);
}
