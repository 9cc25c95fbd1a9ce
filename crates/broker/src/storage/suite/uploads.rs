//! Uploads of a snapshot: parts that go on, come again or are given up, and a commit that shows all or nothing;
//! the same in every store.

use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, OpId};
use heddle_core::limits::BATCH_BYTES_MAX;
use heddle_core::membership::MemberKey;
use heddle_core::names::MemberName;
use ulid::Ulid;

use crate::storage::{
    Destination, LeftOut, NewMessage, PageLimit, SendId, Shown, UploadEnd, UploadPart,
    UploadVerdict,
};
use crate::test_support::{TestStorage, member, mesh, mesh_name, on_every_storage, party};

on_every_storage!(
    lf_34_an_upload_is_seen_by_nobody_before_its_commit_and_then_by_everybody,
    lf_34_parts_that_come_again_or_out_of_turn_change_nothing,
    lf_34_an_upload_that_is_given_up_is_swept_and_leaves_no_trace,
    lf_34_a_commit_accepts_what_is_new_once_and_names_the_first_place,
    lf_34_a_commit_of_many_rows_goes_on_where_it_was_left_and_hides_them_to_its_end,
    lf_34_what_is_being_shown_is_neither_replaced_nor_swept,
    lf_34_a_commit_waits_for_somebody_elses_snapshot,
    lf_34_a_step_of_a_commit_is_bounded_in_bytes,
    lf_34_many_rows_are_thrown_away_in_steps_and_nobody_goes_on_with_them,
    lf_34_rows_whose_id_is_another_rows_are_named_by_the_commit_and_whenever_it_comes_again,
    lf_34_many_of_them_are_counted_over_all_steps_and_the_first_are_named,
);

const ID: [u8; 16] = [7; 16];

fn op(id: &str, minted: u128) -> NewMessage {
    let client_message_id = ClientMessageId::parse(id).unwrap();
    NewMessage {
        is_heard: false,
        id: SendId::new(mesh(1), party("a/one"), client_message_id),
        sender_name: MemberName::parse("a").unwrap(),
        broker_message_id: BrokerMessageId(Ulid::from(minted)),
        wire_fingerprint: Fingerprint([1; 32]),
        destination: Destination::Log,
        priority: Priority::Next,
        mentions: Vec::new(),
        envelope: format!("{{\"id\":\"{id}\"}}").into(),
        accepted_at: WallMs(1),
        expires_at: None,
        limiter: None,
        epoch: None,
        session: None,
    }
}

/// Ops from one place to another, each under its number.
fn part(after: u64, through: u64) -> UploadPart {
    let rows = (after + 1..=through).map(|at| op(&format!("op-{at}"), u128::from(at)));
    UploadPart {
        after,
        through,
        rows: rows.collect(),
        now: WallMs(10),
    }
}

fn end(through: u64) -> UploadEnd {
    UploadEnd {
        through,
        sender_name: MemberName::parse("a").unwrap(),
        at: WallMs(20),
        expires_at: None,
    }
}

async fn furnish<S: TestStorage>(storage: &S) {
    storage.ensure_mesh(mesh(1), &mesh_name("m")).await.unwrap();
    let name = MemberName::parse("a").unwrap();
    let key = MemberKey::from_seed([1; 32]).public();
    let enrolled = storage.enrol_owner(mesh(1), member("a"), &name, key, WallMs(1));
    enrolled.await.unwrap();
    let registered = storage.register_agent(mesh(1), &party("a/one")).await;
    registered.unwrap();
}

async fn ids<S: TestStorage>(storage: &S) -> Vec<String> {
    let limit = PageLimit {
        rows_max: 10_000,
        bytes_max: 10_000_000,
    };
    let page = storage.log_after(mesh(1), HistoryId::ZERO, limit).await;
    let rows = page.unwrap().rows.into_iter();
    rows.map(|row| row.client_message_id.to_string()).collect()
}

/// One that was asked for as often as it says.
async fn begin<S: TestStorage>(storage: &S, id: [u8; 16]) -> UploadVerdict {
    loop {
        let begun = storage.begin_upload(mesh(1), member("a"), OpId::from_bytes(id), WallMs(10));
        match begun.await.unwrap() {
            UploadVerdict::Going => {}
            verdict => return verdict,
        }
    }
}

