//! The suite of roles and blocks: the same cases over every implementation.

use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, MemberId, OpId, Party};
use heddle_core::membership::{Bar, Change, ChangeVerdict, Role};
use ulid::Ulid;

use super::RevokeVerdict;
use super::suite::{AT, LATE, claim, name, open, party_of};
use crate::storage::{
    Accepted, Destination, LeaseMs, NewMessage, SendId, UploadEnd, UploadPart, UploadVerdict,
};
use crate::test_support::{TestStorage, member, mesh, on_every_storage, topic};

const BOB: MemberId = MemberId(Ulid(5_002));
const CAROL: MemberId = MemberId(Ulid(5_003));
const BLOCK: Change = Change::Block;
const OWNER: Change = Change::Grant(Role::Owner);
const MEMBER: Change = Change::Grant(Role::Member);

on_every_storage!(
    t_30_a_blocked_member_is_not_heard_keeps_what_is_its_own_and_is_heard_after_a_grant,
    t_30_what_a_revoked_member_sends_past_the_first_look_is_refused_in_the_transaction,
    t_30_an_upload_of_a_blocked_member_is_not_committed,
    lf_34_a_bar_in_the_middle_of_a_commit_cuts_nothing_short,
    an_owner_that_was_granted_may_do_what_owners_do_and_the_mesh_keeps_one,
    a_key_that_is_blocked_is_the_same_member_still,
);

/// A message of this sender to a topic, to an agent or to the log.
fn message(sender: &Party, id: &str, number: u128, destination: Destination) -> NewMessage {
    NewMessage {
        is_heard: false,
        id: SendId::new(mesh(1), sender.clone(), ClientMessageId::parse(id).unwrap()),
        sender_name: name("bob"),
        broker_message_id: BrokerMessageId(Ulid(number)),
        wire_fingerprint: Fingerprint([7; 32]),
        destination,
        priority: Priority::Next,
        mentions: Vec::new(),
        envelope: "{}".into(),
        accepted_at: AT,
        expires_at: None,
        limiter: None,
        epoch: None,
        session: None,
    }
}

/// `a` owns the mesh; bob and carol have joined, each with a mailbox that reads `#ops`.
async fn three<S: TestStorage>(storage: &S) {
    open(storage, 9).await;
    for (by, called) in [(2, "bob"), (3, "carol")] {
        storage.enrol(mesh(1), claim(1, by, called)).await.unwrap();
        let mailbox = party_of(MemberId(Ulid(u128::from(by) + 5_000)));
        storage.register_agent(mesh(1), &mailbox).await.unwrap();
        let subscribed = storage.subscribe(mesh(1), &topic("#ops"), &mailbox).await;
        assert!(subscribed.unwrap());
    }
}

async fn change<S: TestStorage>(
    storage: &S,
    by: MemberId,
    who: MemberId,
    change: Change,
) -> ChangeVerdict {
    let changing = storage.change_standing(mesh(1), by, who, change, LATE);
    changing.await.unwrap()
}

async fn accept<S: TestStorage>(storage: &S, new: NewMessage) -> Accepted {
    let answers = storage.accept(mesh(1), vec![new]).await.unwrap();
    answers.into_iter().next().unwrap()
}

