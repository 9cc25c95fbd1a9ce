//! RD-01, RD-03: what a redaction found, or could not look at, is told by whoever comes next, wherever the first one was cut off.
#![cfg(test)]

mod support;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk, RealDisk};
use heddle_journal::{Journal, Redacted};
use serde_json::{Value, json};
use support::failing::Failing;
use support::power::{item, small};
use support::*;

const CANARY: &str = "CANARY-7f3a9c-secret";
const NOTES: &str = "mynotes.txt";
const COPY: &str = "entities/plan/s.json.bak";

fn at(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

fn plant(disk: &MemDisk, name: &str, bytes: &[u8]) {
    let path = at(name);
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.write(&path, bytes).unwrap();
    disk.sync_all(Path::new("/")).unwrap();
}

/// Several segments, a checkpoint and a blob, and two files of a person that hold the same.
fn store() -> MemDisk {
    let disk = MemDisk::new();
    let journal = small(init(&disk), 900);
    let secret = |n: u64| json!({"note": format!("{CANARY}-{n}"), "n": n});
    for n in 1..4 {
        commit(&journal, vec![put("plan", "s", secret(n)), plan("good", n)]);
    }
    let big = json!({"note": CANARY, "diff": "x".repeat(70_000)});
    commit(&journal, vec![put("plan", "s", big)]);
    journal.checkpoint().unwrap();
    commit(&journal, vec![put("plan", "s", secret(4))]);
    plant(&disk, NOTES, format!("see {CANARY}-2").as_bytes());
    plant(
        &disk,
        COPY,
        format!("{{\"note\":\"{CANARY}-4\"}}").as_bytes(),
    );
    disk
}

fn redact(journal: &Journal) -> Result<Redacted, heddle_journal::JournalError> {
    journal.redact(&item("plan", "s"), "asked for")
}

fn names_both(told: &Redacted) -> bool {
    let names = |name: &str| told.leftovers.contains(&at(name).display().to_string());
    names(NOTES) && names(COPY)
}

/// Whoever asks next: both files are named, and nothing else of the store holds any of it.
fn judge(image: &MemDisk, boot: u128, what: &str) {
    let journal = open(image, boot, 79).unwrap();
    let told = redact(&journal).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(names_both(&told) && !told.is_clean(), "{what}: {told:#?}");
    for (path, bytes) in image.files() {
        let is_held = String::from_utf8_lossy(&bytes).contains("CANARY");
        let is_strange = path == at(NOTES) || path == at(COPY);
        assert_eq!(is_held, is_strange, "{what}: {}", path.display());
    }
    // And by everybody after that, until somebody has removed them.
    let again = redact(&journal).unwrap();
    assert!(names_both(&again), "{what}: {again:#?}");
    for name in [NOTES, COPY] {
        image.remove(&at(name)).unwrap();
    }
    let last = redact(&journal).unwrap();
    assert!(last.is_clean(), "{what}: {last:#?}");
    assert!(journal.verify().unwrap().ok, "{what}");
}

#[test]
fn rd_03_what_was_found_is_told_wherever_a_redaction_was_cut_off() {
    let base = store();
    for stop in 1.. {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let told = open(&disk, 1, 5).and_then(|journal| redact(&journal));
        if !disk.is_stopped() {
            assert!(names_both(&told.unwrap()));
            assert!(stop > 40, "{stop}");
            return;
        }
        for (boot, how) in [
            (1, Crash::Process),
            (2, Crash::LoseAll),
            (2, Crash::LoseNames),
            (2, Crash::Random(stop)),
        ] {
            judge(
                &disk.crash(&how),
                boot,
                &format!("stopped at {stop}, {how:?}"),
            );
        }
    }
}

#[test]
fn rd_03_the_same_where_an_operation_fails_and_the_process_goes_on() {
    let base = store();
    for stop in 1.. {
        let disk = base.fork();
        let first = disk.ops();
        disk.fault_at(first + stop, Fault::Error(ErrorKind::StorageFull));
        let told = open(&disk, 1, 5).and_then(|journal| redact(&journal));
        if disk.ops() < first + stop {
            return;
        }
        if let Ok(told) = told {
            assert!(names_both(&told), "failed at {stop}: {told:#?}");
        }
        judge(&disk.fork(), 1, &format!("failed at {stop}"));
    }
}

#[test]
fn rd_03_the_same_where_a_file_cannot_be_opened_once() {
    let base = store();
    for nth in 1.. {
        let disk = base.fork();
        let failing = Failing::once(&disk, nth);
        let told = open_on(failing.clone(), 5).and_then(|journal| redact(&journal));
        if !failing.has_failed() {
            assert!(nth > 60, "{nth}");
            return;
        }
        if let Ok(told) = told {
            assert!(names_both(&told), "look {nth}: {told:#?}");
            // What could not be read once was read again.
            assert_eq!(told.unread, [""; 0], "look {nth}");
        }
        judge(&disk, 1, &format!("look {nth}"));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_called_that_and_never_a_holder() {
    for name in ["entities/plan/good.json", NOTES] {
        let disk = store();
        let shut = open_on(Failing::shut(&disk, at(name)), 5).unwrap();
        for turn in 0..2 {
            let told = redact(&shut).unwrap();
            assert!(!told.is_clean());
            let path = at(name).display().to_string();
            assert!(!told.leftovers.contains(&path), "{turn}: {told:#?}");
            assert!(told.unread[0].starts_with(&path), "{turn}: {told:#?}");
        }
        for left in [NOTES, COPY].iter().filter(|left| **left != name) {
            disk.remove(&at(left)).unwrap();
        }
        // It can be read now. A projection that is as the journal has it holds nothing else; of another file nobody knows, and it is said once.
        let journal = open(&disk, 1, 6).unwrap();
        let told = redact(&journal).unwrap();
        let unverified = usize::from(name == NOTES);
        assert!(told.is_clean(), "{told:#?}");
        assert_eq!(told.unverified.len(), unverified, "{told:#?}");
        let told = redact(&journal).unwrap();
        assert!(told.is_clean() && told.unverified.is_empty(), "{told:#?}");
        assert!(journal.verify().unwrap().ok);
    }
}

/// A list of an older build calls a file a holder that could not be read once.
#[test]
fn a_projection_that_is_as_the_journal_has_it_is_taken_from_the_list() {
    let disk = store();
    let journal = open(&disk, 1, 5).unwrap();
    let good = "entities/plan/good.json";
    let bytes = disk.len(&at(good)).unwrap();
    let list = json!({"v": 1, "files": [{"path": good, "bytes": bytes}]});
    plant(&disk, "events/leftovers.json", list.to_string().as_bytes());
    let told = redact(&journal).unwrap();
    assert!(names_both(&told) && told.leftovers.len() == 2, "{told:#?}");
}

/// The build before erased first and searched behind that. Cut off between, nobody knows what to look for.
#[test]
fn rd_03_a_redaction_of_an_older_build_that_was_cut_off_is_no_success() {
    let disk = store();
    let job = job_of(&disk);
    let mut older: Value = serde_json::from_slice(&job).unwrap();
    older.as_object_mut().unwrap().remove("search").unwrap();
    // As it stood when everything but its end was done.
    redact(&open(&disk, 1, 5).unwrap()).unwrap();
    disk.remove(&at("events/leftovers.json")).unwrap();
    plant(&disk, "events/redact.json", older.to_string().as_bytes());
    // Somebody else comes first and finishes it: who asks for it hears all the same.
    let journal = open(&disk, 1, 6).unwrap();
    commit(&journal, vec![plan("other", 1)]);
    let told = redact(&journal).unwrap();
    assert!(told.unfinished && !told.is_clean(), "{told:#?}");
    // One that was cut off before it had erased anything is searched as ever.
    let disk = store();
    plant(&disk, "events/redact.json", older.to_string().as_bytes());
    let told = redact(&open(&disk, 1, 7).unwrap()).unwrap();
    assert!(names_both(&told) && !told.unfinished, "{told:#?}");
}

/// What a redaction of this store writes down before it begins.
fn job_of(disk: &MemDisk) -> Vec<u8> {
    for stop in 1.. {
        let image = disk.fork();
        image.fault_at(image.ops() + stop, Fault::Stop);
        let _ = open(&image, 1, 5).map(|journal| redact(&journal).map(drop));
        let path = at("events/redact.json");
        if let Some(job) = image.files().get(&path) {
            return job.clone();
        }
        assert!(image.is_stopped());
    }
    unreachable!()
}

/// A name that says the content itself is written down nowhere; how many there are is.
#[test]
fn a_name_that_says_the_content_is_told_and_kept_nowhere() {
    let base = store();
    plant(&base, &format!("{CANARY}-2.txt"), CANARY.as_bytes());
    for stop in 1.. {
        let disk = base.fork();
        disk.fault_at(disk.ops() + stop, Fault::Stop);
        let told = open(&disk, 1, 5).and_then(|journal| redact(&journal));
        let image = disk.crash(&Crash::Process);
        for (path, bytes) in image.files() {
            let is_list = path == at("events/leftovers.json") || path == at("events/redact.json");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!is_list || !text.contains("CANARY"), "{stop}: {text}");
        }
        if !disk.is_stopped() {
            assert!(
                told.unwrap()
                    .leftovers
                    .iter()
                    .any(|name| name.contains("CANARY"))
            );
            return;
        }
        let told = redact(&open(&image, 1, 79).unwrap()).unwrap();
        let is_named = told.leftovers.iter().any(|name| name.contains("CANARY"));
        let is_last = !image.files().contains_key(&at("events/redact.json")) && stop > 40;
        assert!(is_named || told.hidden == 1 || is_last, "{stop}: {told:#?}");
    }
}

/// C5: a link in the place of the backups is followed by nobody: no copy goes through it, and no redaction calls it clean.
#[test]
fn a_link_in_the_place_of_the_backups_is_followed_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let outside = folder.path().join("outside");
    std::fs::create_dir_all(outside.join("one")).unwrap();
    let held = outside.join("one/copy.txt");
    std::fs::write(&held, CANARY).unwrap();
    let journal = real(&root, 1);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    std::os::unix::fs::symlink(&outside, root.join("backups")).unwrap();
    let world = || world(Arc::new(RealDisk), 1, 3);
    let mode = heddle_journal::action::Mode::RegistryPrimary;
    let migrated = Journal::migrate(world(), &root, who(), None, mode, false);
    assert!(migrated.unwrap_err().to_string().contains("backups"));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    let told = redact(&journal).unwrap();
    assert!(told.unread[0].contains("backups"), "{told:#?}");
    assert!(!told.is_clean() && told.leftovers.is_empty(), "{told:#?}");
    assert!(std::fs::read_to_string(held).unwrap().contains("CANARY"));
}

/// RD-06, C2: the note went with the newer copy, and the index alone knows. Nobody shows it for that, also behind a writer, and verify says why.
#[test]
fn rd_06_an_old_copy_of_the_only_segment_is_told_behind_the_next_writer_too() {
    for files_first_max in [500, 0] {
        let disk = MemDisk::new();
        let journal = init(&disk);
        commit(&journal, vec![plan("a", 1)]);
        commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
        let segment = at("events/seg-00000000000000000001.jsonl");
        let old = disk.files()[&segment].clone();
        redact(&journal).unwrap();
        disk.tamper(&segment, |bytes| *bytes = old);
        let settings = heddle_journal::Settings {
            files_first_max,
            ..quick()
        };
        for seed in 5..8 {
            let journal = open(&disk, 1, seed).unwrap();
            let journal = journal.with_settings(settings.clone());
            assert!(journal.show("plan", "s").is_err(), "{seed}");
            let told = journal.verify().unwrap();
            assert!(!told.ok, "{told:#?}");
            commit(&journal, vec![plan("b", seed)]);
            assert!(journal.show("plan", "s").is_err(), "{seed}");
        }
        let journal = open(&disk, 1, 9).unwrap();
        let told = journal.verify().unwrap();
        assert!(told.divergent[0].reason.contains("redact"), "{told:#?}");
        // Erased again, as it says.
        let told = redact(&journal).unwrap();
        assert_eq!(told.redacted.len(), 1);
        assert!(told.is_clean(), "{told:#?}");
        journal.accept_gaps("the note is gone").unwrap();
        assert!(journal.verify().unwrap().ok);
        for bytes in disk.files().values() {
            assert!(!String::from_utf8_lossy(bytes).contains("CANARY"));
        }
    }
}

#[test]
fn rd_01_no_folder_is_too_deep_to_be_searched() {
    let disk = store();
    let deep = format!("{}notes.txt", "d/".repeat(60));
    plant(&disk, &deep, format!("see {CANARY}-3").as_bytes());
    let journal = open(&disk, 1, 5).unwrap();
    for _ in 0..2 {
        let told = redact(&journal).unwrap();
        let name = at(&deep).display().to_string();
        assert!(
            told.leftovers.contains(&name) && !told.is_clean(),
            "{told:#?}"
        );
        assert!(told.unverified.is_empty(), "{told:#?}");
    }
}
