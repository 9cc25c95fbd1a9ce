//! An item's life after it was received: shown, acknowledged, reported, read by sessions, taken by retention.

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::names::SessionName;
use heddle_store::{
    AckedItems, DueReceipt, InboxFilter, NewInboxRow, OwedHook, ReceiptLevel, Received,
    SearchQuery, SessionCursor, SessionKey, Store,
};

use crate::fixture::{Fixture, NOW, agent, at};

const DAY_MS: i64 = 86_400_000;
const MONTH: Duration = Duration::from_hours(30 * 24);

fn mailbox(name: &str) -> InboxFilter {
    InboxFilter {
        mesh: None,
        agent: Some(agent(name)),
        after: None,
        since: None,
        topic: None,
        from_member: None,
        from_agent: None,
        acked: AckedItems::All,
        limit: 1000,
        bytes_max: usize::MAX,
    }
}

fn later(days: i64) -> WallMs {
    WallMs(NOW.0 + days * DAY_MS)
}

fn body_of(envelope: &[u8]) -> Option<String> {
    String::from_utf8(envelope.to_vec()).ok()
}

/// A whole run of retention; how many items it took.
async fn prune(store: &Store, now: WallMs) -> usize {
    let cutoff = store.inbox_prune_begin(now, Duration::ZERO, MONTH).await;
    let cutoff = cutoff.unwrap();
    let mut taken = 0;
    let mut from = 0;
    loop {
        let step = store.inbox_prune_step(cutoff, from).await.unwrap();
        taken += step.taken;
        match step.next {
            Some(next) => from = next,
            None => return taken,
        }
    }
}

impl Fixture {
    async fn fill(&self, count: u64) -> Vec<NewInboxRow> {
        let items: Vec<NewInboxRow> = (1..=count)
            .map(|n| self.item("coder", &format!("m{n}"), at(1, n)))
            .collect();
        self.store.receive(self.mesh, items.clone()).await.unwrap();
        items
    }

    fn session(&self, name: &str) -> SessionKey {
        SessionKey {
            mesh: self.mesh,
            agent: agent("coder"),
            session: SessionName::parse(name).unwrap(),
        }
    }

    async fn left(&self) -> Vec<i64> {
        let page = self.store.inbox_page(mailbox("coder")).await.unwrap();
        page.iter().map(|row| row.arrival).collect()
    }
}

// --- retention ---------------------------------------------------------------------------------

#[tokio::test]
async fn in_01_a_redelivery_never_brings_back_what_retention_took() {
    let fixture = Fixture::new();
    let items = fixture.fill(700).await;
    let shown: Vec<i64> = (1..=600).collect();
    for chunk in shown.chunks(200) {
        let noted = fixture.store.inbox_shown(chunk.to_vec(), None, NOW).await;
        assert_eq!(noted.unwrap().acked, 200);
    }
    assert_eq!(prune(&fixture.store, later(29)).await, 0);
    assert_eq!(prune(&fixture.store, later(31)).await, 0, "a day at a time");
    assert_eq!(prune(&fixture.store, later(31)).await, 600);
    let expected: Vec<i64> = (601..=700).collect();
    assert_eq!(fixture.left().await, expected, "not shown, so not taken");
    assert_eq!(fixture.store.figures().await.unwrap().inbox, 100);
    let mut again = items.clone();
    // Under a new epoch, too: the sender's id is what counts.
    again.extend(items.iter().map(|item| NewInboxRow {
        history_id: at(2, item.history_id.seq),
        ..item.clone()
    }));
    let received = fixture.store.receive(fixture.mesh, again).await.unwrap();
    assert!(received.iter().all(|one| *one == Received::Duplicate));
    assert_eq!(fixture.left().await, expected);
    assert_eq!(fixture.store.inbox_pruned_through().await.unwrap(), 600);
    assert_eq!(fixture.dump("inbox_past").len(), 600);
}

