//! Many senders at once: one id is one message, and history has no gap at any moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_core::ids::HistoryId;
use heddle_wire::broker::Verdict;
use tokio::task::JoinSet;

use crate::limiter::LocalLimiter;
use crate::test_support::{
    Gate, TestStorage, mesh, on_every_storage, principal, refused_code, send_item,
};

on_every_storage!(
    br_07_racing_requests_with_one_id_create_one_message_and_agree_on_it,
    br_08_racing_requests_that_differ_have_one_winner_and_leave_nothing_else,
    br_15_whoever_waits_for_a_claimant_that_fails_is_told_no_duplicate,
    c4_a_cursor_reader_never_sees_a_gap_while_64_senders_race,
);

const SENDERS: usize = 64;

/// Sends the same id from many tasks at once, with the text that `body` gives to each.
async fn race<S: TestStorage>(
    gate: &Arc<Gate<S, LocalLimiter>>,
    body: impl Fn(usize) -> String,
) -> Vec<Verdict> {
    let mut tasks = JoinSet::new();
    for number in 0..SENDERS {
        let gate = Arc::clone(gate);
        let body = body(number);
        tasks.spawn(async move { gate.send("a/one", "same", "#ops", &body).await });
    }
    tasks.join_all().await
}

async fn br_07_racing_requests_with_one_id_create_one_message_and_agree_on_it<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Arc::new(Gate::open(storage).await);
    gate.subscribe_all(&["a/one"]).await;
    let verdicts = race(&gate, |_| "x".to_owned()).await;
    let mut created = 0;
    let mut ids = BTreeSet::new();
    for verdict in verdicts {
        match verdict {
            Verdict::Created {
                broker_message_id,
                history_id,
                ..
            } => {
                created += 1;
                ids.insert((broker_message_id, history_id));
            }
            Verdict::Duplicate {
                broker_message_id,
                history_id,
                history_available: true,
                ..
            } => {
                ids.insert((broker_message_id, history_id));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((created, ids.len()), (1, 1));
    assert_eq!(gate.storage().count("message").await, 1);
    assert_eq!(gate.storage().count("delivery").await, 1);
}

async fn br_08_racing_requests_that_differ_have_one_winner_and_leave_nothing_else<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let gate = Arc::new(Gate::open(storage).await);
    gate.subscribe_all(&["a/one"]).await;
    let verdicts = race(&gate, |number| format!("text {number}")).await;
    let created = verdicts
        .iter()
        .filter(|verdict| matches!(verdict, Verdict::Created { .. }));
    assert_eq!(created.count(), 1);
    let prefixes: BTreeSet<&str> = verdicts
        .iter()
        .filter_map(|verdict| match verdict {
            Verdict::Conflict {
                broker_fingerprint_prefix,
                ..
            } => Some(broker_fingerprint_prefix.as_str()),
            _ => None,
        })
        .collect();
    // All losers are shown the winner's fingerprint.
    assert_eq!(prefixes.len(), 1);
    assert!(prefixes.iter().all(|prefix| prefix.len() == 16));
    for table in ["dedupe", "message", "history", "delivery"] {
        assert_eq!(gate.storage().count(table).await, 1, "{table}");
    }
    assert_eq!(gate.storage().orphan_check(mesh(1)).await, Ok(vec![]));
}

/// A batch repeats a broker id, so its first message with it fails in the transaction; the ids of
/// those around it are not affected, and the failed one can come again.
async fn br_15_whoever_waits_for_a_claimant_that_fails_is_told_no_duplicate<S: TestStorage>(
    storage: Arc<S>,
) {
    let gate = Gate::open(storage.clone()).await;
    gate.subscribe_all(&["a/one"]).await;
    gate.send("a/one", "first", "#ops", "x").await;
    // A second gate whose ids repeat those of the first.
    let twin = Gate::open(storage).await;
    let items = ["A", "A", "B"].map(|id| send_item("one", id, "#ops", "x"));
    let decided = twin.batch("a", items.into()).await;
    let codes: Vec<&str> = decided.verdicts.iter().map(refused_code).collect();
    assert_eq!(codes, ["internal", "created", "created"]);
    let again = twin.send("a/one", "A", "#ops", "x").await;
    assert_eq!(refused_code(&again), "duplicate");
    assert_eq!(twin.storage().orphan_check(mesh(1)).await, Ok(vec![]));
}

async fn c4_a_cursor_reader_never_sees_a_gap_while_64_senders_race<S: TestStorage>(
    storage: Arc<S>,
) {
    const BATCHES: usize = 4;
    let gate = Arc::new(Gate::open(storage).await);
    gate.subscribe_all(&["a/one"]).await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(follow(Arc::clone(&gate), Arc::clone(&done)));
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        let gate = Arc::clone(&gate);
        senders.spawn(async move {
            let mut places = Vec::new();
            for batch in 0..BATCHES {
                // Every other message is refused in the transaction, or is there already.
                let items = ["#ops", "#none", "#ops"].iter().enumerate();
                let items = items.map(|(number, to)| {
                    let id = format!("{sender}-{batch}-{}", number % 2);
                    send_item("one", &id, to, "x")
                });
                let decided = gate.accept.accept(&principal("a"), items.collect()).await;
                for verdict in decided.verdicts {
                    if let Verdict::Created { history_id, .. } = verdict {
                        places.push(history_id);
                    }
                }
            }
            assert!(places.is_sorted(), "a sender's own order is kept");
            places
        });
    }
    let mut places: Vec<HistoryId> = senders.join_all().await.into_iter().flatten().collect();
    done.store(true, Ordering::SeqCst);
    let followed = reader.await.unwrap();
    places.sort_unstable();
    let expected: Vec<HistoryId> = (1..=u64::try_from(SENDERS * BATCHES).unwrap())
        .map(|seq| HistoryId { epoch: 1, seq })
        .collect();
    assert_eq!(places, expected);
    assert_eq!(followed, expected);
}

/// Reads history by cursor while it grows; panics at a gap.
async fn follow<S: TestStorage>(
    gate: Arc<Gate<S, LocalLimiter>>,
    done: Arc<AtomicBool>,
) -> Vec<HistoryId> {
    let mut seen: Vec<HistoryId> = Vec::new();
    loop {
        let finished = done.load(Ordering::SeqCst);
        let after = seen.last().copied().unwrap_or(HistoryId::ZERO);
        let page = gate.storage().history_after(mesh(1), after, 10).await;
        let page = page.unwrap();
        if page.is_empty() && finished {
            return seen;
        }
        for row in page {
            let next = seen.last().map_or(1, |last| last.seq + 1);
            assert_eq!(row.history_id.seq, next, "a gap");
            seen.push(row.history_id);
        }
    }
}