async fn t_30_a_blocked_member_is_not_heard_keeps_what_is_its_own_and_is_heard_after_a_grant<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    three(storage).await;
    let (a, bob) = (member("a"), party_of(BOB));
    let ops = || Destination::Topic(topic("#ops"));
    let before = accept(storage, message(&bob, "before", 1, ops())).await;
    assert!(matches!(before, Accepted::Created { .. }), "{before:?}");
    let session = storage.begin_session(mesh(1), BOB, AT, LeaseMs(100)).await;
    assert_eq!(change(storage, a, BOB, BLOCK).await, ChangeVerdict::Changed);
    assert_eq!(change(storage, a, BOB, BLOCK).await, ChangeVerdict::Already);
    // Wherever it goes, alone and among others, and nothing of it is written.
    let rows = storage.dump().await;
    let nowhere = Destination::Topic(topic("#none"));
    for (number, to) in [ops(), nowhere, Destination::Log].into_iter().enumerate() {
        let id = format!("n{number}");
        let one = message(&bob, &id, 10 + number as u128, to);
        assert_eq!(accept(storage, one).await, Accepted::Barred(Bar::Blocked));
    }
    assert_eq!(storage.dump().await, rows);
    let carol = message(&party_of(CAROL), "c", 20, ops());
    let batch = vec![message(&bob, "b", 21, ops()), carol];
    let answers = storage.accept(mesh(1), batch).await.unwrap();
    assert_eq!(answers[0], Accepted::Barred(Bar::Blocked));
    // What others send waits for it.
    let Accepted::Created { recipients, .. } = &answers[1] else {
        panic!("{:?}", answers[1]);
    };
    assert_eq!(recipients.as_ref(), [BOB, CAROL]);
    // An id that it had consumed is answered as ever (B0 comes first).
    let again = accept(storage, message(&bob, "before", 30, ops())).await;
    assert!(matches!(again, Accepted::Duplicate(_)), "{again:?}");
    let lease = storage.renew_session(mesh(1), BOB, session.unwrap(), LeaseMs(200));
    assert!(!lease.await.unwrap(), "its session ended with the block");
    let standing = storage.credentials(mesh(1), BOB).await.unwrap().standing;
    let standing = standing.unwrap();
    assert_eq!(
        (standing.blocked_at, standing.bar()),
        (Some(LATE), Some(Bar::Blocked))
    );
    assert_eq!(
        change(storage, a, BOB, MEMBER).await,
        ChangeVerdict::Changed
    );
    let after = accept(storage, message(&bob, "n0", 40, ops())).await;
    assert!(matches!(after, Accepted::Created { .. }), "{after:?}");
}

async fn t_30_what_a_revoked_member_sends_past_the_first_look_is_refused_in_the_transaction<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    three(storage).await;
    let a = member("a");
    assert_eq!(change(storage, a, BOB, BLOCK).await, ChangeVerdict::Changed);
    let revoked = storage.revoke(mesh(1), a, BOB, LATE).await.unwrap();
    assert_eq!(
        revoked,
        RevokeVerdict::Revoked,
        "a blocked one can be shut out"
    );
    let late = message(&party_of(BOB), "late", 1, Destination::Log);
    assert_eq!(accept(storage, late).await, Accepted::Barred(Bar::Revoked));
    for what in [BLOCK, OWNER, MEMBER] {
        assert_eq!(
            change(storage, a, BOB, what).await,
            ChangeVerdict::IsRevoked
        );
    }
}

async fn an_owner_that_was_granted_may_do_what_owners_do_and_the_mesh_keeps_one<S: TestStorage>(
    storage: Arc<S>,
) {
    let storage = storage.as_ref();
    three(storage).await;
    let a = member("a");
    for (by, who, what, verdict) in [
        (BOB, CAROL, BLOCK, ChangeVerdict::NotOwner),
        (member("z"), BOB, OWNER, ChangeVerdict::NotOwner),
        (a, member("z"), BLOCK, ChangeVerdict::UnknownMember),
        (a, BOB, MEMBER, ChangeVerdict::Already),
        (a, a, BLOCK, ChangeVerdict::IsOwner),
        (a, a, MEMBER, ChangeVerdict::LastOwner),
        (a, BOB, OWNER, ChangeVerdict::Changed),
        // Two owners: the one that came with the mesh stays one.
        (BOB, a, MEMBER, ChangeVerdict::LastOwner),
        (BOB, CAROL, BLOCK, ChangeVerdict::Changed),
        (CAROL, BOB, MEMBER, ChangeVerdict::NotOwner),
        (a, BOB, BLOCK, ChangeVerdict::IsOwner),
        (a, BOB, MEMBER, ChangeVerdict::Changed),
        (BOB, CAROL, MEMBER, ChangeVerdict::NotOwner),
        (a, CAROL, OWNER, ChangeVerdict::Changed),
    ] {
        let got = change(storage, by, who, what).await;
        assert_eq!(got, verdict, "{by} {who} {what:?}");
    }
    let roles: Vec<(bool, Role)> = storage
        .standings(mesh(1))
        .await
        .unwrap()
        .into_iter()
        .map(|one| (one.is_founder, one.role))
        .collect();
    assert_eq!(
        roles.iter().filter(|(is_founder, _)| *is_founder).count(),
        1
    );
    assert_eq!(
        roles
            .iter()
            .filter(|(_, role)| *role == Role::Owner)
            .count(),
        2
    );
    let unknown = storage.change_standing(mesh(9), a, BOB, BLOCK, LATE).await;
    assert!(unknown.is_err());
}

