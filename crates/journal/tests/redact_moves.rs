//! What a redaction has left stays told, whatever verb moves or copies it, and by damage nobody is erased or silenced.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};

use heddle_journal::action::Mode;
use heddle_journal::disk::{Disk, Fault, MemDisk};
use heddle_journal::{Journal, Redacted, Who};
use serde_json::{Value, json};
use support::power::item;
use support::*;

const CANARY: &str = "CANARY-7f3a9c-secret";
const JOB: &str = "events/redact.json";
const LIST: &str = "events/leftovers.json";

fn holding(disk: &MemDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter();
    let held = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains(CANARY));
    held.map(|(path, _)| path).collect()
}

fn store() -> MemDisk {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(
        &journal,
        vec![put("plan", "good", json!({"note": "of somebody else"}))],
    );
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    disk
}

fn redact(journal: &Journal) -> Redacted {
    journal.redact(&item("plan", "s"), "asked for").unwrap()
}

/// Every file that holds it is told by its name, and there is one.
fn all_are_told(disk: &MemDisk, journal: &Journal, what: &str) {
    let held: Vec<String> = holding(disk)
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let mut told = journal.remains().unwrap().leftovers;
    told.sort();
    assert_eq!(told, held, "{what}");
    assert!(!held.is_empty(), "{what}");
    assert!(journal.verify().unwrap().redactions_open > 0, "{what}");
}

/// A3: rebuild and append put a file that is no record of theirs aside.
#[test]
fn a_leftover_that_a_verb_moves_aside_is_told_where_it_lies_then() {
    for verb in ["rebuild", "append"] {
        let disk = store();
        let name = "entities/plan/stray.json";
        let text = format!("{{\"note\":\"{CANARY}\"");
        let journal = open(&disk, 1, 5).unwrap();
        plant(&disk, name, text.as_bytes());
        redact(&journal);
        all_are_told(&disk, &journal, verb);
        if verb == "rebuild" {
            journal.restore().unwrap();
        } else {
            commit(&journal, vec![put("plan", "stray", json!({"note": "x"}))]);
        }
        assert_ne!(holding(&disk), [at(name)], "{verb}: it has moved");
        all_are_told(&disk, &journal, verb);
        for path in holding(&disk) {
            disk.remove(&path).unwrap();
        }
        assert!(redact(&journal).is_clean(), "{verb}");
    }
}

/// A3, A4: whoever changes the mode copies and parks the store, and the list knows of both.
#[test]
fn leftovers_are_told_behind_every_change_of_the_mode() {
    let disk = store();
    plant(&disk, "mine.txt", CANARY.as_bytes());
    plant(&disk, "events/strange.txt", CANARY.as_bytes());
    let mut journal = open(&disk, 1, 5).unwrap();
    redact(&journal);
    all_are_told(&disk, &journal, "redacted");
    assert_eq!(holding(&disk).len(), 2);
    for (to, count) in [(Mode::Dual, 4), (Mode::Off, 6)] {
        journal.roll_back(to).unwrap();
        all_are_told(&disk, &journal, to.as_str());
        assert_eq!(holding(&disk).len(), count, "{}", to.as_str());
    }
    let who = Who::default();
    let world = world(std::sync::Arc::new(disk.clone()), 1, 9);
    Journal::migrate(world, Path::new(ROOT), who, None, Mode::Primary, false).unwrap();
    let journal = open(&disk, 1, 6).unwrap();
    all_are_told(&disk, &journal, "migrated");
    for path in holding(&disk) {
        disk.remove(&path).unwrap();
    }
    assert!(journal.remains().unwrap().is_nothing());
}

/// A3: one that fails half way leaves copies, too.
#[test]
fn a_copy_of_a_change_of_the_mode_that_failed_is_told() {
    let base = store();
    plant(&base, "mine.txt", CANARY.as_bytes());
    redact(&open(&base, 1, 5).unwrap());
    let mut copies = 0;
    for stop in 1.. {
        let disk = base.fork();
        disk.fault_at(
            disk.ops() + stop,
            Fault::Error(std::io::ErrorKind::StorageFull),
        );
        let done = open(&disk, 1, 6).and_then(|mut journal| journal.roll_back(Mode::Off));
        let after = disk.fork();
        let journal = open(&after, 1, 7).unwrap();
        all_are_told(&after, &journal, &format!("failed at {stop}"));
        copies += holding(&after).len() - 1;
        if done.is_ok() {
            break;
        }
    }
    assert!(copies > 3, "{copies}");
}

/// A6: without a name nobody lets be what was found to hold it.
#[test]
fn what_is_known_to_hold_it_is_let_be_by_its_name_alone() {
    let disk = store();
    plant(&disk, "mine.txt", CANARY.as_bytes());
    let hidden = format!("n/in-{CANARY}.txt");
    plant(&disk, &hidden, CANARY.as_bytes());
    let journal = open(&disk, 1, 5).unwrap();
    redact(&journal);
    plant(
        &disk,
        "mine.txt",
        format!("{CANARY}\nand a line").as_bytes(),
    );
    let told = journal.let_be(&[]).unwrap();
    assert_eq!((told.let_be, told.left.count()), (0, 2), "{told:#?}");
    assert_eq!((told.left.changed.len(), told.left.hidden), (1, 1));
    let told = journal.let_be(&[at("mine.txt")]).unwrap();
    assert_eq!((told.let_be, told.left.count()), (1, 1), "{told:#?}");
    let elsewhere = Path::new("/elsewhere").to_owned();
    assert!(journal.let_be(&[elsewhere]).is_err());
    let told = journal.let_be(&[at(&hidden)]).unwrap();
    assert!(told.left.is_nothing(), "{told:#?}");
    assert!(journal.let_be(&[at(&hidden)]).is_err(), "none is left");
}