#[tokio::test]
async fn an_item_that_was_never_shown_goes_after_twice_the_retention() {
    let fixture = Fixture::new();
    fixture.fill(3).await;
    fixture.store.inbox_ack(vec![1], None, NOW).await.unwrap();
    let mut taken = Vec::new();
    // A run a day, as a home that is switched on makes them.
    for day in 0..70 {
        let count = prune(&fixture.store, later(day)).await;
        taken.extend((count > 0).then_some((day, count)));
    }
    assert_eq!(taken, [(31, 1), (61, 2)]);
    assert_eq!(fixture.left().await, [] as [i64; 0]);
}

#[tokio::test]
async fn retention_takes_words_and_hooks_along_and_leaves_others_findable() {
    let fixture = Fixture::new();
    fixture.fill(4).await;
    while fixture.store.inbox_index_chunk(body_of).await.unwrap() > 0 {}
    assert_eq!(fixture.store.hooks_begin().await.unwrap(), 4);
    let hooks = vec![(1, "on-dm".to_owned())];
    assert!(fixture.store.hooks_plan(4, 4, hooks, NOW).await.unwrap());
    fixture
        .store
        .inbox_shown(vec![1, 3], None, NOW)
        .await
        .unwrap();
    assert_eq!(prune(&fixture.store, later(31)).await, 2);
    let query = SearchQuery::parse("hello").unwrap();
    let found = fixture
        .store
        .inbox_search(query, None, mailbox("coder"))
        .await;
    let found: Vec<i64> = found.unwrap().rows.iter().map(|row| row.arrival).collect();
    assert_eq!(found, [4, 2]);
    assert!(fixture.store.hooks_owed(10).await.unwrap().is_empty());
    let check = "INSERT INTO inbox_fts (inbox_fts) VALUES ('integrity-check')";
    fixture.raw().execute(check, []).unwrap();
}

