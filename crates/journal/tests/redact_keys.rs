//! Redaction and the ids of requests: an id that says what is erased goes with it, and nothing that is kept gives it away.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::disk::{Disk, MemDisk};
use serde_json::json;
use sha2::Digest;
use support::power::item;
use support::*;

const CANARY: &str = "CANARY-7f3a9c-tel-4915112345678";

fn holding(disk: &MemDisk, text: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter();
    let held = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains(text));
    held.map(|(path, _)| path).collect()
}

/// RD-01: the id of a request that says what is erased goes too; any other id stays taken.
#[test]
fn rd_01_an_id_that_holds_the_content_is_erased_with_it() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let note = |id: &str, text: &str| {
        // One of them in a blob.
        let body = "y".repeat(if id == "b" { 70_000 } else { 1 });
        put("plan", id, json!({"note": text, "body": body}))
    };
    for (id, key) in [
        ("s", format!("key-{CANARY}")),
        ("b", format!("blob-{CANARY}")),
        ("t", "k1".to_owned()),
    ] {
        let committed = journal.mutate_once(note(id, CANARY), &key).unwrap();
        committed.finish().unwrap();
        let told = journal.redact(&item("plan", id), "asked for").unwrap();
        assert_eq!(told.left.leftovers, [""; 0], "{id}");
    }
    assert_eq!(holding(&disk, CANARY), Vec::<PathBuf>::new());
    // Also one that is too short to be looked for elsewhere.
    for (id, key) in [("p", "pin4711"), ("q", "set-pin4711-1")] {
        let committed = journal.mutate_once(note(id, "pin4711"), key).unwrap();
        committed.finish().unwrap();
        journal.redact(&item("plan", id), "asked for").unwrap();
    }
    assert_eq!(holding(&disk, "pin4711"), Vec::<PathBuf>::new());
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    let refused = journal.mutate_once(note("t", "another"), "k1");
    assert!(refused.is_err(), "k1 stays taken");
    let key = format!("key-{CANARY}");
    let again = journal.mutate_once(note("u", "another"), &key).unwrap();
    assert!(!again.receipts()[0].duplicate);
}

/// RD-01: the id of one record says what another one of the item holds.
#[test]
fn rd_01_an_id_that_holds_what_another_record_says_is_erased_too() {
    const SECRET: &str = "Hunter2-Topsecret-XYZ";
    let disk = MemDisk::new();
    let journal = init(&disk);
    let key = |what: &str| format!("{what} {SECRET}");
    let once = |change, key: &str| {
        let committed = journal.mutate_once(change, key).unwrap();
        committed.finish().unwrap();
    };
    // An item that was erased before: its id said nothing of it then.
    once(put("plan", "e", json!({"a": "nothing"})), &key("early"));
    journal.redact(&item("plan", "e"), "asked for").unwrap();
    once(put("plan", "s", json!({"a": "b"})), &key("set"));
    once(put("plan", "s", json!({"a": "b"})), &key("the same"));
    once(put("plan", "s", json!({"k": SECRET})), "k1");
    once(delete("plan", "s"), &key("away with"));
    journal.checkpoint().unwrap();
    let told = journal.redact(&item("plan", "s"), "leak").unwrap();
    assert_eq!(told.left.leftovers, [""; 0]);
    assert_eq!(holding(&disk, "Hunter2"), Vec::<PathBuf>::new());
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert!(journal.mutate_once(plan("t", 1), "k1").is_err(), "taken");
}

/// What the store keeps of an id in the table of requests.
fn digest(id: &str) -> Vec<u8> {
    let mut hasher = sha2::Sha256::new();
    hasher.update(b"#request\0");
    hasher.update(id.as_bytes());
    let mut key = hasher.finalize()[..16].to_vec();
    key[15] |= 1;
    key
}

fn keeps(disk: &MemDisk, id: &str) -> bool {
    let key = digest(id);
    let mut files = disk.files().into_values();
    files.any(|bytes| bytes.windows(key.len()).any(|piece| piece == key))
}