async fn upload<S: TestStorage>(storage: &S, id: [u8; 16], rows: u64) {
    begin(storage, id).await;
    let mut after = 0;
    while after < rows {
        let through = (after + 250).min(rows);
        let staged = stage(storage, id, part(after, through)).await;
        assert_eq!(staged, UploadVerdict::Through(through));
        after = through;
    }
}

async fn stage<S: TestStorage>(storage: &S, id: [u8; 16], part: UploadPart) -> UploadVerdict {
    let staged = storage.stage_upload(mesh(1), member("a"), OpId::from_bytes(id), part);
    staged.await.unwrap()
}

async fn commit_step<S: TestStorage>(storage: &S, id: [u8; 16], through: u64) -> UploadVerdict {
    let done = storage.commit_upload(mesh(1), member("a"), OpId::from_bytes(id), end(through));
    done.await.unwrap()
}

async fn commit<S: TestStorage>(storage: &S, id: [u8; 16], through: u64) -> UploadVerdict {
    loop {
        match commit_step(storage, id, through).await {
            UploadVerdict::Going => {}
            verdict => return verdict,
        }
    }
}

fn shown(first: u64, row_count: u64) -> Shown {
    Shown {
        first: HistoryId {
            epoch: 1,
            seq: first,
        },
        row_count,
    }
}

/// More rows than a commit takes at once, so that a page is followed by another.
async fn lf_34_an_upload_is_seen_by_nobody_before_its_commit_and_then_by_everybody<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    const ROWS: u64 = 1_300;
    furnish(storage.as_ref()).await;
    let before = storage.dump().await;
    upload(storage.as_ref(), ID, ROWS).await;
    assert_eq!(
        storage.dump().await,
        before,
        "staged rows are rows of nothing"
    );
    assert_eq!(ids(storage.as_ref()).await, Vec::<String>::new());
    let done = commit(storage.as_ref(), ID, ROWS).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, ROWS)));
    let expected: Vec<String> = (1..=ROWS).map(|at| format!("op-{at}")).collect();
    assert_eq!(ids(storage.as_ref()).await, expected);
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
    // The answer was lost: the same one again, and nothing else.
    let after_commit = storage.dump().await;
    for _ in 0..2 {
        let again = commit(storage.as_ref(), ID, ROWS).await;
        assert_eq!(again, UploadVerdict::Shown(shown(1, ROWS)));
        let again = begin(storage.as_ref(), ID).await;
        assert_eq!(again, UploadVerdict::Shown(shown(1, ROWS)));
        let again = stage(storage.as_ref(), ID, part(ROWS, ROWS + 1)).await;
        assert_eq!(again, UploadVerdict::Shown(shown(1, ROWS)));
    }
    assert_eq!(storage.dump().await, after_commit);
}

async fn lf_34_parts_that_come_again_or_out_of_turn_change_nothing<S: TestStorage>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    furnish(storage).await;
    assert_eq!(stage(storage, ID, part(0, 2)).await, UploadVerdict::Unknown);
    assert_eq!(commit(storage, ID, 0).await, UploadVerdict::Unknown);
    assert_eq!(begin(storage, ID).await, UploadVerdict::Through(0));
    assert_eq!(
        stage(storage, ID, part(0, 2)).await,
        UploadVerdict::Through(2)
    );
    // Once more, with a hole, backwards, empty: each hears where it stands.
    for odd in [part(0, 2), part(4, 6), part(1, 3), part(2, 2)] {
        assert_eq!(stage(storage, ID, odd).await, UploadVerdict::Through(2));
    }
    // Whoever thinks there is more, or less, commits nothing.
    for through in [0, 1, 3] {
        assert_eq!(
            commit(storage, ID, through).await,
            UploadVerdict::Through(2)
        );
    }
    assert_eq!(
        begin(storage, ID).await,
        UploadVerdict::Through(2),
        "it goes on"
    );
    assert_eq!(
        stage(storage, ID, part(2, 3)).await,
        UploadVerdict::Through(3)
    );
    // Another member's is another one.
    let other = storage.commit_upload(mesh(1), member("b"), OpId::from_bytes(ID), end(3));
    assert_eq!(other.await, Ok(UploadVerdict::Unknown));
    // Another one in its place begins from nothing.
    let second = [8; 16];
    assert_eq!(begin(storage, second).await, UploadVerdict::Through(0));
    assert_eq!(commit(storage, ID, 3).await, UploadVerdict::Unknown);
    assert_eq!(
        stage(storage, second, part(0, 1)).await,
        UploadVerdict::Through(1)
    );
    let done = commit(storage, second, 1).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, 1)));
    assert_eq!(ids(storage).await, ["op-1"]);
}