/// A job as a kill leaves it, nothing erased yet.
fn begun(disk: &MemDisk) -> MemDisk {
    for stop in 1.. {
        let image = disk.fork();
        image.fault_at(image.ops() + stop, Fault::Stop);
        let _ = open(&image, 1, 5).map(|journal| journal.redact(&item("plan", "s"), "asked for"));
        let after = image.crash(&heddle_journal::disk::Crash::Process);
        if after.files().contains_key(&at(JOB)) {
            return after;
        }
    }
    unreachable!()
}

fn body(disk: &MemDisk, seed: u64, id: &str) -> Option<String> {
    let journal = open(disk, 1, seed).unwrap();
    let shown = journal.show("plan", id).ok();
    shown.map(|shown| format!("{shown:?}"))
}

/// A1, B1: by a job in which a bit is wrong nobody is erased, everybody goes on, and the next redaction sets it aside.
#[test]
fn by_a_damaged_job_nothing_is_erased_and_the_next_redaction_sets_it_aside() {
    let base = begun(&store());
    let job = base.files()[&at(JOB)].clone();
    let text = String::from_utf8(job.clone()).unwrap();
    let of_other = text.replace("\"s\"", "\"good\"");
    assert_ne!(of_other, text);
    let mut bare: Value = serde_json::from_slice(&job).unwrap();
    bare.as_object_mut().unwrap().remove("crc");
    let flipped = |bit: usize| {
        let mut other = job.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        other
    };
    let mut damages = vec![
        of_other.into_bytes(),
        bare.to_string().into_bytes(),
        job[..job.len() / 2].to_vec(),
        text.replace("due", "dux").into_bytes(),
        Vec::new(),
    ];
    damages.extend((0..(job.len() - 1) * 8).step_by(37).map(flipped));
    for damage in damages {
        let what = String::from_utf8_lossy(&damage).into_owned();
        let disk = base.fork();
        plant(&disk, JOB, &damage);
        let journal = open(&disk, 1, 6).unwrap();
        commit(&journal, vec![plan("new", 1)]);
        for id in ["good", "s", "new"] {
            assert!(body(&disk, 7, id).is_some(), "{id}: {what}");
        }
        let report = journal.verify().unwrap();
        assert!(report.redactions_open > 0, "{what}");
        assert!(
            report
                .warnings
                .iter()
                .any(|told| told.contains("redact.json")),
            "{report:#?}"
        );
        assert!(!journal.remains().unwrap().is_nothing(), "{what}");
        assert!(!journal.let_be(&[]).unwrap().left.is_nothing(), "{what}");
        let told = redact(&journal);
        assert!(told.left.unfinished && !told.is_clean(), "{told:#?}");
        let told = serde_json::to_value(&told).unwrap();
        let aside = told["set_aside"].as_str().unwrap();
        assert_eq!(disk.files()[Path::new(aside)], damage);
        assert_eq!(holding(&disk), [""; 0].map(PathBuf::from), "{what}");
        assert!(body(&disk, 8, "good").is_some(), "{what}");
        journal.let_be(&[]).unwrap();
        assert!(redact(&journal).is_clean());
        assert!(journal.verify().unwrap().ok);
    }
}

/// A2: no bit of the list silences it.
#[test]
fn a_list_in_which_a_bit_is_wrong_counts_as_an_interrupted_search() {
    let base = store();
    plant(&base, "mine.txt", CANARY.as_bytes());
    redact(&open(&base, 1, 5).unwrap());
    let list = base.files()[&at(LIST)].clone();
    let mut damages: Vec<Vec<u8>> = (0..list.len() * 8)
        .map(|bit| {
            let mut other = list.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            other
        })
        .collect();
    damages.push(b"{\"v\":1,\"files\":[]}".to_vec());
    damages.push(b"{\"v\":2,\"files\":[]}".to_vec());
    for damage in damages {
        let disk = base.fork();
        plant(&disk, LIST, &damage);
        let left = open(&disk, 1, 6).unwrap().remains().unwrap();
        assert!(left.unfinished || left.leftovers.len() == 1, "{left:#?}");
    }
}

/// B5: who shows records shows none of what a redaction that has begun is erasing.
#[test]
fn nobody_is_shown_what_is_being_erased() {
    let base = store();
    let shown = |disk: &MemDisk| {
        let journal = open(disk, 1, 6).unwrap();
        let history = journal.history(0, usize::MAX).unwrap();
        let events = journal.events("somebody", 100, true).unwrap();
        let pages = [history, events].map(|page| serde_json::to_string(&page).unwrap());
        assert!(pages.iter().all(|page| page.contains("of somebody else")));
        pages.map(|page| page.contains(CANARY))
    };
    assert_eq!(shown(&base), [true, true]);
    assert_eq!(shown(&begun(&base)), [false, false]);
}

/// B4: a text of several lines stands in a file whose lines end as those of another system.
#[test]
fn a_text_of_several_lines_is_found_whatever_its_lines_end_in() {
    for text in [
        "Anna Beispiel\nHauptstr. 5\n12345 Ort",
        "Anna Muster\r\nWeg 7",
    ] {
        for end in ["\n", "\r\n"] {
            let disk = MemDisk::new();
            let journal = init(&disk);
            commit(&journal, vec![put("plan", "s", json!({"note": text}))]);
            let lines = text.replace("\r\n", "\n").replace('\n', end);
            let lines = format!("before{end}{lines}{end}after{end}");
            plant(&disk, "mine.txt", lines.as_bytes());
            let told = redact(&journal);
            let name = at("mine.txt").display().to_string();
            assert_eq!(told.left.leftovers, [name], "{text:?} {end:?}");
        }
    }
}
