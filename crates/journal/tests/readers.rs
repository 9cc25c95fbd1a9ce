//! Readers are told what they cannot be shown: lost records, erased content, a journal that was put back; and nothing is used up
//! for them that they were not shown.
#![cfg(test)]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use heddle_journal::disk::{Disk, MemDisk};
use heddle_journal::federation::{ExportAsk, Renew};
use heddle_journal::{Journal, JournalError, Page, Settings};
use serde_json::{Value, json};
use support::power::{item, small};
use support::*;

const CURSOR: &str = "/repo/.heddle/events/cursors/r.json";
const ACTIVE: &str = "/repo/.heddle/events/seg-00000000000000000001.jsonl";

fn parsed(page: &Page) -> Vec<Value> {
    let events = page.events.iter();
    events
        .map(|e| serde_json::from_str(e.get()).unwrap())
        .collect()
}

fn seqs_of(page: &Page) -> Vec<u64> {
    parsed(page)
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect()
}

/// A store of these many records, and another process that reads it.
fn store(records: u64) -> (MemDisk, Journal, Journal) {
    let disk = MemDisk::new();
    let writer = init(&disk);
    for n in 1..=records {
        commit(&writer, vec![plan("a", n)]);
    }
    let reader = open(&disk, 1, 40).unwrap();
    (disk, writer, reader)
}

/// A line of a segment is no record any more.
fn damage(disk: &MemDisk, seq: u64) {
    let begin = format!("{{\"v\":2,\"seq\":{seq},");
    disk.tamper(Path::new(ACTIVE), |bytes| {
        let at = memchr_of(bytes, begin.as_bytes());
        bytes[at + 40] ^= 1;
    });
}

fn memchr_of(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|w| w == text).unwrap()
}

#[test]
fn a_record_that_is_lost_in_the_middle_is_told_to_every_reader_that_passes_it() {
    let (disk, writer, reader) = store(6);
    assert_eq!(seqs_of(&reader.events("before", 2, false).unwrap()), [1, 2]);
    damage(&disk, 3);
    damage(&disk, 4);
    let page = reader.events("r", 100, true).unwrap();
    assert_eq!((page.gap, &page.missing[..]), (true, &[[3, 4]][..]));
    assert_eq!(seqs_of(&page), [1, 2, 5, 6]);
    let page = reader.events("before", 100, false).unwrap();
    assert_eq!((page.gap, &page.missing[..]), (true, &[[3, 4]][..]));
    // A page that ends before the place says nothing of it; one that begins behind it neither.
    let page = reader.events("r", 2, false).unwrap();
    assert_eq!((page.gap, page.missing.len(), page.last_seq), (false, 0, 2));
    let page = reader.events("r", 1, false).unwrap();
    assert_eq!((page.gap, page.missing.len(), page.last_seq), (true, 1, 5));
    let page = reader.events("r", 9, false).unwrap();
    assert_eq!((page.gap, page.missing.len(), page.last_seq), (false, 0, 6));
    assert_eq!(reader.history(0, 100).unwrap().missing, [[3, 4]]);
    assert_eq!(reader.history(4, 100).unwrap().missing, [[0; 2]; 0]);
    // Also where a person has accepted it, and where another segment goes on.
    writer.accept_gaps("lost for good").unwrap();
    assert_eq!(reader.events("late", 100, true).unwrap().missing, [[3, 4]]);
}

#[test]
fn a_segment_that_is_gone_and_an_end_that_is_lost_are_told() {
    let disk = MemDisk::new();
    let writer = small(init(&disk), 700);
    for n in 1..=13 {
        commit(&writer, vec![plan("a", n)]);
    }
    let names: Vec<String> = {
        let all = disk.list(Path::new("/repo/.heddle/events")).unwrap();
        let all = all.into_iter().map(|entry| entry.name);
        all.filter(|name| name.starts_with("seg-")).collect()
    };
    assert!(names.len() > 3, "{names:?}");
    let first_of = |name: &str| name[4..24].parse::<u64>().unwrap();
    let image = disk.fork();
    let events = Path::new("/repo/.heddle/events");
    image.remove(&events.join(&names[1])).unwrap();
    let reader = open(&image, 1, 40).unwrap();
    let page = reader.events("r", 1000, true).unwrap();
    let gap = [first_of(&names[1]), first_of(&names[2]) - 1];
    assert_eq!((page.gap, page.missing.contains(&gap)), (true, true));
    // The end: the cache has seen more than there is.
    let image = disk.fork();
    let last = names.last().unwrap();
    image.tamper(&events.join(last), Vec::clear);
    let reader = open(&image, 1, 40).unwrap();
    let page = reader.events("r", 1000, true).unwrap();
    let lost = page.missing.last().copied();
    assert_eq!(
        lost.map(|[first, _]| first),
        Some(first_of(last)),
        "{page:?}"
    );
    assert!(page.gap);
}