async fn lf_34_an_upload_that_is_given_up_is_swept_and_leaves_no_trace<S: TestStorage>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    furnish(storage).await;
    begin(storage, ID).await;
    stage(storage, ID, part(0, 3)).await;
    let sweep = |before| storage.sweep_uploads(mesh(1), WallMs(before));
    assert_eq!(sweep(10).await, Ok(0), "touched just then");
    assert_eq!(sweep(11).await, Ok(1));
    assert_eq!(sweep(11).await, Ok(0));
    assert_eq!(commit(storage, ID, 3).await, UploadVerdict::Unknown);
    assert_eq!(begin(storage, ID).await, UploadVerdict::Through(0));
    assert_eq!(
        commit(storage, ID, 0).await,
        UploadVerdict::Committed(shown(1, 0)),
        "nothing of before was left"
    );
    // What was committed is no longer an upload, and its answer stays.
    assert_eq!(sweep(1_000).await, Ok(0));
    assert_eq!(
        commit(storage, ID, 0).await,
        UploadVerdict::Shown(shown(1, 0))
    );
}

async fn lf_34_a_commit_accepts_what_is_new_once_and_names_the_first_place<S: TestStorage>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    furnish(storage).await;
    begin(storage, ID).await;
    stage(storage, ID, part(0, 3)).await;
    // The same op came the ordinary way meanwhile, and another one.
    let sent = storage.accept(mesh(1), vec![op("op-1", 101), op("else", 102)]);
    sent.await.unwrap();
    let done = commit(storage, ID, 3).await;
    assert_eq!(done, UploadVerdict::Committed(shown(3, 2)));
    assert_eq!(ids(storage).await, ["op-1", "else", "op-2", "op-3"]);
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// The last place that everybody may read.
async fn readable<S: TestStorage>(storage: &S) -> Option<u64> {
    let open = storage.open_snapshot(mesh(1)).await.unwrap();
    open.map(|open| open.behind.seq)
}

async fn ending<S: TestStorage>(storage: &S) -> Option<(OpId, u64)> {
    let ending = storage.ending_upload(mesh(1), member("a"));
    ending.await.unwrap()
}

async fn lf_34_a_commit_of_many_rows_goes_on_where_it_was_left_and_hides_them_to_its_end<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    const ROWS: u64 = 1_300;
    let storage = storage.as_ref();
    furnish(storage).await;
    let sent = storage.accept(mesh(1), vec![op("before", 9_001)]);
    sent.await.unwrap();
    upload(storage, ID, ROWS).await;
    assert_eq!(ending(storage).await, None);
    assert_eq!(commit_step(storage, ID, ROWS).await, UploadVerdict::Going);
    // Whoever is killed here, and whoever asks, finds it as it is: open, and hidden behind what was there.
    for _ in 0..2 {
        assert_eq!(readable(storage).await, Some(1));
        assert_eq!(begin(storage, ID).await, UploadVerdict::Through(ROWS));
        assert_eq!(ending(storage).await, Some((OpId::from_bytes(ID), ROWS)));
    }
    // It takes no more rows, and is committed whole or not.
    let more = stage(storage, ID, part(ROWS, ROWS + 1)).await;
    assert_eq!(more, UploadVerdict::Through(ROWS));
    let early = commit_step(storage, ID, ROWS - 1).await;
    assert_eq!(early, UploadVerdict::Through(ROWS));
    // Others go on meanwhile, behind the same place, and so does one of the very ops.
    let others = vec![op("else", 9_002), op("op-1200", 9_003)];
    storage.accept(mesh(1), others).await.unwrap();
    assert_eq!(commit_step(storage, ID, ROWS).await, UploadVerdict::Going);
    assert_eq!(readable(storage).await, Some(1));
    let done = commit_step(storage, ID, ROWS).await;
    assert_eq!(done, UploadVerdict::Committed(shown(2, ROWS - 1)));
    assert_eq!(readable(storage).await, None, "everybody sees it");
    assert_eq!(ending(storage).await, None);
    let again = commit_step(storage, ID, ROWS).await;
    assert_eq!(again, UploadVerdict::Shown(shown(2, ROWS - 1)));
    let mut found = ids(storage).await;
    assert_eq!(found.len(), 1_302);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 1_302, "each of them once");
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

