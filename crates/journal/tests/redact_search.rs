//! RD-01, RD-03: what a redaction found, or could not look at, is told by whoever comes next, wherever the first one was cut off.
#![cfg(test)]

mod support;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use heddle_journal::disk::{Crash, Disk, Fault, MemDisk, RealDisk};
use heddle_journal::{Ended, Journal, Redacted};
use serde_json::{Value, json};
use support::failing::Failing;
use support::power::{item, small};
use support::*;

const CANARY: &str = "CANARY-7f3a9c-secret";
/// `see CANARY-7f3a9c-secret` between zeros, by `zlib.compress` four times over; five times; and once, without a header.
const FOUR_DEEP: &[u8] = b"\
    \x78\xda\x63\x60\x20\x1f\x54\xdc\x4a\x4e\x50\x90\x0f\xb9\xe3\xe5\x17\x30\x81\x7f\xe7\xe3\xa7\
    \xe2\x06\x8e\x36\x45\xf3\xcf\xbf\x74\xde\xbf\x6c\xf5\xb9\xba\xbd\x56\x9f\xb6\xbc\xba\x7a\x34\
    \xfc\xd1\xae\xd2\xc3\xad\x8f\xd7\x96\x88\xca\x44\xa7\xcb\xe5\xcc\xf8\x17\xde\x7a\xf5\x4c\x43\
    \xa3\xa2\xea\xc4\xef\x0c\xac\x61\x46\x0c\x0c\x13\x27\x48\x58\x53\xe0\x08\x06\x00\xf3\x93\x23\
    \xee";
const FIVE_DEEP: &[u8] = b"\
    \x78\xda\x63\x60\x20\x1f\x54\xdc\x4a\x4e\x50\x90\x0f\xb9\xe3\xe5\x17\x30\x81\x7f\xe7\xe3\xa7\
    \xe2\x06\x8d\xf5\xcf\x1f\x2f\x7f\xc4\xd6\x67\xe6\xfa\xf9\xfc\xfe\x92\x7b\xfb\x73\xbe\xee\xdc\
    \xb5\x37\x6c\xfe\xb6\x3d\xbb\xaa\x4c\xfe\x5c\x5c\x77\xe9\xf0\xda\xfe\xeb\xd3\x3a\x4e\xb9\x2c\
    \x3f\xfd\xf4\xcc\x0f\xf1\x7b\x55\x5f\x7d\x9c\x17\x2f\x7a\x75\xe4\x3d\xcf\x9a\x44\x37\x1e\x1e\
    \x61\x75\x8f\x88\xe0\x07\x1c\x6c\x0c\x9f\x27\x2b\xbf\xa3\xc0\x5d\x0c\x00\x5a\x4e\x32\x90";
const RAW: &[u8] = b"\
    \x2b\x4e\x4d\x55\x70\x76\xf4\x73\x0c\x8a\xd4\x35\x4f\x33\x4e\xb4\x4c\xd6\x2d\x4e\x4d\x2e\x4a\
    \x2d\x01\x00";
const NOTES: &str = "mynotes.txt";
const COPY: &str = "entities/plan/s.json.bak";

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
    let names = |name: &str| {
        told.left
            .leftovers
            .contains(&at(name).display().to_string())
    };
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
            assert_eq!(told.left.unread, [""; 0], "look {nth}");
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
            assert!(!told.left.leftovers.contains(&path), "{turn}: {told:#?}");
            assert!(told.left.unread[0].starts_with(&path), "{turn}: {told:#?}");
        }
        for left in [NOTES, COPY].iter().filter(|left| **left != name) {
            disk.remove(&at(left)).unwrap();
        }
        // It can be read now. A projection that is as the journal has it holds nothing else; of another file nobody knows, and whoever was
        // told of it may have gone without a word: everybody is told, until a person says to have looked.
        let is_unknown = name == NOTES;
        for seed in 6..9 {
            let journal = open(&disk, 1, seed).unwrap();
            let told = redact(&journal).unwrap();
            assert_eq!(told.left.unverified.len(), usize::from(is_unknown));
            assert_eq!(told.is_clean(), !is_unknown, "{told:#?}");
            let verified = journal.verify().unwrap();
            assert!(verified.ok, "{verified:#?}");
            assert_eq!(verified.redactions_open, u64::from(is_unknown));
            let verdict = journal.examine().unwrap().verdict;
            assert_eq!(verdict == "all is well", !is_unknown, "{verdict}");
        }
        let journal = open(&disk, 1, 9).unwrap();
        let told = journal.let_be(&[]).unwrap();
        assert_eq!(told.let_be, u64::from(is_unknown));
        let told = redact(&journal).unwrap();
        assert!(told.is_clean(), "{told:#?}");
        assert_eq!(journal.examine().unwrap().verdict, "all is well");
    }
}