#[test]
fn a_sound_journal_has_no_gap_whatever_it_went_through() {
    let disk = MemDisk::new();
    let writer = small(init(&disk), 700);
    for n in 1..=8 {
        commit(&writer, vec![plan("a", n), plan("b", n)]);
    }
    writer.redact(&item("plan", "b"), "asked for").unwrap();
    disk.remove(&writer.layout().meta()).unwrap();
    commit(&open(&disk, 2, 7).unwrap(), vec![plan("a", 9)]);
    let reader = open(&disk, 2, 40).unwrap();
    let page = reader.events("r", 1000, false).unwrap();
    assert_eq!((page.gap, page.missing.len()), (false, 0), "{page:?}");
    let page = reader.events("r", 1000, false).unwrap();
    assert_eq!((page.gap, page.events.len()), (false, 0), "{page:?}");
}

/// RD-06 for readers: an old copy of a segment brings back what was erased, and nobody prints it.
#[test]
fn erased_content_that_an_old_copy_brought_back_is_printed_by_no_reader() {
    const CANARY: &str = "CANARY-4711";
    for rolls in [false, true] {
        let disk = MemDisk::new();
        let writer = small(init(&disk), if rolls { 900 } else { 1 << 20 });
        commit(&writer, vec![plan("a", 1)]);
        let mut secret = put("plan", "s", json!({"title": CANARY}));
        secret.summary = Some(format!("about {CANARY}"));
        commit(&writer, vec![secret]);
        let old = disk.files()[Path::new(ACTIVE)].clone();
        commit(&writer, vec![plan("a", 2)]);
        writer.redact(&item("plan", "s"), "asked for").unwrap();
        for n in 3..if rolls { 30 } else { 4 } {
            commit(&writer, vec![plan("a", n)]);
        }
        let list = Path::new(ROOT).join("events/erased.json");
        assert_eq!(disk.files().contains_key(&list), rolls);
        // The bytes of before, in their places.
        disk.tamper(Path::new(ACTIVE), |bytes| {
            bytes[..old.len()].copy_from_slice(&old);
        });
        let images = [disk.fork(), disk.fork(), disk.fork()];
        if rolls {
            images[1].remove(&list).unwrap();
            images[2].tamper(&list, |bytes| {
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
            });
        }
        for image in images {
            let held = image.files()[Path::new(ACTIVE)].clone();
            assert!(String::from_utf8_lossy(&held).contains(CANARY));
            let reader = open(&image, 1, 40).unwrap();
            let log = reader.history(0, 1000).unwrap();
            let events = reader.events("r", 1000, true).unwrap();
            for page in [&log, &events] {
                let record = parsed(page).into_iter().find(|e| e["seq"] == 2).unwrap();
                assert_eq!(
                    (&record["redacted"], &record["item_id"]),
                    (&json!(1), &json!("s"))
                );
                assert!(page.events.iter().all(|e| !e.get().contains(CANARY)));
            }
            let ask = ExportAsk {
                since: 0,
                limit: 1000,
                types: Vec::new(),
                renew: Renew::No,
            };
            let told = reader.export_slice(&ask).unwrap();
            assert!(!String::from_utf8_lossy(&told.slice).contains(CANARY));
            assert_eq!(told.redacted, 1);
        }
    }
}

/// Who asks for plans has not been shown the decisions.
#[test]
fn a_reader_of_one_type_uses_up_nothing_of_the_others() {
    let disk = MemDisk::new();
    let writer = init(&disk);
    let reader = open(&disk, 1, 40).unwrap();
    for n in 1..=3 {
        commit(&writer, vec![plan("p", n)]);
        let decision = put("decision", "d", json!({"title": "d", "n": n}));
        commit(&writer, vec![decision]);
    }
    let of = |kind: Option<&str>, limit| reader.events_of("r", kind, limit, false).unwrap();
    assert_eq!(seqs_of(&of(Some("plan"), 2)), [1, 3]);
    assert_eq!(seqs_of(&of(Some("plan"), 9)), [5]);
    assert_eq!(seqs_of(&of(Some("plan"), 9)), [0; 0], "each once");
    assert_eq!(seqs_of(&of(Some("decision"), 1)), [2]);
    assert_eq!(seqs_of(&of(None, 4)), [1, 2, 3, 4], "nothing was used up");
    // What was shown among all is not shown again by its type.
    assert_eq!(seqs_of(&of(Some("decision"), 9)), [6]);
    assert_eq!(seqs_of(&of(None, 9)), [5, 6]);
    assert_eq!(seqs_of(&of(Some("claim"), 9)), [0; 0]);
}

