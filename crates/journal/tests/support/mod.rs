//! A journal on a disk in memory, a clock with a boot id, and short words for changes.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each suite uses its own part of it"
)]

/// What a disk over another one hands on as it is, whatever else it does.
macro_rules! handed_on {
    () => {
        fn create_dir(&self, path: &Path) -> Io<()> {
            self.disk.create_dir(path)
        }
        fn create(&self, path: &Path) -> Io<()> {
            self.disk.create(path)
        }
        fn sync(&self, path: &Path) -> Io<()> {
            self.disk.sync(path)
        }
        fn sync_dir(&self, path: &Path) -> Io<()> {
            self.disk.sync_dir(path)
        }
        fn sync_all(&self, path: &Path) -> Io<()> {
            self.disk.sync_all(path)
        }
        fn try_lock(&self, path: &Path) -> Io<Option<Box<dyn LockGuard>>> {
            self.disk.try_lock(path)
        }
    };
}
use handed_on;

pub mod counting;
pub mod failing;
pub mod model;
pub mod power;
pub mod stores;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{BootTime, Clock, ManualIds, WallMs};
use heddle_journal::action::Action;
use heddle_journal::disk::{Disk, MemDisk, RealDisk};
use heddle_journal::record::{Batch, Record};
use heddle_journal::{Change, Journal, JournalError, Settings, Who, World};
use serde_json::{Value, json};

pub const ROOT: &str = "/repo/.heddle";