/// A3: how long a file was is asked of nobody who may not answer: the next run knew it for another file, told so once, and called all well.
#[test]
fn a_file_whose_length_nobody_is_told_is_a_holder_all_the_same() {
    let disk = store();
    let told = redact(&open_on(Failing::measureless(&disk, at(NOTES)), 5).unwrap()).unwrap();
    assert!(names_both(&told), "{told:#?}");
    for seed in 6..8 {
        let told = redact(&open(&disk, 1, seed).unwrap()).unwrap();
        assert!(
            names_both(&told) && told.left.changed.is_empty(),
            "{told:#?}"
        );
    }
}

#[test]
fn a_person_lets_be_what_was_looked_at_and_what_still_holds_it_only_by_its_name() {
    let disk = store();
    let journal = open(&disk, 1, 5).unwrap();
    redact(&journal).unwrap();
    disk.write(&at(COPY), b"something else").unwrap();
    let before = journal.remains().unwrap();
    assert_eq!(
        (before.leftovers.len(), before.changed.len()),
        (1, 1),
        "{before:#?}"
    );
    let unknown = journal.let_be(&[at(COPY), at("journal.json")]).unwrap_err();
    assert!(unknown.to_string().contains("journal.json"), "{unknown}");
    assert_eq!(journal.remains().unwrap(), before);
    // Changed or not, the bytes were found in both.
    let told = journal.let_be(&[]).unwrap();
    assert_eq!(told.left.count(), 2, "{told:#?}");
    assert_eq!(told.left.leftovers, [at(NOTES).display().to_string()]);
    assert_eq!(told.left.changed, [at(COPY).display().to_string()]);
    let told = journal.let_be(&[at(NOTES), at(COPY)]).unwrap();
    assert!(told.left.is_nothing(), "{told:#?}");
    assert!(redact(&journal).unwrap().is_clean());
}

#[test]
fn a_list_that_is_damaged_is_never_taken_for_an_empty_one() {
    let disk = store();
    let journal = open(&disk, 1, 5).unwrap();
    redact(&journal).unwrap();
    plant(&disk, "events/leftovers.json", b"{\"v\":1,\"files\":[{");
    for _ in 0..2 {
        let told = redact(&journal).unwrap();
        assert!(told.left.unfinished && !told.is_clean(), "{told:#?}");
    }
    journal.let_be(&[]).unwrap();
    assert!(redact(&journal).unwrap().is_clean());
}

/// B2: whoever comes next ends it, on the way to something else. A person hears of it, and can ask again.
#[test]
fn rd_03_who_ends_what_was_interrupted_tells_of_it() {
    let base = store();
    let disk = base.fork();
    let job = job_of(&base);
    plant(&disk, "events/redact.json", &job);
    let ended: Arc<std::sync::Mutex<Vec<Ended>>> = Arc::default();
    let heard = Arc::clone(&ended);
    let journal = open(&disk, 1, 6).unwrap();
    let journal = journal.with_ear(move |one| heard.lock().unwrap().push(one.clone()));
    assert!(journal.is_redacting());
    assert_eq!(journal.verify().unwrap().redactions_open, 1);
    assert!(journal.level().unwrap() && !journal.is_redacting());
    let all = std::mem::take(&mut *ended.lock().unwrap());
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].what, "plan/s");
    assert!(names_both(&all[0].told) && !all[0].told.redacted.is_empty());
    assert_eq!(journal.verify().unwrap().redactions_open, 2);
    assert!(names_both(&redact(&journal).unwrap()));
    assert!(ended.lock().unwrap().is_empty());
}