/// The tool of an agent looks, shows what fits, and moves behind that alone, whoever else does the same under its name.
#[test]
fn two_who_look_under_one_name_pass_nothing_that_neither_was_shown() {
    let (_disk, _writer, reader) = store(10);
    let (one, two) = (
        reader.events("r", 100, true).unwrap(),
        reader.events("r", 100, true).unwrap(),
    );
    assert_eq!(reader.events_shown(&one, 5).unwrap(), 5);
    assert_eq!(reader.events_shown(&two, 3).unwrap(), 3);
    let page = reader.events("r", 100, true).unwrap();
    assert_eq!(seqs_of(&page)[0], 6);
    assert_eq!(reader.events_shown(&page, 5).unwrap(), 10);
    assert_eq!(reader.events("r", 100, true).unwrap().events.len(), 0);
}

/// All but the watermarks is of before, and of these an older build wrote no checksum: nothing is left that says how far the journal was.
fn put_back(disk: &MemDisk, older: &MemDisk) {
    for path in disk.files().into_keys() {
        let is_cursor = path.starts_with("/repo/.heddle/events/cursors");
        if !is_cursor && path.extension().is_none_or(|end| end != "lock") {
            match older.files().get(&path) {
                Some(before) => assert!(disk.tamper(&path, |bytes| bytes.clone_from(before))),
                None => disk.remove(&path).unwrap(),
            }
        }
    }
    forget_how_far(disk);
}

fn forget_how_far(disk: &MemDisk) {
    disk.remove(&Path::new(ROOT).join("events/lock")).unwrap();
    for path in disk.files().into_keys() {
        let is_cursor = path.starts_with("/repo/.heddle/events/cursors");
        if is_cursor && path.extension().is_some_and(|end| end == "json") {
            disk.tamper(&path, |bytes| {
                let text = String::from_utf8(bytes.clone()).unwrap();
                let end = text.rfind(",\"crc\":\"").unwrap();
                *bytes = format!("{}}}", &text[..end]).into_bytes();
            });
        }
    }
}

#[test]
fn a_reader_ahead_of_a_journal_that_was_put_back_is_told_and_misses_nothing_new() {
    let (disk, writer, reader) = store(3);
    let older = disk.fork();
    for n in 4..=6 {
        commit(&writer, vec![plan("a", n)]);
    }
    assert_eq!(reader.events("r", 100, false).unwrap().last_seq, 6);
    assert_eq!(
        reader
            .events_of("r", Some("plan"), 9, false)
            .unwrap()
            .last_seq,
        6
    );
    put_back(&disk, &older);
    // Before anything is written, and looking alone moves nothing.
    let reader = open(&disk, 1, 41).unwrap();
    for _ in 0..2 {
        let page = reader.events("r", 100, true).unwrap();
        assert_eq!(
            (page.gap, page.rewound_from, page.last_seq),
            (true, Some(6), 3)
        );
    }
    let page = reader.events("r", 100, false).unwrap();
    assert_eq!((page.gap, page.rewound_from), (true, Some(6)));
    let writer = open(&disk, 1, 42).unwrap();
    commit(&writer, vec![plan("a", 7)]);
    let page = reader.events("r", 100, false).unwrap();
    assert_eq!((page.gap, seqs_of(&page)), (false, vec![4]));
    let page = reader.events_of("r", Some("plan"), 100, false).unwrap();
    assert_eq!(seqs_of(&page), [0; 0], "{page:?}");
}

