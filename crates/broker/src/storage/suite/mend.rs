//! A log that a damaged file made holes into: what is whole stays, what is lost is known, and then nothing is wrong any more.

use std::sync::Arc;

use heddle_core::ids::HistoryId;

use crate::storage::PageLimit;
use crate::test_support::{Gate, TestStorage, mesh, postgres, refused_code, send_item, sqlite};

const MESSAGES: &str = "DELETE FROM message WHERE broker_message_id IN (
    SELECT broker_message_id FROM log_row WHERE seq = 2 OR seq = 3);";
const ENDS: &str = "DELETE FROM message WHERE broker_message_id IN (
    SELECT broker_message_id FROM log_row WHERE seq = 1 OR seq = 6);";
const LOG: &str = "DELETE FROM log_row WHERE seq = 2 OR seq = 3;";
const REST: &str = "DELETE FROM client_message_dedupe WHERE seq = 2 OR seq = 3;
    DELETE FROM message_history WHERE seq = 2 OR seq = 3;";
/// The message beside the hole: no op names it, so nobody knows what it was.
const MESSAGE_TOO: &str =
    "DELETE FROM delivery_queue WHERE seq = 4; DELETE FROM message WHERE client_message_id = '4';
    DELETE FROM client_message_dedupe WHERE seq = 4; DELETE FROM message_history WHERE seq = 4;";
const NO_JSON: &str = "UPDATE message SET envelope = 'no' WHERE client_message_id = '5'";
/// Only SQLite takes bytes for text that are none.
const NO_NAME: &str =
    "UPDATE message SET sender_agent = CAST(x'6fee65' AS TEXT) WHERE client_message_id = '5'";

/// One way to lose ops.
struct Case {
    sql: String,
    /// The op whose reader finds out.
    meets: u64,
    /// The places that are left, the holes, and the ids that are free again.
    left: &'static str,
    holes: &'static str,
    free: &'static str,
    /// What the orphan check still has to tell.
    told: &'static str,
}

impl Case {
    async fn check<S: TestStorage>(&self, storage: S, spoil: impl AsyncFnOnce(&S)) {
        let sql = &self.sql;
        let gate = Gate::open(Arc::new(storage)).await;
        let storage = gate.storage();
        with_ops(&gate).await;
        assert_eq!(chain(storage).await, "1 2 3 5 6 7");
        let before = rows(storage).await;
        spoil(storage).await;
        let at = HistoryId {
            epoch: 1,
            seq: self.meets,
        };
        let mended = storage.mend_log(mesh(1), at).await.unwrap();
        let mended = mended.unwrap_or_else(|| panic!("{sql}"));
        let shown = mended.holes.iter();
        let shown = shown.map(|hole| format!("{}-{}", hole.after, hole.through));
        assert_eq!(shown.collect::<Vec<_>>().join(" "), self.holes, "{sql}");
        let epochs = storage.epochs(mesh(1)).await.unwrap();
        assert_eq!((epochs.epoch, epochs.holes), (2, mended.holes), "{sql}");
        assert_eq!(mended.epoch, 2);
        assert_eq!(chain(storage).await, self.left, "{sql}");
        if self.holes.is_empty() {
            assert_eq!(mended.found, 2);
            assert_eq!(rows(storage).await, before, "nothing was lost");
        }
        let orphans = storage.orphan_check(mesh(1)).await.unwrap();
        let told: Vec<&str> = orphans.iter().map(|orphan| orphan.problem).collect();
        assert_eq!(told.join(" "), self.told, "{sql}");
        // Whoever made them sends all of them again: those that are there are known.
        for id in ["1", "2", "3", "5", "6", "7"] {
            let again = vec![send_item("one", id, "log:ops", "{}")];
            let sent = gate.batch("a", again).await;
            let is_free = self.free.split(' ').any(|other| other == id);
            let code = if is_free { "created" } else { "duplicate" };
            assert_eq!(refused_code(&sent.verdicts[0]), code, "{sql}: {id}");
        }
    }
}

/// Ops at 1.1 to 1.7, but for the message at 1.4, each under the id of its number.
async fn with_ops<S: TestStorage>(gate: &Gate<S, crate::limiter::LocalLimiter>) {
    gate.subscribe_all(&["a/one"]).await;
    for number in 1..=7 {
        let to = if number == 4 { "#ops" } else { "log:ops" };
        gate.send("a/one", &number.to_string(), to, "{}").await;
    }
}

/// The places of the log, each of which names the one before it.
async fn chain<S: TestStorage>(storage: &S) -> String {
    let limit = PageLimit {
        rows_max: 99,
        bytes_max: 99_999,
    };
    let page = storage.log_after(mesh(1), HistoryId::ZERO, limit).await;
    let (mut through, mut places) = (HistoryId::ZERO, Vec::new());
    for row in page.unwrap().rows {
        assert_eq!(row.previous, through);
        through = row.history_id;
        assert_eq!(storage.mend_log(mesh(1), through).await, Ok(None));
        places.push(through.seq.to_string());
    }
    places.join(" ")
}

async fn rows<S: TestStorage>(storage: &S) -> Vec<String> {
    let dump = storage.dump().await.into_iter();
    dump.filter(|line| !line.starts_with("mesh ")).collect()
}

fn cases() -> Vec<Case> {
    let case = |sql: String, (meets, left, holes, free)| Case {
        sql,
        meets,
        left,
        holes,
        free,
        told: "",
    };
    let lost = (5, "1 5 6 7", "1.1-1.3", "2 3");
    let mut beside = case(format!("{MESSAGES}{LOG}{REST}{MESSAGE_TOO}"), lost);
    beside.told = "gap_in_history";
    vec![
        case(LOG.to_owned(), (5, "1 2 3 5 6 7", "", "")),
        case(MESSAGES.to_owned(), lost),
        case(format!("{MESSAGES}{LOG}"), lost),
        case(format!("{MESSAGES}{LOG}{REST}"), lost),
        beside,
        case(ENDS.to_owned(), (2, "2 3 5 7", "0.0-1.1 1.5-1.6", "1 6")),
    ]
}