async fn lf_34_what_is_being_shown_is_neither_replaced_nor_swept<S: TestStorage>(storage: Arc<S>) {
    const ROWS: u64 = 600;
    let storage = storage.as_ref();
    furnish(storage).await;
    upload(storage, ID, ROWS).await;
    assert_eq!(commit_step(storage, ID, ROWS).await, UploadVerdict::Going);
    let second = [8; 16];
    let other = begin(storage, second).await;
    assert_eq!(other, UploadVerdict::Ending(OpId::from_bytes(ID), ROWS));
    let swept = storage.sweep_uploads(mesh(1), WallMs(1_000));
    assert_eq!(swept.await, Ok(0));
    let done = commit_step(storage, ID, ROWS).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, ROWS)));
    assert_eq!(readable(storage).await, None);
    assert_eq!(begin(storage, second).await, UploadVerdict::Through(0));
}

async fn lf_34_a_commit_waits_for_somebody_elses_snapshot<S: TestStorage>(storage: Arc<S>) {
    const ROWS: u64 = 600;
    let storage = storage.as_ref();
    furnish(storage).await;
    upload(storage, ID, ROWS).await;
    let theirs = OpId::from_bytes([9; 16]);
    let begun = storage.begin_snapshot(mesh(1), theirs, member("b"));
    begun.await.unwrap();
    let before = storage.dump().await;
    assert_eq!(commit_step(storage, ID, ROWS).await, UploadVerdict::Waits);
    assert_eq!(storage.dump().await, before, "nothing of it was taken");
    let over = storage.commit_snapshot(mesh(1), theirs, member("b"));
    over.await.unwrap();
    let done = commit(storage, ID, ROWS).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, ROWS)));
}

/// Rows of which five are more than a step takes: each step takes four, and none is left out.
async fn lf_34_a_step_of_a_commit_is_bounded_in_bytes<S: TestStorage>(storage: Arc<S>) {
    let storage = storage.as_ref();
    furnish(storage).await;
    begin(storage, ID).await;
    let mut large = part(0, 10);
    for row in &mut large.rows {
        let filler = "x".repeat(BATCH_BYTES_MAX / 4 + 1);
        row.envelope = format!("{{\"x\":\"{filler}\"}}").into();
    }
    assert_eq!(stage(storage, ID, large).await, UploadVerdict::Through(10));
    let mut steps = 1;
    let done = loop {
        match commit_step(storage, ID, 10).await {
            UploadVerdict::Going => steps += 1,
            verdict => break verdict,
        }
    };
    assert_eq!((steps, done), (3, UploadVerdict::Committed(shown(1, 10))));
}

