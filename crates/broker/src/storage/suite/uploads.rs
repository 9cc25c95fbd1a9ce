//! Uploads of a snapshot: parts that go on, come again or are given up, and a commit that shows all or nothing;
//! the same in every store.

use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId, OpId};
use heddle_core::limits::UPLOAD_ROWS_MAX;
use heddle_core::membership::MemberKey;
use heddle_core::names::MemberName;
use ulid::Ulid;

use crate::storage::{
    Destination, NewMessage, PageLimit, SendId, Shown, UploadEnd, UploadPart, UploadVerdict,
};
use crate::test_support::{TestStorage, member, mesh, mesh_name, on_every_storage, party};

on_every_storage!(
    lf_34_an_upload_is_seen_by_nobody_before_its_commit_and_then_by_everybody,
    lf_34_parts_that_come_again_or_out_of_turn_change_nothing,
    lf_34_an_upload_that_is_given_up_is_swept_and_leaves_no_trace,
    lf_34_a_commit_accepts_what_is_new_once_and_names_the_first_place,
    an_upload_has_a_bound,
);

const ID: [u8; 16] = [7; 16];

fn op(id: &str, minted: u128) -> NewMessage {
    let client_message_id = ClientMessageId::parse(id).unwrap();
    NewMessage {
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

async fn begin<S: TestStorage>(storage: &S, id: [u8; 16]) -> UploadVerdict {
    let begun = storage.begin_upload(mesh(1), member("a"), OpId::from_bytes(id), WallMs(10));
    begun.await.unwrap()
}

async fn stage<S: TestStorage>(storage: &S, id: [u8; 16], part: UploadPart) -> UploadVerdict {
    let staged = storage.stage_upload(mesh(1), member("a"), OpId::from_bytes(id), part);
    staged.await.unwrap()
}

async fn commit<S: TestStorage>(storage: &S, id: [u8; 16], through: u64) -> UploadVerdict {
    let done = storage.commit_upload(mesh(1), member("a"), OpId::from_bytes(id), end(through));
    done.await.unwrap()
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
    assert_eq!(begin(storage.as_ref(), ID).await, UploadVerdict::Through(0));
    let mut after = 0;
    while after < ROWS {
        let through = (after + 250).min(ROWS);
        let staged = stage(storage.as_ref(), ID, part(after, through)).await;
        assert_eq!(staged, UploadVerdict::Through(through));
        after = through;
    }
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

async fn an_upload_has_a_bound<S: TestStorage>(storage: Arc<S>) {
    let storage = storage.as_ref();
    furnish(storage).await;
    begin(storage, ID).await;
    stage(storage, ID, part(0, 1)).await;
    let one = part(1, 2).rows.remove(0);
    let count = usize::try_from(UPLOAD_ROWS_MAX).unwrap();
    let huge = UploadPart {
        rows: vec![one; count],
        ..part(1, 2)
    };
    assert_eq!(stage(storage, ID, huge).await, UploadVerdict::TooLarge);
    let done = commit(storage, ID, 1).await;
    assert_eq!(done, UploadVerdict::Committed(shown(1, 1)));
}
