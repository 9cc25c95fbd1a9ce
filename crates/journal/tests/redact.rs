//! RD-01…RD-06: after a redaction nothing of the store yields the bytes, and nothing else changed.
#![cfg(test)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::{Journal, JournalError, Target};
use serde_json::{Value, json};
use support::power::{item, small};
use support::*;

const CANARY: &str = "CANARY-7f3a9c-tel-4915112345678";

/// A store with the canary in every kind of place.
fn store() -> (MemDisk, Journal) {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 900);
    for n in 0..4 {
        let mut change = put("plan", "s", json!({"note": CANARY, "n": n}));
        change.summary = Some(format!("about {CANARY}"));
        commit(&journal, vec![change, plan("a", n)]);
    }
    let large = json!({"note": CANARY, "text": "y".repeat(70_000)});
    commit(&journal, vec![put("plan", "s", large)]);
    for n in 4..8 {
        commit(&journal, vec![plan("a", n)]);
        journal.checkpoint().unwrap();
    }
    journal.gc().unwrap();
    commit(
        &journal,
        vec![put("plan", "s", json!({"note": CANARY, "n": 9}))],
    );
    (disk, journal)
}

fn records(journal: &Journal) -> BTreeMap<(u64, String), Value> {
    let log = journal.log(0, usize::MAX).unwrap();
    let all = log.iter().map(|line| {
        let value: Value = serde_json::from_str(line.get()).unwrap();
        let id = (
            value["seq"].as_u64().unwrap(),
            value["writer"].as_str().unwrap().to_owned(),
        );
        (id, value)
    });
    all.collect()
}

fn holding(disk: &MemDisk, text: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter();
    let held = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains(text));
    held.map(|(path, _)| path).collect()
}

#[test]
fn rd_01_t_65_c44_no_file_of_the_store_yields_the_bytes_whatever_kind_it_is() {
    let (disk, journal) = store();
    // One of each place that C44 names, in one of each encoding that RD-01 names.
    plant(
        &disk,
        "events/quarantine/plan.s.01ABC",
        b"not json but CANARY",
    );
    let hex: String = CANARY.bytes().map(|b| format!("{b:02x}")).collect();
    plant(&disk, "events/quarantine/other", hex.as_bytes());
    plant(&disk, "entities/plan/.s.json.tmp", CANARY.as_bytes());
    plant(&disk, "events/.meta.json.tmp", CANARY.as_bytes());
    plant(&disk, "events/queue/01DEAD.req", CANARY.as_bytes());
    let parked = format!("{{\"id\":1}}\n{{\"summary\":\"{CANARY}\"}}\n{{\"item_id\":\"s\"}}\n");
    plant(&disk, "events/archive/events.v1.jsonl", parked.as_bytes());
    for (path, bytes) in disk.files() {
        let inside = path.strip_prefix(ROOT).unwrap().to_owned();
        if !inside.starts_with("events/queue") {
            plant(&disk, &format!("backups/one/{}", inside.display()), &bytes);
        }
    }
    assert!(holding(&disk, CANARY).len() > 10);
    let told = journal
        .redact(&item("plan", "s"), "the person asked for it")
        .unwrap();
    assert_eq!(told.left.leftovers, [""; 0]);
    assert_eq!(holding(&disk, "CANARY"), Vec::<PathBuf>::new());
    assert_eq!(holding(&disk, &hex), Vec::<PathBuf>::new());
    assert!(told.blobs >= 1 && told.checkpoints.len() >= 2, "{told:?}");
    // What is not ours to change is named.
    plant(&disk, "note-of-a-person.txt", b"nothing yet");
    assert_eq!(
        disk.files()[&at("events/archive/events.v1.jsonl")],
        b"{\"id\":1}\n{\"redacted\":1}\n{\"redacted\":1}\n"
    );
    let report = journal.verify().unwrap();
    assert!(report.ok, "{report:#?}");
    assert!(matches!(
        journal.show("plan", "s"),
        Err(JournalError::NotFound { .. })
    ));
    assert_eq!(journal.show("plan", "a").unwrap().payload["n"], 7);
    // The revision goes on counting.
    let receipt = &commit(&journal, vec![put("plan", "s", json!({"n": 1}))])[0];
    assert_eq!(receipt.entity_rev, Some(7));
}