#[tokio::test]
async fn lf_15_a_log_with_holes_is_mended_once_and_what_is_whole_stays() {
    for case in cases() {
        let spoil = async |storage: &_| {
            let storage: &crate::storage::SqliteStorage = storage;
            storage.batch(case.sql.clone()).await;
        };
        let disk = sqlite();
        case.check(disk.storage.clone(), spoil).await;
        let spoil = async |storage: &_| {
            let storage: &crate::storage::PostgresStorage = storage;
            storage.batch(&case.sql).await;
        };
        case.check(postgres().await, spoil).await;
    }
}

/// The last ops of a log: no op behind them names them, so only who has read them can tell.
const LAST: &str = "DELETE FROM message WHERE client_message_id = '6' OR client_message_id = '7';
    DELETE FROM log_row WHERE seq >= 6;";
const LAST_TRACES: &str = "DELETE FROM client_message_dedupe WHERE seq >= 6;
    DELETE FROM message_history WHERE seq >= 6;";

async fn lost_at_the_end<S: TestStorage>(storage: S, spoil: impl AsyncFnOnce(&S)) {
    let gate = Gate::open(Arc::new(storage)).await;
    let storage = gate.storage();
    with_ops(&gate).await;
    let at = |seq| HistoryId { epoch: 1, seq };
    let limit = PageLimit {
        rows_max: 9,
        bytes_max: 99_999,
    };
    let misses = async |seq| {
        let page = storage.log_after(mesh(1), at(seq), limit).await.unwrap();
        page.misses
    };
    for seq in 1..=9 {
        assert!(!misses(seq).await, "{seq} is there, or no op");
    }
    spoil(storage).await;
    // A message and a place that nobody was given are no ops, whoever says so.
    for seq in [4, 5, 8, 99] {
        assert!(!misses(seq).await, "{seq}");
        assert_eq!(storage.mend_log(mesh(1), at(seq)).await, Ok(None));
    }
    assert!(misses(7).await);
    let mended = storage.mend_log(mesh(1), at(7)).await.unwrap().unwrap();
    let hole = mended.holes.first().unwrap();
    assert_eq!((hole.after, hole.through, mended.epoch), (at(5), at(7), 2));
    assert!(!misses(7).await && !misses(6).await, "it is known");
    assert_eq!(storage.mend_log(mesh(1), at(7)).await, Ok(None));
    assert_eq!(chain(storage).await, "1 2 3 5");
    // Whoever made them sends them again, and they stand behind what is there.
    for id in ["6", "7"] {
        let again = vec![send_item("one", id, "log:ops", "{}")];
        let sent = gate.batch("a", again).await;
        assert_eq!(refused_code(&sent.verdicts[0]), "created", "{id}");
    }
    assert_eq!(chain(storage).await, "1 2 3 5 1 2");
}

#[tokio::test]
async fn lf_15_ops_lost_at_the_end_of_a_log_are_missed_by_who_has_read_them() {
    for sql in [LAST.to_owned(), format!("{LAST}{LAST_TRACES}")] {
        let disk = sqlite();
        let spoil = async |storage: &_| {
            let storage: &crate::storage::SqliteStorage = storage;
            storage.batch(sql.clone()).await;
        };
        lost_at_the_end(disk.storage.clone(), spoil).await;
        let spoil = async |storage: &_| {
            let storage: &crate::storage::PostgresStorage = storage;
            storage.batch(&sql).await;
        };
        lost_at_the_end(postgres().await, spoil).await;
    }
}

/// A page of nothing but lost ops would be the end to whoever reads: they would wait for ever, and never meet the hole.
#[tokio::test]
async fn lf_15_ops_behind_a_page_full_of_lost_ones_are_read() {
    let lost = "DELETE FROM message WHERE broker_message_id IN (
        SELECT broker_message_id FROM log_row WHERE seq <= 3)";
    let disk = sqlite();
    let gate = Gate::open(Arc::new(disk.storage.clone())).await;
    with_ops(&gate).await;
    disk.storage.batch(lost.to_owned()).await;
    assert_eq!(first_read(gate.storage()).await, Some(5));
    let gate = Gate::open(Arc::new(postgres().await)).await;
    with_ops(&gate).await;
    gate.storage().batch(lost).await;
    assert_eq!(first_read(gate.storage()).await, Some(5));
}

/// The first place of a page of two rows.
async fn first_read<S: TestStorage>(storage: &S) -> Option<u64> {
    let limit = PageLimit {
        rows_max: 2,
        bytes_max: 99_999,
    };
    let page = storage.log_after(mesh(1), HistoryId::ZERO, limit).await;
    page.unwrap().rows.first().map(|row| row.history_id.seq)
}

/// Its message stays where it is, and is told of.
#[tokio::test]
async fn lf_15_an_op_that_cannot_be_read_counts_as_lost() {
    for sql in [NO_JSON, NO_NAME] {
        let case = Case {
            sql: sql.to_owned(),
            meets: 6,
            left: "1 2 3 6 7",
            holes: "1.3-1.5",
            free: "5",
            told: "op_without_log_row",
        };
        let disk = sqlite();
        let spoil = async |storage: &_| {
            let storage: &crate::storage::SqliteStorage = storage;
            storage.batch(sql.to_owned()).await;
        };
        case.check(disk.storage.clone(), spoil).await;
    }
}