/// What compression hides: streams in streams, and those without a header. What lies too deep is told as not looked into.
#[test]
fn rd_01_what_is_deflated_within_what_is_deflated_is_found_or_told() {
    let disk = store();
    plant(&disk, "x/four.bin", FOUR_DEEP);
    plant(&disk, "x/five.bin", FIVE_DEEP);
    plant(&disk, "x/raw.bin", &[b"\xff\0", RAW].concat());
    let journal = open(&disk, 1, 5).unwrap();
    for _ in 0..2 {
        let told = redact(&journal).unwrap();
        let names = |name: &str| at(name).display().to_string();
        for name in ["x/four.bin", "x/raw.bin"] {
            assert!(told.left.leftovers.contains(&names(name)), "{told:#?}");
        }
        assert_eq!(told.left.unsearched, [names("x/five.bin")]);
    }
    for name in [NOTES, COPY, "x/four.bin", "x/raw.bin"] {
        disk.remove(&at(name)).unwrap();
    }
    assert!(!redact(&journal).unwrap().is_clean());
    journal.let_be(&[at("x/five.bin")]).unwrap();
    assert!(redact(&journal).unwrap().is_clean());
}

/// B3: a second name of a file, and a link, are no reason to call anything left; what they hold is.
#[test]
fn links_and_second_names_count_for_what_they_hold_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let journal = real(&root, 1);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    commit(&journal, vec![plan("good", 1)]);
    let inside = |name: &str| root.join(name);
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, inside(name)).unwrap();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("plain.txt"), "nothing of the kind").unwrap();
    std::fs::hard_link(inside("entities/plan/good.json"), folder.path().join("2nd")).unwrap();
    std::fs::hard_link(outside.join("plain.txt"), inside("plain.txt")).unwrap();
    link(Path::new("journal.json"), "a-link");
    link(Path::new("gone"), "a-link-to-nothing");
    link(&outside.join("plain.txt"), "a-link-out");
    link(&outside, "a-folder-out");
    rustix::fs::mkfifoat(rustix::fs::CWD, inside("a-pipe"), rustix::fs::Mode::RWXU).unwrap();
    for turn in 0..2 {
        let told = redact(&journal).unwrap();
        assert!(told.is_clean(), "{turn}: {told:#?}");
        // Where nobody looked is told with the search.
        let links = [inside("a-folder-out").display().to_string()];
        assert_eq!(told.links, &links[..links.len() - turn], "{turn}");
    }
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    std::fs::write(outside.join("secret.txt"), CANARY).unwrap();
    std::fs::write(outside.join("other.txt"), CANARY).unwrap();
    std::fs::hard_link(outside.join("other.txt"), inside("second-name")).unwrap();
    link(&outside.join("secret.txt"), "to-a-secret");
    link(Path::new("see CANARY-7f3a9c-secret"), "says-it");
    for turn in 0..2 {
        let told = redact(&journal).unwrap();
        let names = ["says-it", "second-name", "to-a-secret"];
        let names = names.map(|name| inside(name).display().to_string());
        assert_eq!(told.left.leftovers, names, "{turn}");
        assert!(told.left.unread.is_empty(), "{turn}: {told:#?}");
    }
}

/// T-64: what is erased is a plain file with one name; of any other nobody says that it was.
#[test]
fn t_64_a_segment_with_a_second_name_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let journal = real(&root, 1);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    let segment = root.join("events/seg-00000000000000000001.jsonl");
    std::fs::hard_link(&segment, root.join("copy.jsonl")).unwrap();
    assert!(redact(&journal).is_err());
    std::fs::remove_file(root.join("copy.jsonl")).unwrap();
    assert!(redact(&journal).unwrap().is_clean());
    assert!(!std::fs::read_to_string(segment).unwrap().contains("CANARY"));
}