/// Other programs escape what they need not, in either case, and quote what was quoted.
#[test]
fn rd_01_escapes_of_other_programs_are_read_as_what_they_mean() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let text = "Gehäim/nis der Straße";
    commit(&journal, vec![put("plan", "s", json!({"title": text}))]);
    let ascii = text.replace('ä', "\\u00e4").replace('ß', "\\u00DF");
    let twice = ascii.replace('\\', "\\\\");
    let log = format!("{{\"a\":\"{ascii}\"}}\n{{\"b\":\"{twice}\"}}\n{{\"c\":1}}\n");
    plant(&disk, "events/archive/events.v1.jsonl", log.as_bytes());
    plant(&disk, "events/quarantine/x", ascii.as_bytes());
    plant(&disk, "a-note.txt", twice.as_bytes());
    let told = journal.redact(&item("plan", "s"), "asked for").unwrap();
    assert_eq!(told.left.leftovers.len(), 1, "{told:?}");
    assert!(told.left.leftovers[0].ends_with("a-note.txt"));
    assert_eq!(holding(&disk, "nis der").len(), 1);
    let log = &disk.files()[&at("events/archive/events.v1.jsonl")];
    assert!(log.ends_with(b"{\"c\":1}\n"));
}

#[test]
fn rd_01_a_file_that_is_not_ours_is_named_and_left() {
    let (disk, journal) = store();
    let utf16: Vec<u8> = CANARY.encode_utf16().flat_map(u16::to_le_bytes).collect();
    plant(&disk, "notes.txt", &utf16);
    let told = journal.redact(&item("plan", "s"), "asked for").unwrap();
    assert_eq!(told.left.leftovers, [at("notes.txt").display().to_string()]);
    assert_eq!(disk.files()[&at("notes.txt")], utf16);
}

#[test]
fn rd_02_rd_04_all_other_content_is_the_same_and_one_note_says_what_happened() {
    let (_, journal) = store();
    let before = records(&journal);
    journal
        .redact(&item("plan", "s"), "the person asked for it")
        .unwrap();
    let after = records(&journal);
    let notes: Vec<&Value> = after
        .values()
        .filter(|r| r["payload"]["kind"] == "redaction")
        .collect();
    assert_eq!(notes.len(), 1);
    let note = &notes[0]["payload"];
    assert_eq!(note["reason"], "the person asked for it");
    assert_eq!(note["by"], "tester");
    assert_eq!(note["redacted"].as_array().unwrap().len(), 6);
    assert!(!note["segments"].as_array().unwrap().is_empty());
    assert!(!note["checkpoints"].as_array().unwrap().is_empty());
    assert!(!note.to_string().contains("CANARY"));
    for (id, record) in &before {
        let now = &after[id];
        if record["item_id"] == "s" {
            assert_eq!(now["redacted"], 1, "{now}");
            assert!(now["payload"].is_null() && now["summary"].is_null());
            assert_eq!(now["entity_rev"], record["entity_rev"]);
        } else if record["action"] != "checkpoint_ref" {
            assert_eq!(now, record);
        }
    }
    assert_eq!(after.len(), before.len() + 1);
}

#[test]
fn rd_05_a_cursor_inside_the_redacted_range_goes_on() {
    let (disk, journal) = store();
    let reader = open(&disk, 1, 40).unwrap();
    let first = reader.events("r", 1, false).unwrap();
    assert!(first.more);
    journal.redact(&item("plan", "s"), "asked for").unwrap();
    let mut last = first.last_seq;
    let mut shown = Vec::new();
    loop {
        let page = reader.events("r", 3, false).unwrap();
        for event in &page.events {
            let seq = serde_json::from_str::<Value>(event.get()).unwrap()["seq"]
                .as_u64()
                .unwrap();
            assert!(seq > last, "each once, in order");
            last = seq;
            shown.push(seq);
            assert!(!event.get().contains("CANARY"));
        }
        if !page.more {
            break;
        }
    }
    // Every one of them, those that lost their content included.
    let all = records(&journal).into_iter();
    let behind = all.filter(|(id, r)| id.0 > first.last_seq && r["item_type"] != "journal");
    let behind: Vec<u64> = behind.map(|(id, _)| id.0).collect();
    assert_eq!(shown, behind);
    assert!(shown.len() > 2, "{shown:?}");
}