/// Documented (FORMAT, Redaction): whoever keeps a digest of an id keeps what a short secret in it can be guessed from, so nothing is kept, and
/// the id is free. The answer says how many. An id that says nothing of the content stays taken.
#[test]
fn rd_01_nothing_is_left_of_an_erased_id_to_guess_it_from_and_it_is_free_again() {
    for is_cut in [false, true] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        let once = |change, key: &str| {
            let committed = journal.mutate_once(change, key).unwrap();
            let receipt = committed.receipts()[0].clone();
            committed.finish().unwrap();
            receipt
        };
        let (secret, plain) = ("set pin 4711-0815", "k1");
        let document = json!({"pin": "4711-0815"});
        once(put("plan", "s", document.clone()), secret);
        once(put("plan", "t", json!({"pin": "4711-0815"})), plain);
        // The table is level with both.
        once(plan("a", 1), "k2");
        assert!(keeps(&disk, secret) && keeps(&disk, plain));
        if is_cut {
            let path = Path::new(ROOT).join("events/redact.json");
            let image = disk.fork();
            let mut stop = 1;
            // The machine stops at every operation, and whoever comes next ends it.
            loop {
                let cut = image.fork();
                cut.fault_at(cut.ops() + stop, heddle_journal::disk::Fault::Stop);
                let target = item("plan", "s");
                let ended = open(&cut, 1, 8).unwrap().redact(&target, "asked for");
                let after = cut.crash(&heddle_journal::disk::Crash::Process);
                let had_begun = after.files().contains_key(&path);
                open(&after, 1, 9)
                    .unwrap()
                    .redact(&target, "asked for")
                    .unwrap();
                assert!(
                    !keeps(&after, secret),
                    "stopped at {stop}, begun: {had_begun}"
                );
                if ended.is_ok() {
                    break;
                }
                stop += 1;
            }
            continue;
        }
        let told = journal.redact(&item("plan", "s"), "asked for").unwrap();
        assert_eq!(told.keys, 1, "{told:?}");
        assert!(!keeps(&disk, secret), "a digest of it is left");
        let again = once(put("plan", "u", document), secret);
        assert!(!again.duplicate, "nothing is left to know it by");
        // The other one keeps its id although its content goes, and stays taken.
        let told = journal.redact(&item("plan", "t"), "asked for").unwrap();
        assert_eq!(told.keys, 0, "{told:?}");
        assert!(journal.mutate_once(plan("v", 1), plain).is_err(), "taken");
        assert!(once(plan("a", 1), "k2").duplicate);
    }
}

/// A5: the name of a field is content as well, unless a type has it or others use it.
#[test]
fn rd_01_names_of_fields_are_searched_for_where_nobody_else_has_such_a_field() {
    for secret in [
        "sk_live_51HqLyjWDarjtT1zdp7dcXYZ",
        "AKIA-SECRET-KEY-0001",
        "customer_mueller_berlin",
        "4111111111111111",
        "verysecretidentifier",
    ] {
        for body in [1, 70_000] {
            let disk = MemDisk::new();
            let journal = init(&disk);
            let body = "y".repeat(body);
            let document = json!({"title": "tt tt tt", "assigned_to": 1, "tokens": {secret: body}});
            commit(&journal, vec![put("plan", "k", document)]);
            let other = json!({"title": "tt", "inside": [{"assigned_to": 2}]});
            commit(&journal, vec![put("plan", "other", other)]);
            journal.checkpoint().unwrap();
            let leak = Path::new(ROOT).join("leak.txt");
            disk.write(&leak, secret.as_bytes()).unwrap();
            // Of a type, of others, and of the format.
            let plain = Path::new(ROOT).join("plain.txt");
            let words = b"last_viewed_at assigned_to schema_version item_type entity_rev";
            disk.write(&plain, words).unwrap();
            let told = journal.redact(&item("plan", "k"), "leak").unwrap();
            assert_eq!(told.left.leftovers, [leak.display().to_string()]);
            assert_eq!(told.also_in, [""; 0], "{secret}");
            assert_eq!(holding(&disk, secret), [leak]);
        }
    }
}
