//! Real processes on a real disk: contention, kill -9, a stopped lock holder, group commit.
#![cfg(test)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests read the real clock and their worker's order"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heddle_journal::disk::RealDisk;
use heddle_journal::{Journal, JournalError, Settings};
use serde_json::Value;
use support::*;
use tempfile::TempDir;

const ORDER: &str = "HEDDLE_JOURNAL_WORKER";

/// A journal of this process: its ids are its own.
fn own(root: &Path) -> Journal {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    let seed = u64::from(std::process::id()) << 32 | u64::from(nanos);
    let world = world(Arc::new(RealDisk), 1, seed);
    let journal = Journal::init(world, root, who()).unwrap();
    journal.with_settings(Settings {
        lock_wait: Duration::from_secs(60),
        ..Settings::default()
    })
}

/// Not a test: what the other tests start as a process of its own. Does nothing without an order.
#[test]
fn worker() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let words: Vec<&str> = order.split('|').collect();
    let journal = own(Path::new(words[0]));
    let say = |text: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\n{text}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    };
    match words[1] {
        "append" => {
            let count: u64 = words[3].parse().unwrap();
            for n in 0..count {
                let id = format!("{}-{n}", words[2]);
                let committed = journal.mutate(vec![plan(&id, n)]).unwrap();
                say(format!("ack {id} {}", committed.receipts()[0].seq.unwrap()));
                committed.finish().unwrap();
            }
        }
        "hold" => {
            let committed = journal.mutate(vec![plan("held", 1)]).unwrap();
            say("ack held 1".to_owned());
            loop {
                std::thread::sleep(Duration::from_secs(3600));
                let _ = committed.receipts();
            }
        }
        other => panic!("{other}"),
    }
}