async fn a_key_that_is_blocked_is_the_same_member_still<S: TestStorage>(storage: Arc<S>) {
    let storage = storage.as_ref();
    three(storage).await;
    change(storage, member("a"), BOB, BLOCK).await;
    // Taking the link up once more makes no second member of it, and lifts nothing.
    let again = storage.enrol(mesh(1), claim(1, 2, "bobby")).await.unwrap();
    let first = super::EnrolVerdict::Duplicate {
        member: BOB,
        name: name("bob"),
    };
    assert_eq!(again, first);
    let standings = storage.standings(mesh(1)).await.unwrap();
    let blocked: Vec<_> = standings.iter().filter_map(|one| one.blocked_at).collect();
    assert_eq!(blocked, [WallMs(LATE.0)]);
}

async fn t_30_an_upload_of_a_blocked_member_is_not_committed<S: TestStorage>(storage: Arc<S>) {
    let storage = storage.as_ref();
    three(storage).await;
    let id = OpId::from_bytes([3; 16]);
    let part = UploadPart {
        after: 0,
        through: 1,
        rows: vec![message(&party_of(BOB), "staged", 900, Destination::Log)],
        now: AT,
    };
    let end = UploadEnd {
        through: 1,
        sender_name: name("bob"),
        at: LATE,
        expires_at: None,
    };
    storage.begin_upload(mesh(1), BOB, id, AT).await.unwrap();
    storage.stage_upload(mesh(1), BOB, id, part).await.unwrap();
    change(storage, member("a"), BOB, BLOCK).await;
    let commit = || storage.commit_upload(mesh(1), BOB, id, end.clone());
    assert_eq!(commit().await, Ok(UploadVerdict::Barred));
    change(storage, member("a"), BOB, MEMBER).await;
    let done = commit().await.unwrap();
    assert!(matches!(done, UploadVerdict::Committed(shown) if shown.row_count == 1));
}

/// What was heard when its commit began is accepted to its end: half of it would be seen for ever.
async fn lf_34_a_bar_in_the_middle_of_a_commit_cuts_nothing_short<S: TestStorage>(storage: Arc<S>) {
    const ROWS: u64 = 600;
    let storage = storage.as_ref();
    three(storage).await;
    let id = OpId::from_bytes([3; 16]);
    let row = |at: u64| {
        let name = format!("staged-{at}");
        message(
            &party_of(BOB),
            &name,
            900 + u128::from(at),
            Destination::Log,
        )
    };
    let part = UploadPart {
        after: 0,
        through: ROWS,
        rows: (0..ROWS).map(row).collect(),
        now: AT,
    };
    let end = UploadEnd {
        through: ROWS,
        sender_name: name("bob"),
        at: LATE,
        expires_at: None,
    };
    storage.begin_upload(mesh(1), BOB, id, AT).await.unwrap();
    storage.stage_upload(mesh(1), BOB, id, part).await.unwrap();
    let commit = || storage.commit_upload(mesh(1), BOB, id, end.clone());
    assert_eq!(commit().await, Ok(UploadVerdict::Going));
    change(storage, member("a"), BOB, BLOCK).await;
    let done = commit().await.unwrap();
    assert!(matches!(done, UploadVerdict::Committed(shown) if shown.row_count == ROWS));
}