#[tokio::test]
async fn an_item_that_is_taken_while_it_is_being_indexed_leaves_no_words() {
    let fixture = Fixture::new();
    fixture.fill(2).await;
    fixture.store.inbox_shown(vec![1], None, NOW).await.unwrap();
    prune(&fixture.store, later(31)).await;
    while fixture.store.inbox_index_chunk(body_of).await.unwrap() > 0 {}
    let rows = "SELECT count(*) FROM inbox_fts WHERE inbox_fts MATCH 'hello'";
    let count: i64 = fixture.raw().query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn an_item_of_the_future_does_not_keep_the_older_ones_behind_it() {
    let fixture = Fixture::new();
    let mut items: Vec<NewInboxRow> = (1..=300)
        .map(|n| fixture.item("coder", &format!("m{n}"), at(1, n)))
        .collect();
    for item in items.iter_mut().take(10) {
        item.received_at = later(4000);
    }
    fixture.store.receive(fixture.mesh, items).await.unwrap();
    let all: Vec<i64> = (1..=300).collect();
    fixture.store.inbox_shown(all, None, NOW).await.unwrap();
    assert_eq!(prune(&fixture.store, later(31)).await, 290);
}

// --- sessions ----------------------------------------------------------------------------------

#[tokio::test]
async fn two_sessions_keep_their_own_cursors_and_a_peek_moves_neither() {
    let fixture = Fixture::new();
    fixture.fill(5).await;
    fixture
        .store
        .inbox_ack(vec![1, 2], None, NOW)
        .await
        .unwrap();
    let store = &fixture.store;
    let (one, two) = (fixture.session("one"), fixture.session("two"));
    let fresh = SessionCursor {
        read_through: 2,
        created_at: None,
    };
    for _ in 0..2 {
        assert_eq!(store.inbox_session(one.clone()).await.unwrap(), fresh);
    }
    let moved = store.inbox_seen(one.clone(), 4, NOW).await.unwrap();
    assert_eq!(moved.read_through, 4);
    assert_eq!(store.inbox_session(two.clone()).await.unwrap(), fresh);
    let back = store.inbox_seen(one.clone(), 1, later(1)).await.unwrap();
    assert_eq!(back.read_through, 4, "never back");
    assert_eq!(back.created_at, Some(NOW), "the first time counts");
    let far = store.inbox_seen(two.clone(), i64::MAX, NOW).await.unwrap();
    assert_eq!(far.read_through, 5, "never beyond what has arrived");
    let (_folder, again) = fixture.crashed_copy();
    assert_eq!(again.inbox_session(one).await.unwrap().read_through, 4);
}

#[tokio::test]
async fn what_a_sibling_acknowledged_meanwhile_is_given_and_what_was_done_before_is_not() {
    let fixture = Fixture::new();
    fixture.fill(4).await;
    fixture.store.inbox_ack(vec![2], None, NOW).await.unwrap();
    fixture
        .store
        .inbox_ack(vec![3], None, later(2))
        .await
        .unwrap();
    let filter = InboxFilter {
        acked: AckedItems::Since(later(1)),
        ..mailbox("coder")
    };
    let page = fixture.store.inbox_page(filter).await.unwrap();
    let arrivals: Vec<i64> = page.iter().map(|row| row.arrival).collect();
    assert_eq!(arrivals, [1, 3, 4]);
}

#[tokio::test]
async fn the_cursor_of_a_session_that_nobody_uses_goes_with_the_retention() {
    let fixture = Fixture::new();
    fixture.fill(1).await;
    let (old, young) = (fixture.session("old"), fixture.session("young"));
    fixture.store.inbox_seen(old, 1, NOW).await.unwrap();
    fixture.store.inbox_seen(young, 1, later(20)).await.unwrap();
    prune(&fixture.store, later(31)).await;
    assert_eq!(fixture.dump("inbox_session").len(), 1);
}

// --- receipts ----------------------------------------------------------------------------------

#[tokio::test]
async fn each_level_is_noted_once_and_queued_until_the_broker_confirms_it() {
    let fixture = Fixture::new();
    fixture.fill(3).await;
    let store = &fixture.store;
    let coder = Some(agent("coder"));
    store
        .inbox_shown(vec![1, 2], coder.clone(), NOW)
        .await
        .unwrap();
    let twice = store
        .inbox_shown(vec![1, 9], coder.clone(), later(1))
        .await
        .unwrap();
    assert_eq!((twice.acked, twice.already, twice.unknown), (0, 1, vec![9]));
    let stranger = store.inbox_shown(vec![3], Some(agent("tester")), NOW).await;
    assert_eq!(stranger.unwrap().unknown, [3]);
    store.inbox_ack(vec![1, 3], coder, later(2)).await.unwrap();
    let receipt = |seq, level, at_day| DueReceipt {
        agent: agent("coder"),
        history_id: at(1, seq),
        level,
        at: later(at_day),
    };
    let all = [
        receipt(1, ReceiptLevel::Acked, 2),
        receipt(1, ReceiptLevel::Shown, 0),
        receipt(2, ReceiptLevel::Shown, 0),
        receipt(3, ReceiptLevel::Acked, 2),
    ];
    assert_eq!(store.receipts_due(fixture.mesh, 100).await.unwrap(), all);
    let page = store.inbox_page(mailbox("coder")).await.unwrap();
    let times: Vec<_> = page
        .iter()
        .map(|row| (row.shown_at, row.acked_at))
        .collect();
    let acked_unseen = (Some(later(2)), Some(later(2)));
    assert_eq!(
        times,
        [(Some(NOW), Some(later(2))), (Some(NOW), None), acked_unseen]
    );

    let first_two = store.receipts_due(fixture.mesh, 2).await.unwrap();
    for _ in 0..2 {
        let confirmed = store
            .receipts_confirmed(fixture.mesh, first_two.clone())
            .await;
        confirmed.unwrap();
    }
    assert_eq!(
        store.receipts_due(fixture.mesh, 100).await.unwrap(),
        all[2..]
    );
    let (_folder, again) = fixture.crashed_copy();
    assert_eq!(
        again.receipts_due(fixture.mesh, 100).await.unwrap(),
        all[2..]
    );
}

#[tokio::test]
async fn a_receipt_outlives_its_item_but_not_the_retention() {
    let fixture = Fixture::new();
    fixture.fill(1).await;
    fixture
        .store
        .inbox_shown(vec![1], None, later(29))
        .await
        .unwrap();
    assert_eq!(prune(&fixture.store, later(31)).await, 1);
    let due = fixture.store.receipts_due(fixture.mesh, 10).await.unwrap();
    assert_eq!(due.len(), 1);
    for day in 32..=62 {
        prune(&fixture.store, later(day)).await;
    }
    assert!(
        fixture
            .store
            .receipts_due(fixture.mesh, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

// --- what hooks owe ----------------------------------------------------------------------------

#[tokio::test]
async fn c45_a_hook_is_planned_once_per_item_and_owed_until_it_has_ended() {
    let fixture = Fixture::new();
    let items = fixture.fill(2).await;
    let store = &fixture.store;
    assert_eq!(
        store.hooks_begin().await.unwrap(),
        2,
        "old mail runs no hooks"
    );
    let third = fixture.item("coder", "third", at(1, 3));
    store.receive(fixture.mesh, vec![third]).await.unwrap();
    assert_eq!(store.hooks_begin().await.unwrap(), 2);
    let plan = || vec![(3, "on-dm".to_owned()), (3, "on-message".to_owned())];
    assert!(store.hooks_plan(2, 3, plan(), NOW).await.unwrap());
    assert!(
        !store.hooks_plan(2, 3, plan(), NOW).await.unwrap(),
        "planned already"
    );
    // A duplicate delivery has no arrival of its own, so there is nothing to plan.
    let again = store.receive(fixture.mesh, items).await.unwrap();
    assert!(again.iter().all(|one| *one == Received::Duplicate));
    assert_eq!(fixture.left().await, [1, 2, 3]);

    let owed = |hook: &str, attempts| OwedHook {
        arrival: 3,
        hook: hook.to_owned(),
        attempts,
    };
    let both = [owed("on-dm", 0), owed("on-message", 0)];
    assert_eq!(store.hooks_owed(10).await.unwrap(), both);
    assert!(
        store
            .hook_started(3, "on-dm".to_owned(), NOW)
            .await
            .unwrap()
    );
    let (_folder, crashed) = fixture.crashed_copy();
    let both = [owed("on-dm", 1), owed("on-message", 0)];
    assert_eq!(
        crashed.hooks_owed(10).await.unwrap(),
        both,
        "it may not have run to its end"
    );
    let ended = store.hook_ended(3, "on-dm".to_owned(), true, NOW).await;
    assert!(ended.unwrap());
    assert!(
        !store
            .hook_started(3, "on-dm".to_owned(), NOW)
            .await
            .unwrap()
    );
    assert_eq!(store.hooks_owed(10).await.unwrap(), both[1..]);
}

#[tokio::test]
async fn c45_hooks_that_are_switched_off_owe_nothing_and_begin_with_new_mail_again() {
    let fixture = Fixture::new();
    fixture.fill(2).await;
    let store = &fixture.store;
    store.hooks_off(NOW).await.unwrap();
    assert_eq!(store.hooks_begin().await.unwrap(), 2);
    let third = fixture.item("coder", "third", at(1, 3));
    store.receive(fixture.mesh, vec![third]).await.unwrap();
    let plan = vec![(3, "on-dm".to_owned()), (3, "on-message".to_owned())];
    assert!(store.hooks_plan(2, 3, plan, NOW).await.unwrap());
    let begun = store.hook_started(3, "on-dm".to_owned(), NOW).await;
    assert!(begun.unwrap());
    store.hooks_off(NOW).await.unwrap();
    assert!(store.hooks_owed(10).await.unwrap().is_empty());
    let again = store.hook_started(3, "on-message".to_owned(), NOW).await;
    assert!(!again.unwrap());
    let fourth = fixture.item("coder", "fourth", at(1, 4));
    store.receive(fixture.mesh, vec![fourth]).await.unwrap();
    assert_eq!(store.hooks_begin().await.unwrap(), 4);
}