async fn lf_34_many_rows_are_thrown_away_in_steps_and_nobody_goes_on_with_them<S: TestStorage>(
    storage: Arc<S>,
) {
    const ROWS: u64 = 5_000;
    let storage = storage.as_ref();
    furnish(storage).await;
    upload(storage, ID, ROWS).await;
    let second = [8; 16];
    let begun = || storage.begin_upload(mesh(1), member("a"), OpId::from_bytes(second), WallMs(10));
    assert_eq!(begun().await, Ok(UploadVerdict::Going));
    // What is half gone can be neither gone on with nor committed.
    let old = stage(storage, ID, part(ROWS, ROWS + 1)).await;
    assert_eq!(old, UploadVerdict::Unknown);
    assert_eq!(commit(storage, ID, ROWS).await, UploadVerdict::Unknown);
    assert_eq!(begun().await, Ok(UploadVerdict::Through(0)));
    upload(storage, second, ROWS).await;
    let swept = storage.sweep_uploads(mesh(1), WallMs(11));
    assert_eq!(swept.await, Ok(1));
    assert_eq!(commit(storage, second, ROWS).await, UploadVerdict::Unknown);
    upload(storage, second, 2).await;
    let done = commit(storage, second, 2).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, 2)));
    assert_eq!(ids(storage).await, ["op-1", "op-2"]);
}

/// Another op of the same id.
fn other(id: &str, minted: u128) -> NewMessage {
    NewMessage {
        wire_fingerprint: Fingerprint([2; 32]),
        ..op(id, minted)
    }
}

async fn left_out<S: TestStorage>(storage: &S, id: [u8; 16]) -> (u64, Vec<String>) {
    let asked = storage.upload_left_out(mesh(1), member("a"), OpId::from_bytes(id));
    let LeftOut { count, named } = asked.await.unwrap();
    let named = named.into_iter().map(|row| {
        assert_eq!(row.agent, party("a/one").agent);
        format!("{} {}", row.client_message_id, row.code.as_str())
    });
    (count, named.collect())
}

async fn lf_34_rows_whose_id_is_another_rows_are_named_by_the_commit_and_whenever_it_comes_again<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    furnish(storage).await;
    begin(storage, ID).await;
    stage(storage, ID, part(0, 3)).await;
    // In another part: another op under an id of before, and one of before once more.
    let rows = vec![other("op-2", 104), op("op-3", 105)];
    let more = UploadPart { rows, ..part(3, 5) };
    assert_eq!(stage(storage, ID, more).await, UploadVerdict::Through(5));
    // And one whose id is used up meanwhile, the ordinary way.
    let sent = storage.accept(mesh(1), vec![other("op-1", 106)]);
    sent.await.unwrap();
    assert_eq!(left_out(storage, ID).await.0, 0, "nothing was decided");
    let done = commit(storage, ID, 5).await;
    assert_eq!(done, UploadVerdict::Committed(shown(2, 2)));
    let told = ["op-1 idempotency_key_reused", "op-2 idempotency_key_reused"];
    let told = (2, told.map(str::to_owned).to_vec());
    assert_eq!(left_out(storage, ID).await, told);
    let again = commit(storage, ID, 5).await;
    assert_eq!(again, UploadVerdict::Shown(shown(2, 2)));
    assert_eq!(left_out(storage, ID).await, told);
    assert_eq!(ids(storage).await, ["op-1", "op-2", "op-3"]);
    // Of another upload in its place nothing is said that was not so.
    let second = [8; 16];
    assert_eq!(left_out(storage, second).await, (0, Vec::new()));
    upload(storage, second, 1).await;
    assert_eq!(left_out(storage, second).await, (0, Vec::new()));
    assert_eq!(left_out(storage, ID).await, (0, Vec::new()));
    commit(storage, second, 1).await;
    let told = (1, vec!["op-1 idempotency_key_reused".to_owned()]);
    assert_eq!(left_out(storage, second).await, told);
}

async fn lf_34_many_of_them_are_counted_over_all_steps_and_the_first_are_named<S: TestStorage>(
    storage: Arc<S>,
) {
    const ROWS: u64 = 700;
    let storage = storage.as_ref();
    furnish(storage).await;
    upload(storage, ID, ROWS).await;
    let rows = (1..=ROWS).map(|at| other(&format!("op-{at}"), u128::from(ROWS + at)));
    let rows = rows.collect();
    let more = UploadPart {
        rows,
        ..part(ROWS, 2 * ROWS)
    };
    stage(storage, ID, more).await;
    let done = commit(storage, ID, 2 * ROWS).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, ROWS)));
    let (count, named) = left_out(storage, ID).await;
    assert_eq!((count, named.len()), (ROWS, 100));
    assert_eq!(named[99], "op-100 idempotency_key_reused");
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}
