//! The logs of an older store, wherever its versions put them: each is parked, or named.
#![cfg(test)]

mod support;

use std::path::Path;
use std::sync::Arc;

use heddle_journal::Journal;
use heddle_journal::action::Mode;
use heddle_journal::disk::{Disk, MemDisk};
use support::*;

const OLD: &str = "/repo/.brainclaw";

fn plant(disk: &MemDisk, name: &str, text: &str) {
    let path = Path::new(OLD).join(name);
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.write(&path, text.as_bytes()).unwrap();
}

#[test]
fn every_log_of_an_older_store_is_parked_and_one_elsewhere_is_named() {
    let disk = MemDisk::new();
    plant(&disk, "plans/p.json", "{\"title\":\"p\"}");
    plant(&disk, "events.jsonl", "{\"n\":1}\n{\"n\":2}");
    plant(&disk, "events/events.jsonl", "{\"n\":3}\n");
    plant(&disk, "events.v1.jsonl", "{\"n\":3}\n");
    plant(&disk, "memory/events.jsonl", "{\"n\":4}\n");
    plant(&disk, "archive/events.jsonl", "{\"n\":5}\n");
    disk.sync_all(Path::new("/")).unwrap();
    let world = world(Arc::new(disk.clone()), 1, 1);
    let source = Some(Path::new(OLD));
    let told = Journal::migrate(world, Path::new(ROOT), who(), source, Mode::Dual, false).unwrap();
    let journal = open(&disk, 1, 2).unwrap();
    let parked = disk.files()[&journal.layout().parked_log()].clone();
    let parked = String::from_utf8(parked).unwrap();
    assert_eq!(parked, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", "a copy once");
    assert_eq!(told.events_parked, 3);
    assert_eq!(told.ignored, ["/repo/.brainclaw/memory/events.jsonl"]);
    assert_eq!(told.passed_over, ["/repo/.brainclaw/archive (1 files)"]);
}