/// What stands under a changed name after a redaction, by the folder that it is in.
fn kind(path: &Path) -> Option<&'static str> {
    let name = path.display().to_string();
    let is_archived = name.contains("/archive/");
    match (name.contains("/seg-"), name.contains("/ckpt-")) {
        (true, _) if is_archived => Some("archived segment"),
        (true, _) => Some("segment"),
        (_, true) if is_archived => Some("archived checkpoint"),
        (_, true) => Some("checkpoint"),
        _ => None,
    }
}

#[test]
fn rd_06_an_old_copy_of_segment_or_checkpoint_brings_nothing_back() {
    let (disk, journal) = store();
    // The active segment holds a record of it too, so that its copy is one of something.
    let again = put("plan", "s", json!({"note": CANARY, "n": 10}));
    commit(&journal, vec![again]);
    let old = disk.files();
    journal.redact(&item("plan", "s"), "asked for").unwrap();
    let now = disk.files();
    let active = now.keys().rfind(|path| kind(path) == Some("segment"));
    let active = active.unwrap();
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, bytes) in &old {
        let Some(kind) = kind(path).filter(|_| now.get(path) != Some(bytes)) else {
            continue;
        };
        let name = path.display().to_string();
        // Some name it by a blob, some only name a checkpoint that was written anew: those count for nothing below.
        let text = String::from_utf8_lossy(bytes);
        let holds = text.contains(CANARY) || text.contains("payload_ref");
        let is_active = path == active;
        let what = if is_active { "active" } else { kind };
        *tried.entry(what).or_default() += usize::from(holds);
        // The copy alone, as a careless restore puts it; and the active segment also with the note behind it.
        let behind = now
            .get(path)
            .map_or(&[][..], |now| &now[bytes.len().min(now.len())..]);
        for behind in [&[][..], behind] {
            let image = disk.fork();
            image.tamper(path, |now| *now = [bytes, behind].concat());
            let reader = open(&image, 1, 50).unwrap();
            let told = reader.show("plan", "s");
            assert!(
                matches!(
                    told,
                    Err(JournalError::NotFound { .. } | JournalError::Lost { .. })
                ),
                "{name}: {told:?}"
            );
            // Nobody reads an archived checkpoint; everything else is reported.
            let is_read = kind != "archived checkpoint";
            assert!(!is_read || !reader.verify().unwrap().ok, "{name}");
            let is_noted = !is_active || !behind.is_empty();
            let rebuilt = reader.rebuild(0).unwrap();
            let entity = rebuilt.replay.get("plan", "s").unwrap();
            assert!(!is_noted || entity.head.is_deleted, "{name}");
        }
    }
    for kind in ["active", "segment", "archived segment", "checkpoint"] {
        assert!(tried.get(kind).is_some_and(|n| *n > 0), "{kind}: {tried:?}");
    }
    // The old lines once more, behind everything, as a peer or a careless restore would bring them.
    let named = |path: &&PathBuf| path.display().to_string().contains("/seg-");
    let first = old.keys().find(named).unwrap();
    let image = disk.fork();
    let is_there = image.tamper(active, |bytes| bytes.extend(&old[first]));
    assert!(is_there);
    let reader = open(&image, 1, 51).unwrap();
    assert!(
        reader
            .rebuild(usize::MAX)
            .unwrap()
            .replay
            .get("plan", "s")
            .unwrap()
            .head
            .is_deleted
    );
}

#[test]
fn a_seq_that_is_not_the_newest_leaves_the_entity_as_it_is() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    commit(
        &journal,
        vec![put("plan", "s", json!({"note": "harmless words"}))],
    );
    let told = journal.redact(&Target::Seq(1), "asked for").unwrap();
    assert_eq!((told.redacted.len(), told.left.leftovers.len()), (1, 0));
    assert_eq!(holding(&disk, "CANARY"), Vec::<PathBuf>::new());
    let shown = journal.show("plan", "s").unwrap();
    assert_eq!(
        (shown.entity_rev, &shown.payload["note"]),
        (2, &json!("harmless words"))
    );
    // The newest: the entity is gone, never the revision before it instead.
    journal.redact(&Target::Seq(2), "asked for").unwrap();
    assert!(matches!(
        journal.show("plan", "s"),
        Err(JournalError::NotFound { .. })
    ));
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn what_others_hold_as_well_stays_and_is_named() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    commit(
        &journal,
        vec![put(
            "plan",
            "other",
            json!({"note": format!("see {CANARY}")}),
        )],
    );
    let told = journal.redact(&item("plan", "s"), "asked for").unwrap();
    assert_eq!(told.also_in, ["seq 2 (plan other)"]);
    assert_eq!(
        told.left.leftovers, [""; 0],
        "what stays on purpose is no leftover"
    );
    assert!(journal.show("plan", "other").is_ok());
    journal
        .redact(&item("plan", "other"), "that one too")
        .unwrap();
    assert_eq!(holding(&disk, "CANARY"), Vec::<PathBuf>::new());
}