struct Worker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    fn start(root: &Path, order: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture"])
            .env(ORDER, format!("{}|{order}", root.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next acknowledgement; None at the end.
    fn ack(&mut self) -> Option<(String, u64)> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((id, seq)) = line
                .strip_prefix("ack ")
                .and_then(|rest| rest.trim().split_once(' '))
            {
                return Some((id.to_owned(), seq.parse().unwrap()));
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn store() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".heddle");
    drop(own(&root));
    (folder, root)
}

/// Every record: seq → (id, writer).
fn records(journal: &Journal) -> BTreeMap<u64, (String, String)> {
    let mut all = BTreeMap::new();
    for line in journal.log(0, usize::MAX).unwrap() {
        let record: Value = serde_json::from_str(line.get()).unwrap();
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let before = all.insert(
            record["seq"].as_u64().unwrap(),
            (text("item_id"), text("writer")),
        );
        assert!(before.is_none(), "a seq came twice: {record}");
    }
    all
}

#[test]
fn jn_07_row_7_eight_processes_append_five_hundred_each() {
    let (_folder, root) = store();
    let mut workers: Vec<Worker> = (0..8)
        .map(|w| Worker::start(&root, &format!("append|w{w}|500")))
        .collect();
    let mut acknowledged = BTreeMap::new();
    for worker in &mut workers {
        while let Some((id, seq)) = worker.ack() {
            assert!(
                acknowledged.insert(seq, id).is_none(),
                "seq {seq} was given twice"
            );
        }
        assert!(worker.child.wait().unwrap().success());
    }
    let journal = own(&root);
    let found = records(&journal);
    assert_eq!(
        found.keys().copied().collect::<Vec<_>>(),
        (1..=4000).collect::<Vec<_>>()
    );
    let writers: BTreeSet<&String> = found.values().map(|(_, writer)| writer).collect();
    assert_eq!(writers.len(), 8);
    for (seq, id) in &acknowledged {
        assert_eq!(&found[seq].0, id, "seq {seq} is somebody else's");
    }
    assert_eq!(acknowledged.len(), 4000);
    let report = journal.verify().unwrap();
    assert!(
        report.ok && report.entities == 4000,
        "{:?} {:?}",
        report.divergent,
        report.counters
    );
    let queue = root.join("events/queue");
    let left = std::fs::read_dir(queue).map_or(0, Iterator::count);
    assert_eq!(left, 0, "requests were left behind");
}

#[test]
fn jn_01_jn_08_jn_09_kill_storm_of_five_hundred_rounds() {
    let (_folder, root) = store();
    let mut ledger: BTreeMap<String, u64> = BTreeMap::new();
    let mut acks_of_round = Vec::new();
    let mut seen: BTreeMap<u64, (String, String)> = BTreeMap::new();
    let mut draw: u64 = 0x5eed;
    for round in 0..500 {
        let mut worker = Worker::start(&root, &format!("append|r{round}|1000"));
        draw = draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let wanted = (draw >> 33) % 3;
        let mut acks = 0;
        while acks < wanted {
            let (id, seq) = worker.ack().expect("the worker lives");
            assert!(ledger.insert(id, seq).is_none());
            acks += 1;
        }
        // Somewhere between two lines of the worker's code.
        for _ in 0..(draw >> 40) % 200_000 {
            std::hint::spin_loop();
        }
        worker.child.kill().unwrap();
        // What it managed to say before it died counts as said.
        while let Some((id, seq)) = worker.ack() {
            assert!(ledger.insert(id, seq).is_none());
            acks += 1;
        }
        acks_of_round.push(acks);
        if round % 50 == 49 {
            let now = records(&own(&root));
            let is_prefix = seen
                .iter()
                .all(|(seq, record)| now.get(seq) == Some(record));
            assert!(is_prefix, "JN-09: what counted once must count for ever");
            seen = now;
        }
    }
    let journal = own(&root);
    journal.reconcile().unwrap();
    let found = records(&journal);
    for (id, seq) in &ledger {
        assert_eq!(
            found.get(seq).map(|(id, _)| id),
            Some(id),
            "acknowledged and lost"
        );
    }
    for (round, acks) in acks_of_round.iter().enumerate() {
        let prefix = format!("r{round}-");
        let written = found
            .values()
            .filter(|(id, _)| id.starts_with(&prefix))
            .count() as u64;
        assert!(
            (*acks..=acks + 1).contains(&written),
            "round {round}: {acks} acknowledged, {written} written"
        );
    }
    let report = journal.verify().unwrap();
    assert!(report.ok, "{:?} {:?}", report.divergent, report.counters);
    assert_eq!(report.counters.damaged_lines, 0, "JN-10");
}

#[test]
fn c12_a_stopped_lock_holder_is_not_robbed() {
    let (_folder, root) = store();
    let mut holder = Worker::start(&root, "hold");
    holder.ack().expect("it holds the lock");
    holder.signal(rustix::process::Signal::STOP);
    let journal = own(&root).with_settings(Settings {
        lock_wait: Duration::from_millis(300),
        ..Settings::default()
    });
    let told = journal.mutate(vec![plan("mine", 1)]).map(drop);
    let Err(JournalError::Busy { owner, .. }) = told else {
        panic!("the lock was stolen: {told:?}");
    };
    assert!(
        owner.contains(&format!("pid {}", holder.child.id())),
        "{owner}"
    );
    assert_eq!(records(&journal).len(), 1);
    // T-63: what the lock file says decides nothing.
    let forged = format!("pid {} writer w_forged\n", std::process::id());
    std::fs::write(root.join("events/lock"), forged).unwrap();
    assert!(journal.mutate(vec![plan("mine", 1)]).is_err());
    holder.signal(rustix::process::Signal::CONT);
    assert!(
        journal.mutate(vec![plan("mine", 1)]).is_err(),
        "it is alive and holds the lock"
    );
    drop(holder);
    // Its death gives the lock back at once; its record was synced and counts.
    let receipt = journal.mutate_whole(vec![plan("mine", 1)]).unwrap();
    assert_eq!(receipt[0].seq, Some(3), "one record, one seq_repair, ours");
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn those_who_wait_are_committed_together_and_each_gets_its_own_answer() {
    let (_folder, root) = store();
    let journal = own(&root);
    let held = journal.mutate(vec![plan("first", 1)]).unwrap();
    let queue = root.join("events/queue");
    let threads: Vec<_> = (0..6)
        .map(|n| {
            let root = root.clone();
            std::thread::spawn(move || {
                let journal = own(&root);
                let changes = if n == 5 {
                    vec![delete("plan", "nobody")]
                } else {
                    vec![plan("shared", n), plan(&format!("t{n}"), n)]
                };
                let told = journal.mutate_whole(changes);
                (journal.writer().to_owned(), told)
            })
        })
        .collect();
    let waiting = || {
        let entries =
            std::fs::read_dir(&queue).map(|all| all.filter_map(Result::ok).collect::<Vec<_>>());
        let requests = entries.unwrap_or_default();
        requests
            .iter()
            .filter(|e| e.file_name().to_string_lossy().ends_with(".req"))
            .count()
    };
    let start = std::time::Instant::now();
    while waiting() < 6 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "they do not queue"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    held.finish().unwrap();
    let mut revisions = BTreeSet::new();
    let mut refused = 0;
    let mut batches = BTreeSet::new();
    for thread in threads {
        match thread.join().unwrap() {
            (writer, Ok(receipts)) => {
                assert!(receipts.iter().all(|receipt| receipt.writer == writer));
                assert!(
                    revisions.insert(receipts[0].entity_rev),
                    "a revision was given twice"
                );
                batches.insert(receipts[0].batch.clone());
            }
            (_, Err(JournalError::NotFound { .. })) => refused += 1,
            (_, Err(error)) => panic!("{error}"),
        }
    }
    assert_eq!((revisions.len(), refused), (5, 1));
    assert!(batches.len() < 5, "nobody was committed along: {batches:?}");
    assert_eq!(journal.show("plan", "shared").unwrap().entity_rev, 5);
    assert!(journal.verify().unwrap().ok);
}

#[test]
fn a_request_of_a_dead_process_is_swept_and_never_committed() {
    let (_folder, root) = store();
    let journal = own(&root);
    let queue = root.join("events/queue");
    std::fs::create_dir_all(&queue).unwrap();
    let change = serde_json::json!({"item_type": "plan", "item_id": "ghost", "action": "update",
        "document": {"n": 1}, "summary": null});
    let request = serde_json::json!({"writer": "w_1-dead", "who": {"agent": "x", "agent_id": null, "user": null},
        "changes": [change]});
    std::fs::write(queue.join("01A.req"), request.to_string()).unwrap();
    std::fs::write(queue.join("01B.req"), request.to_string()).unwrap();
    std::fs::write(queue.join("01B.own"), "").unwrap();
    // An answer to one that gave up before it came.
    std::fs::write(queue.join("01C.ans"), "{}").unwrap();
    std::fs::write(queue.join("01C.taken"), request.to_string()).unwrap();
    journal.mutate_whole(vec![plan("a", 1)]).unwrap();
    journal.mutate_whole(vec![plan("a", 2)]).unwrap();
    assert!(matches!(
        journal.show("plan", "ghost"),
        Err(JournalError::NotFound { .. })
    ));
    assert!(!queue.join("01B.req").exists());
    assert!(!queue.join("01C.ans").exists() && !queue.join("01C.taken").exists());
}

#[test]
fn jn_01_what_a_waiter_repairs_is_never_taken_for_its_request() {
    let (_folder, root) = store();
    let mut holder = Worker::start(&root, "hold");
    holder
        .ack()
        .expect("it holds the lock, and its cache is behind");
    let waiter = {
        let root = root.clone();
        std::thread::spawn(move || own(&root).mutate_whole(vec![plan("mine", 7)]))
    };
    let queue = root.join("events/queue");
    let request = loop {
        let found = std::fs::read_dir(&queue).ok().and_then(|mut all| {
            let paths = all.by_ref().filter_map(Result::ok).map(|e| e.path());
            let mut requests = paths.filter(|p| p.extension().is_some_and(|e| e == "req"));
            requests.next()
        });
        match found {
            Some(request) => break request,
            None => std::thread::yield_now(),
        }
    };
    // A leader took the request over and died before it wrote anything.
    std::fs::rename(&request, request.with_extension("taken")).unwrap();
    drop(holder);
    let receipts = waiter.join().unwrap().unwrap();
    assert_eq!(receipts[0].entity_rev, Some(1), "{receipts:?}");
    let journal = own(&root);
    let found = records(&journal);
    let mine = receipts[0].seq.and_then(|seq| found.get(&seq));
    assert_eq!(mine.map(|(id, _)| id.as_str()), Some("mine"), "{found:?}");
    assert_eq!(journal.show("plan", "mine").unwrap().payload["n"], 7);
}

/// Two who each believe to hold the lock: its file was removed under the holder, and the next one has made another.
#[test]
fn jn_32_writers_whose_lock_was_taken_away_mix_no_bytes_and_lose_nothing_that_they_answered() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 60;
    let (_folder, root) = store();
    let work = |worker: u64| {
        let mut answered = Vec::new();
        for n in 0..EACH {
            let journal = own(&root);
            let id = format!("w{worker}-{n}");
            // Somebody tidies up, whoever is inside.
            let _ = std::fs::remove_file(root.join("events/lock"));
            let change = vec![plan("shared", worker * 1000 + n), plan(&id, n)];
            // A failure is loud, and promises nothing.
            if let Ok(committed) = journal.mutate(change) {
                let seq = committed.receipts()[1].seq.unwrap();
                answered.push((id, seq, journal.writer().to_owned()));
                let _ = committed.finish();
            }
        }
        answered
    };
    let answered: Vec<(String, u64, String)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || work(w))).collect();
        all.into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect()
    });
    assert!(
        answered.len() > 100,
        "only {} were answered",
        answered.len()
    );
    let journal = own(&root);
    let log = journal.log(0, usize::MAX).unwrap();
    let mut found: BTreeMap<(u64, String), String> = BTreeMap::new();
    let mut twice = 0;
    let mut seqs = BTreeSet::new();
    for line in log {
        let record: Value = serde_json::from_str(line.get()).unwrap();
        let seq = record["seq"].as_u64().unwrap();
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        twice += u64::from(!seqs.insert(seq));
        found.insert((seq, text("writer")), text("item_id"));
    }
    for (id, seq, writer) in answered {
        assert_eq!(found.get(&(seq, writer)), Some(&id), "answered and lost");
    }
    let replay = journal.rebuild(usize::MAX).unwrap().replay;
    assert_eq!(replay.counters.damaged_lines, 0, "bytes were mixed");
    assert_eq!(replay.counters.duplicate_seq, twice, "told, and not more");
    let seen = support::model::rebuilt(&journal, usize::MAX);
    assert_eq!(seen, support::model::rebuilt(&own(&root), 0));
}