/// What a blob says is what to search for. One that has a second name, or cannot be read, or is gone, is not "no text to search for".
#[test]
fn rd_01_the_content_of_a_blob_is_searched_for_or_it_is_told_that_it_was_not() {
    let large = || {
        put(
            "plan",
            "s",
            json!({"note": CANARY, "t": "x".repeat(70_000)}),
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let journal = real(&root, 1);
    commit(&journal, vec![large()]);
    // In memory the content has the same hash.
    let base = MemDisk::new();
    commit(&init(&base), vec![large()]);
    let files = base.files();
    let blob = files
        .keys()
        .find(|path| path.starts_with(at("events/blobs")));
    let name = blob.unwrap().strip_prefix(ROOT).unwrap();
    let copy = root.join("copy.json");
    std::fs::hard_link(root.join(name), &copy).unwrap();
    let told = redact(&journal).unwrap();
    assert_eq!(told.left.leftovers, [copy.display().to_string()]);

    let name = name.to_str().unwrap();
    plant(&base, NOTES, CANARY.as_bytes());
    let unread = base.fork();
    let shut = open_on(Failing::shut(&unread, at(name)), 5).unwrap();
    let told = redact(&shut).unwrap();
    assert!(told.left.unfinished && !told.is_clean(), "{told:#?}");
    let told = redact(&open(&unread, 1, 6).unwrap()).unwrap();
    assert!(told.left.unfinished && !told.is_clean(), "{told:#?}");
    let gone = base.fork();
    gone.remove(&at(name)).unwrap();
    let told = redact(&open(&gone, 1, 7).unwrap()).unwrap();
    assert_eq!((told.lost, told.searched), (1, false), "{told:#?}");
}

/// A name that is no text was passed over.
#[cfg(target_os = "linux")]
#[test]
fn rd_01_a_file_whose_name_is_no_text_is_searched_and_counted() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    let journal = real(&root, 1);
    commit(&journal, vec![put("plan", "s", json!({"note": CANARY}))]);
    let below = root.join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&below).unwrap();
    std::fs::write(below.join("notes.txt"), CANARY).unwrap();
    let told = redact(&journal).unwrap();
    assert_eq!(told.left.leftovers.len(), 1, "{told:#?}");
    let told = redact(&journal).unwrap();
    assert_eq!(told.left.hidden, 1, "{told:#?}");
    assert_eq!(journal.let_be(&[]).unwrap().let_be, 0);
    journal.let_be(&[below.join("notes.txt")]).unwrap();
    assert!(redact(&journal).unwrap().is_clean());
}

/// A list of an older build calls a file a holder that could not be read once.
#[test]
fn a_projection_that_is_as_the_journal_has_it_is_taken_from_the_list() {
    let disk = store();
    let journal = open(&disk, 1, 5).unwrap();
    let good = "entities/plan/good.json";
    let bytes = disk.len(&at(good)).unwrap();
    let list = json!({"v": 2, "files": [{"path": good, "bytes": bytes}]});
    plant(&disk, "events/leftovers.json", &stamped(&list));
    let told = redact(&journal).unwrap();
    assert!(
        names_both(&told) && told.left.leftovers.len() == 2,
        "{told:#?}"
    );
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
    plant(&disk, "events/redact.json", &stamped(&older));
    // Somebody else comes first and finishes it: who asks for it hears all the same.
    let journal = open(&disk, 1, 6).unwrap();
    commit(&journal, vec![plan("other", 1)]);
    let told = redact(&journal).unwrap();
    assert!(told.left.unfinished && !told.is_clean(), "{told:#?}");
    // One that was cut off before it had erased anything is searched as ever.
    let disk = store();
    plant(&disk, "events/redact.json", &stamped(&older));
    let told = redact(&open(&disk, 1, 7).unwrap()).unwrap();
    assert!(names_both(&told) && !told.left.unfinished, "{told:#?}");
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
                    .left
                    .leftovers
                    .iter()
                    .any(|name| name.contains("CANARY"))
            );
            return;
        }
        let told = redact(&open(&image, 1, 79).unwrap()).unwrap();
        let is_named = told
            .left
            .leftovers
            .iter()
            .any(|name| name.contains("CANARY"));
        let is_last = !image.files().contains_key(&at("events/redact.json")) && stop > 40;
        assert!(
            is_named || told.left.hidden == 1 || is_last,
            "{stop}: {told:#?}"
        );
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
    assert!(told.left.unread[0].contains("backups"), "{told:#?}");
    assert!(
        !told.is_clean() && told.left.leftovers.is_empty(),
        "{told:#?}"
    );
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
            told.left.leftovers.contains(&name) && !told.is_clean(),
            "{told:#?}"
        );
        assert!(told.left.unverified.is_empty(), "{told:#?}");
    }
}