#[test]
fn refusals_say_why_and_change_nothing() {
    let (disk, journal) = store();
    commit(
        &journal,
        vec![put("decision", "s", json!({"title": "another of this id"}))],
    );
    let before = disk.files();
    let anywhere = Target::Item {
        item_type: None,
        item_id: "s".into(),
    };
    let refused = [
        (journal.redact(&anywhere, "r").unwrap_err(), "TYPE/ID"),
        (
            journal.redact(&item("plan", "s"), " ").unwrap_err(),
            "reason",
        ),
        (
            journal
                .redact(&item("plan", "s"), &format!("holds {CANARY}"))
                .unwrap_err(),
            "other words",
        ),
        (
            journal.redact(&item("plan", "nobody"), "r").unwrap_err(),
            "not here",
        ),
        (
            journal.redact(&Target::Seq(9999), "r").unwrap_err(),
            "not here",
        ),
    ];
    for (error, word) in refused {
        assert!(error.to_string().contains(word), "{error}");
    }
    let kept = |files: &BTreeMap<PathBuf, Vec<u8>>| {
        let mut files = files.clone();
        files.retain(|path, _| !path.ends_with("lock") && !path.ends_with("meta.json"));
        files
    };
    assert_eq!(kept(&disk.files()), kept(&before));
}

/// The second run knows nothing of the text any more: it says so, and names what the first one found.
#[test]
fn rd_01_a_second_redaction_does_not_call_searched_what_nobody_can_search_for() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let secret = "the launch code is 4711-8822-9933, and nobody else may ever hear of it";
    commit(&journal, vec![put("plan", "p", json!({"title": secret}))]);
    commit(&journal, vec![plan("q", 1)]);
    let kept = Path::new(ROOT).join("x/copy.txt");
    disk.create_dir(kept.parent().unwrap()).unwrap();
    disk.write(&kept, secret.as_bytes()).unwrap();
    let target = |id: &str| Target::Item {
        item_type: Some("plan".to_owned()),
        item_id: id.to_owned(),
    };
    let first = journal.redact(&target("p"), "asked for").unwrap();
    let named = [kept.display().to_string()];
    assert_eq!(
        (first.searched, &first.left.leftovers[..]),
        (true, &named[..])
    );
    for seed in [70, 71] {
        let again = open(&disk, 1, seed).unwrap();
        let told = again.redact(&target("p"), "asked for").unwrap();
        assert_eq!(
            (told.searched, &told.left.leftovers[..]),
            (false, &named[..])
        );
    }
    let list = disk.files()[&Path::new(ROOT).join("events/leftovers.json")].clone();
    assert!(!String::from_utf8(list).unwrap().contains("4711"));
    // Changed: nobody can look any more, and it is said until somebody has. Gone: nothing is left to say.
    disk.write(&kept, b"something else").unwrap();
    for seed in [72, 73] {
        let again = open(&disk, 1, seed).unwrap();
        let told = again.redact(&target("p"), "asked for").unwrap();
        assert_eq!((told.left.leftovers.len(), told.left.changed.len()), (0, 1));
        assert!(!told.is_clean());
    }
    disk.remove(&kept).unwrap();
    let told = journal.redact(&target("p"), "asked for").unwrap();
    assert_eq!((told.left.leftovers.len(), told.left.changed.len()), (0, 0));
    assert!(!told.searched);
}

#[test]
fn short_texts_are_searched_for_in_the_files_of_others_and_told() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![put("plan", "s", json!({"pin": "4711"}))]);
    commit(&journal, vec![plan("a", 4711)]);
    plant(&disk, "notes.txt", b"the pin is 4711\n");
    plant(&disk, "others.txt", b"call 47110\n");
    let told = journal.redact(&item("plan", "s"), "asked for").unwrap();
    assert_eq!((told.searched, told.short), (false, 1));
    assert_eq!(told.left.short_in, [at("notes.txt").display().to_string()]);
    assert_eq!(told.left.leftovers, [""; 0], "it may be a word of anybody");
    let again = journal.redact(&item("plan", "s"), "asked for").unwrap();
    assert_eq!((again.searched, again.short), (false, 0));
}