/// Everything else is of before: that a reader was shown more is enough to tell of a loss and to give no seq again. Behind a power cut it is not:
/// what it was shown may not have been synced.
#[test]
fn jn_11_a_watermark_alone_tells_of_records_that_are_gone_and_their_seqs_are_not_given_again() {
    let (disk, writer, reader) = store(3);
    let older = disk.fork();
    for n in 4..=6 {
        commit(&writer, vec![plan("a", n)]);
    }
    assert_eq!(reader.events("r", 100, false).unwrap().last_seq, 6);
    let cursor = disk.files()[Path::new(CURSOR)].clone();
    put_back(&disk, &older);
    disk.tamper(Path::new(CURSOR), |bytes| *bytes = cursor);
    for (boot, next) in [(1, 7), (2, 4)] {
        let image = disk.fork();
        let reader = open(&image, boot, 44).unwrap();
        let is_told = boot == 1;
        assert_eq!(reader.verify().unwrap().ok, !is_told);
        assert_eq!(reader.losses().unwrap().contains(&[4, 6]), is_told);
        let writer = open(&image, boot, 45).unwrap();
        let receipt = &commit(&writer, vec![plan("a", 7)])[0];
        assert_eq!(receipt.seq, Some(next));
        assert_eq!(writer.verify().unwrap().ok, !is_told);
        if is_told {
            assert!(receipt.entity_rev > Some(6), "{receipt:?}");
            let page = reader.events("r", 100, false).unwrap();
            assert_eq!((page.gap, seqs_of(&page)), (false, vec![7]));
        }
    }
    // A bit of it is flipped: neither a loss nor a seq that is skipped.
    disk.tamper(Path::new(CURSOR), |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes = text
            .replacen("\"last_seq\":6", "\"last_seq\":7", 1)
            .into_bytes();
    });
    assert!(open(&disk, 1, 46).unwrap().verify().unwrap().ok);
}

/// It has grown past the watermark before the reader came: the number fits, the record is another's.
#[test]
fn a_journal_that_was_put_back_and_went_on_past_the_watermark_is_told_from_the_one_of_before() {
    let (disk, writer, reader) = store(3);
    let older = disk.fork();
    for n in 4..=6 {
        commit(&writer, vec![plan("a", n)]);
    }
    assert_eq!(reader.events("r", 100, false).unwrap().last_seq, 6);
    put_back(&disk, &older);
    let writer = open(&disk, 1, 42).unwrap();
    for n in 10..=14 {
        commit(&writer, vec![plan("b", n)]);
    }
    let reader = open(&disk, 1, 41).unwrap();
    let page = reader.events("r", 100, false).unwrap();
    assert_eq!((page.gap, page.rewound_from), (true, Some(6)));
    assert_eq!(
        seqs_of(&page),
        [1, 2, 3, 4, 5, 6, 7, 8],
        "twice is better than never"
    );
    let page = reader.events("r", 100, false).unwrap();
    assert_eq!((page.gap, page.events.len()), (false, 0));
}

/// The end is lost with all that knew of it, and what is recorded next gets a seq that the reader has passed.
#[test]
fn jn_22_a_record_that_gets_a_seq_of_a_lost_end_is_shown_to_a_reader_beyond_it() {
    for kind in [None, Some("plan")] {
        let (disk, writer, reader) = store(3);
        let read = |limit| {
            let page = reader.events_of("r", kind, limit, false).unwrap();
            (page.gap, page.rewound_from, seqs_of(&page))
        };
        assert_eq!(read(2), (false, None, vec![1, 2]));
        assert_eq!(read(9), (false, None, vec![3]));
        let bytes = disk.files()[Path::new(ACTIVE)].clone();
        for n in 4..=6 {
            commit(&writer, vec![plan("a", n)]);
        }
        assert_eq!(read(9), (false, None, vec![4, 5, 6]));
        // Also where the reader has a mark of its own for everything.
        reader.events("r", 100, false).unwrap();
        disk.tamper(Path::new(ACTIVE), |now| *now = bytes);
        for name in ["meta.json", "revisions.idx"] {
            disk.remove(&Path::new(ROOT).join("events").join(name))
                .unwrap();
        }
        forget_how_far(&disk);
        let writer = &open(&disk, 1, 42).unwrap();
        commit(writer, vec![plan("new", 1)]);
        let looked = reader.events_of("r", kind, 9, true).unwrap();
        assert_eq!(seqs_of(&looked), [4], "from where both are the same");
        assert_eq!(read(9), (true, Some(6), vec![4]), "{kind:?}");
        commit(writer, vec![plan("new", 2)]);
        // The same number again, by whomever: another record.
        commit(writer, vec![plan("new", 3)]);
        let page = read(9);
        assert_eq!(page.2, [5, 6], "{kind:?} {page:?}");
        assert_eq!(read(9).2, [0; 0]);
    }
}