/// A name in the store.
pub fn at(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

/// A file of the store, whoever put it there.
pub fn plant(disk: &MemDisk, name: &str, bytes: &[u8]) {
    let path = at(name);
    disk.create_dir(path.parent().unwrap()).unwrap();
    disk.write(&path, bytes).unwrap();
    disk.sync_all(Path::new("/")).unwrap();
}

/// Stands still; which start of the machine it belongs to is the test's to say.
#[derive(Debug)]
pub struct TestClock {
    pub boot: u128,
}

impl Clock for TestClock {
    fn wall(&self) -> WallMs {
        WallMs(1_794_000_000_000)
    }

    fn mono(&self) -> Duration {
        Duration::ZERO
    }

    fn boot(&self) -> Option<BootTime> {
        Some(BootTime {
            boot: self.boot,
            since: Duration::ZERO,
        })
    }
}

pub fn world(disk: Arc<dyn Disk>, boot: u128, seed: u64) -> World {
    World {
        disk,
        clock: Arc::new(TestClock { boot }),
        ids: Arc::new(ManualIds::seeded(seed)),
    }
}

pub fn who() -> Who {
    Who {
        agent: "tester".to_owned(),
        agent_id: None,
        user: None,
    }
}

/// Somebody else on the same disk.
pub fn as_bob(disk: &MemDisk, boot: u128, settings: &Settings) -> Journal {
    let world = world(Arc::new(disk.clone()), boot, 77);
    let who = Who {
        agent: "bob".to_owned(),
        ..who()
    };
    let journal = Journal::open(world, Path::new(ROOT), who).unwrap();
    journal.with_settings(settings.clone())
}

pub fn quick() -> Settings {
    Settings {
        lock_wait: Duration::ZERO,
        ..Settings::default()
    }
}

pub fn init(disk: &MemDisk) -> Journal {
    disk.create_dir(Path::new("/repo")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let journal = Journal::init(world(Arc::new(disk.clone()), 1, 1), Path::new(ROOT), who());
    journal.unwrap().with_settings(quick())
}

pub fn open(disk: &MemDisk, boot: u128, seed: u64) -> Result<Journal, JournalError> {
    let journal = Journal::open(
        world(Arc::new(disk.clone()), boot, seed),
        Path::new(ROOT),
        who(),
    )?;
    Ok(journal.with_settings(quick()))
}

/// On whatever disk.
pub fn open_on(disk: Arc<dyn Disk>, seed: u64) -> Result<Journal, JournalError> {
    let journal = Journal::open(world(disk, 1, seed), Path::new(ROOT), who())?;
    Ok(journal.with_settings(quick()))
}

pub fn real(root: &Path, seed: u64) -> Journal {
    let world = world(Arc::new(RealDisk), 1, seed);
    Journal::init(world, root, who()).unwrap()
}

pub fn put(item_type: &str, id: &str, document: Value) -> Change {
    Change {
        item_type: item_type.to_owned(),
        item_id: Some(id.to_owned()),
        action: Some(Action::Update),
        document: Some(document),
        summary: None,
    }
}

pub fn plan(id: &str, n: u64) -> Change {
    put(
        "plan",
        id,
        json!({"title": format!("the plan {id}"), "n": n}),
    )
}

pub fn delete(item_type: &str, id: &str) -> Change {
    Change {
        item_type: item_type.to_owned(),
        item_id: Some(id.to_owned()),
        action: Some(Action::Delete),
        document: None,
        summary: None,
    }
}

pub fn event(action: Action, item_type: &str, id: Option<&str>) -> Change {
    Change {
        item_type: item_type.to_owned(),
        item_id: id.map(str::to_owned),
        action: Some(action),
        document: None,
        summary: None,
    }
}

#[track_caller]
pub fn commit(journal: &Journal, changes: Vec<Change>) -> Vec<heddle_journal::Receipt> {
    journal.mutate_whole(changes).unwrap()
}

/// Seqs of all records, as the log shows them.
pub fn seqs(journal: &Journal) -> Vec<u64> {
    let log = journal.log(0, usize::MAX).unwrap();
    let seq = |line: &serde_json::value::RawValue| {
        let value: Value = serde_json::from_str(line.get()).unwrap();
        value["seq"].as_u64().unwrap()
    };
    log.iter().map(|line| seq(line)).collect()
}

pub fn actions(journal: &Journal) -> Vec<String> {
    let log = journal.log(0, usize::MAX).unwrap();
    let action = |line: &serde_json::value::RawValue| {
        let value: Value = serde_json::from_str(line.get()).unwrap();
        value["action"].as_str().unwrap().to_owned()
    };
    log.iter().map(|line| action(line)).collect()
}

/// A sound line with a sound checksum, as somebody would write who knows the format.
pub fn forged(seq: u64, writer: &str, id: &str, rev: u64, payload: &Value) -> Vec<u8> {
    forged_of("plan", seq, writer, id, rev, payload)
}

/// The same of any type.
pub fn forged_of(
    item_type: &str,
    seq: u64,
    writer: &str,
    id: &str,
    rev: u64,
    payload: &Value,
) -> Vec<u8> {
    let payload = serde_json::value::to_raw_value(payload).unwrap();
    let record = Record {
        v: 2,
        seq,
        ts: "t".into(),
        writer: writer.into(),
        agent: "forger".into(),
        agent_id: None,
        user: None,
        action: Action::Update,
        item_type: item_type.into(),
        item_id: Some(id.into()),
        entity_rev: Some(rev),
        summary: None,
        payload: Some(&payload),
        payload_ref: None,
        redacted: None,
        request: None,
        batch: Batch {
            id: format!("b{writer}{seq}{}", payload.get()).into(),
            i: 0,
            n: 1,
        },
    };
    let mut bytes = Vec::new();
    record.encode_into(&mut bytes).unwrap();
    bytes
}

/// A small file with a sound checksum, whatever it says.
pub fn stamped(document: &Value) -> Vec<u8> {
    let mut document = document.clone();
    document.as_object_mut().unwrap().remove("crc");
    let text = document.to_string();
    let open = text.strip_suffix('}').unwrap();
    let crc = crc32c::crc32c(text.as_bytes());
    format!("{open},\"crc\":\"{crc:08x}\"}}\n").into_bytes()
}

/// `meta.json` as a build wrote it that knew no checksum.
pub fn unstamp(bytes: &mut Vec<u8>) {
    let text = String::from_utf8(bytes.clone()).unwrap();
    let end = text.rfind(",\"crc\":\"").unwrap();
    let bare = text[..end].replacen("\"v\":3", "\"v\":1", 1);
    *bytes = format!("{}}}\n", bare.replacen("\"v\":4", "\"v\":2", 1)).into_bytes();
}