#[test]
fn texts_that_others_hold_are_searched_for_in_the_files_of_nobody() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    for id in ["s", "t"] {
        commit(&journal, vec![put("plan", id, json!({"note": CANARY}))]);
    }
    plant(&disk, "stray.txt", CANARY.as_bytes());
    let told = journal.redact(&item("plan", "s"), "asked for").unwrap();
    assert_eq!((told.searched, told.shared), (false, 1), "{told:#?}");
    assert_eq!(told.left.short_in, [at("stray.txt").display().to_string()]);
    assert_eq!(told.left.leftovers, [""; 0], "it may be of the other one");
}

#[test]
fn a_seq_that_was_erased_before_is_nothing_to_do() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    let seq = Target::Seq(1);
    let first = journal.redact(&seq, "asked for").unwrap();
    assert_eq!(first.redacted.len(), 1);
    let again = journal.redact(&seq, "asked for").unwrap();
    assert!(again.redacted.is_empty(), "{again:#?}");
    assert!(journal.redact(&Target::Seq(99), "asked for").is_err());
}

/// A segment in which something is left is named for as long as it is there, however it grows and wherever gc moves it.
#[test]
fn rd_01_a_segment_that_still_holds_the_bytes_is_named_again_when_it_has_grown() {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 900);
    // The name of the item says it, and a name stays.
    commit(&journal, vec![put("plan", CANARY, json!({"note": CANARY}))]);
    let told = journal.redact(&item("plan", CANARY), "leak").unwrap();
    assert!(!told.left.leftovers.is_empty(), "{told:?}");
    for n in 0..12 {
        commit(&journal, vec![plan("a", n)]);
        let told = journal.redact(&item("plan", CANARY), "leak").unwrap();
        assert!(!told.left.leftovers.is_empty(), "{n}: {told:?}");
        journal.checkpoint().unwrap();
        journal.gc().unwrap();
    }
}

#[test]
fn the_journals_own_digits_are_no_leftovers_and_nobody_is_sent_to_remove_the_lock() {
    for text in [
        "0000000000000000",
        "00000000000000000001",
        "seg-00000000000000000001",
        &"0".repeat(50_000),
    ] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        commit(&journal, vec![put("plan", "s", json!({"card": text}))]);
        commit(&journal, vec![plan("o", 1)]);
        for turn in 0..2 {
            let told = journal.redact(&item("plan", "s"), "asked").unwrap();
            assert_eq!(told.left.leftovers, [""; 0], "{} {turn}", text.len());
        }
        let lock = disk.read(&at("events/lock"), 256).unwrap();
        assert!(String::from_utf8_lossy(&lock).contains("seq 0000000000000000"));
    }
    // A list of an older build names it still.
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("o", 1)]);
    let bytes = disk.len(&at("events/lock")).unwrap();
    let list = json!({"v": 2, "files": [{"path": "events/lock", "bytes": bytes}]});
    plant(&disk, "events/leftovers.json", &stamped(&list));
    let told = journal.redact(&item("plan", "o"), "asked").unwrap();
    assert_eq!(told.left.leftovers, [""; 0]);
    assert_eq!(told.left.changed, [""; 0]);
    // Content in a segment that is not where segments are is still named.
    commit(&journal, vec![put("plan", "t", json!({"card": CANARY}))]);
    let first = at("events/seg-00000000000000000001.jsonl");
    let copy = "backups/one/seg-00000000000000000009.jsonl";
    let bytes = disk.files()[&first].clone();
    plant(&disk, copy, &bytes);
    let told = journal.redact(&item("plan", "t"), "asked").unwrap();
    assert_eq!(told.left.leftovers, [at(copy).display().to_string()]);
}

#[test]
fn a_payload_of_16_mb_of_one_letter_is_erased_in_steps_that_end() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    let text = format!("CANARY123456{}", "y".repeat((16 << 20) - 100));
    commit(&journal, vec![put("plan", "s", json!({"t": text}))]);
    let told = journal.redact(&item("plan", "s"), "asked").unwrap();
    assert_eq!(
        (told.blobs, &told.left.leftovers[..]),
        (1, &[] as &[String])
    );
    assert_eq!(holding(&disk, "CANARY123456"), Vec::<PathBuf>::new());
}