/// One process, whose journal lost its end under it: the same writer, the same seq, another record.
#[test]
fn jn_22_a_seq_that_one_writer_gave_twice_is_not_taken_for_the_one_that_was_read() {
    let (disk, writer, reader) = store(2);
    assert_eq!(reader.events("r", 100, false).unwrap().last_seq, 2);
    let bytes = disk.files()[Path::new(ACTIVE)].clone();
    commit(&writer, vec![plan("a", 3)]);
    assert_eq!(reader.events("r", 100, false).unwrap().last_seq, 3);
    disk.tamper(Path::new(ACTIVE), |now| *now = bytes);
    for name in ["meta.json", "revisions.idx"] {
        disk.remove(&Path::new(ROOT).join("events").join(name))
            .unwrap();
    }
    forget_how_far(&disk);
    commit(&writer, vec![plan("new", 1)]);
    let page = reader.events("r", 100, false).unwrap();
    assert_eq!((page.gap, seqs_of(&page)), (true, vec![3]));
    // What is erased afterwards is the same record still.
    writer.redact(&item("plan", "new"), "asked for").unwrap();
    let page = reader.events("r", 100, false).unwrap();
    assert_eq!((page.gap, page.events.len()), (false, 0), "{page:?}");
}

/// It has read on in the journal that was put back: the mark at which both part is not the newest, nor forgotten.
#[test]
fn jn_22_a_trail_of_marks_is_bounded_and_says_how_far_a_journal_is_the_same() {
    let (disk, writer, reader) = store(40);
    for _ in 0..40 {
        assert_eq!(reader.events("r", 1, false).unwrap().events.len(), 1);
    }
    let older = disk.fork();
    for n in 0..200 {
        commit(&writer, vec![plan("b", n)]);
        reader.events("r", 1, false).unwrap();
    }
    let cursor = Path::new(ROOT).join("events/cursors/r.json");
    let text = String::from_utf8(disk.files()[&cursor].clone()).unwrap();
    assert!(text.len() < 4096, "{text}");
    put_back(&disk, &older);
    commit(&open(&disk, 1, 43).unwrap(), vec![plan("c", 1)]);
    let page = reader.events("r", 1000, false).unwrap();
    let seqs = seqs_of(&page);
    assert_eq!((page.gap, page.rewound_from), (true, Some(240)));
    assert_eq!(seqs.last(), Some(&41));
    assert!(seqs[0] > 1, "not from the beginning: {seqs:?}");
    assert_eq!(reader.events("r", 10, false).unwrap().events.len(), 0);
}

#[test]
fn a_reader_whose_name_another_process_holds_waits_and_is_told_so() {
    let (disk, _writer, reader) = store(2);
    let lock = PathBuf::from("/repo/.heddle/events/cursors/r.lock");
    reader.events("r", 1, false).unwrap();
    let guard = disk.try_lock(&lock).unwrap().unwrap();
    let Err(error) = reader.events("r", 100, false) else {
        panic!("two moved one watermark");
    };
    assert!(matches!(error, JournalError::ReaderBusy { .. }), "{error}");
    let words = error.to_string();
    assert!(words.contains("reads as \"r\""), "{words}");
    assert!(!words.contains("writing"), "{words}");
    // Others read meanwhile, and who may wait gets what is left.
    assert_eq!(reader.events("other", 9, false).unwrap().events.len(), 2);
    let patient = open(&disk, 1, 41).unwrap().with_settings(Settings {
        lock_wait: Duration::from_secs(60),
        ..Settings::default()
    });
    let waiting = std::thread::spawn(move || {
        let page = patient.events("r", 100, false).unwrap();
        seqs_of(&page)
    });
    drop(guard);
    assert_eq!(waiting.join().unwrap(), [2]);
}

/// Printed first, marked then: who dies in between, or could not print, is shown the same again.
#[test]
fn jn_22_a_page_that_was_not_shown_moves_no_watermark() {
    let disk = MemDisk::new();
    let journal = init(&disk);
    commit(&journal, vec![plan("a", 1)]);
    commit(&journal, vec![plan("b", 1)]);
    let reader = open(&disk, 1, 91).unwrap();
    let reading = reader.reading("r", None, 1).unwrap();
    assert_eq!(reading.page().events.len(), 1);
    // Another process of this reader waits: it would show the same.
    let other = open(&disk, 1, 92).unwrap().events("r", 1, false);
    assert!(matches!(other, Err(JournalError::ReaderBusy { .. })));
    drop(reading);
    let again = reader.reading("r", None, 1).unwrap();
    let first = again.page().events[0].get().to_owned();
    assert!(first.contains("\"seq\":1,"), "{first}");
    again.shown().unwrap();
    let next = reader.events("r", 9, false).unwrap();
    assert_eq!(next.events.len(), 1);
    assert!(next.events[0].get().contains("\"seq\":2,"));
}
