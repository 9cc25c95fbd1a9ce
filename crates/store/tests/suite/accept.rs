//! Accepting a send: OB-01, OB-04, OB-05, OB-06, C1, C47.

use heddle_core::clock::Ids;
use heddle_core::gate::{IPC_ACCEPT, IpcVerdict};
use heddle_core::ids::{IdKey, MemberId, MeshId, Party};
use heddle_core::outbox_status::OutboxStatus;
use heddle_store::{AcceptKey, Accepted, OutboxFind, StoreError};

use crate::fixture::{Fixture, agent, client_id, open, print};

#[tokio::test]
async fn ob_01_an_accepted_row_is_there_after_a_crash_with_its_fingerprint() {
    let fixture = Fixture::new();
    let row = fixture.accept("deploy-42").await;
    let before = fixture.find(row).await;
    let (_folder, store) = fixture.crashed_copy();
    let find = OutboxFind::ClientMessageId {
        id: client_id("deploy-42"),
        mesh: None,
        agent: None,
    };
    let found = store.outbox_find(find).await.unwrap();
    assert_eq!(found, [before]);
    assert_eq!(found[0].request_fingerprint, print(1));
}

#[tokio::test]
async fn ob_04_ob_05_each_of_the_ten_known_cases_is_answered_by_the_table_and_changes_no_byte() {
    let fixture = Fixture::new();
    let mut answered = Vec::new();
    for status in OutboxStatus::ALL {
        let id = format!("id-{}", status.as_str());
        let row = fixture.row_in(status, &id).await;
        for fingerprint in [1, 2] {
            let before = fixture.dump("outbox");
            let fresh = Ok(fixture.new_row());
            let key = fixture.key(&id, fingerprint);
            let accepted = fixture.store.accept::<()>(key, fresh).await.unwrap();
            assert_eq!(fixture.dump("outbox"), before, "{status:?} {fingerprint}");
            let Accepted::Known {
                decision,
                row: found,
                ..
            } = accepted
            else {
                panic!("{status:?} {fingerprint}: {accepted:?}");
            };
            assert_eq!((found.row, found.status), (row, status));
            assert_eq!(decision.found.unwrap().0, status);
            answered.push(decision.name);
        }
    }
    let known: Vec<&str> = IPC_ACCEPT[1..].iter().map(|row| row.name).collect();
    assert_eq!(answered, known);
}

#[tokio::test]
async fn ob_04_a_free_id_is_inserted_as_pending() {
    let fixture = Fixture::new();
    assert_eq!(IPC_ACCEPT[0].verdict, IpcVerdict::Insert);
    let new = fixture.new_row();
    let key = fixture.key("fresh", 1);
    let accepted = fixture.store.accept::<()>(key, Ok(new.clone())).await;
    assert_eq!(accepted.unwrap(), Accepted::Inserted { row: new.row });
    let row = fixture.find(new.row).await;
    assert_eq!((row.status, row.attempts), (OutboxStatus::Pending, 0));
    assert_eq!((row.arrival, row.mesh), (1, fixture.mesh));
    assert_eq!((row.to, row.mentions), (new.to, new.mentions));
    assert_eq!((row.kind, row.priority), (new.kind, new.priority));
    assert_eq!(row.payload, new.payload);
    assert_eq!(row.wire_fingerprint, new.wire_fingerprint);
    assert_eq!(row.enqueued_at, new.enqueued_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn ob_06_of_64_concurrent_sends_under_one_id_exactly_one_is_inserted() {
    let fixture = Fixture::new();
    let mut sends = Vec::new();
    for n in 0..64 {
        let store = fixture.store.clone();
        let key = fixture.key("same", 1 + n % 2);
        let new = fixture.new_row();
        sends.push(tokio::spawn(async move {
            let accepted = store.accept::<()>(key.clone(), Ok(new)).await.unwrap();
            (key.request_fingerprint, accepted)
        }));
    }
    let mut answers = Vec::new();
    for send in sends {
        answers.push(send.await.unwrap());
    }
    let winners: Vec<_> = answers
        .iter()
        .filter_map(|(print, accepted)| match accepted {
            Accepted::Inserted { row } => Some((*print, *row)),
            _ => None,
        })
        .collect();
    let [(winning_print, winning_row)] = winners[..] else {
        panic!("{} were inserted", winners.len());
    };
    for (print, accepted) in &answers {
        let Accepted::Known { decision, row, .. } = accepted else {
            continue;
        };
        assert_eq!(row.row, winning_row);
        assert_eq!(
            decision.verdict == IpcVerdict::Queued,
            *print == winning_print
        );
    }
    assert_eq!(fixture.dump("outbox").len(), 1);
}

#[tokio::test]
async fn c1_the_same_client_id_is_independent_between_meshes_members_and_agents() {
    let fixture = Fixture::new();
    let base = fixture.key("deploy-42", 1);
    let other_party = |member, name: &str| Party {
        member,
        agent: agent(name),
    };
    let keys = [
        base.clone(),
        AcceptKey {
            mesh: MeshId(fixture.ids.ulid()),
            ..base.clone()
        },
        AcceptKey {
            sender: other_party(MemberId(fixture.ids.ulid()), "planner"),
            ..base.clone()
        },
        AcceptKey {
            sender: other_party(fixture.member, "coder"),
            ..base.clone()
        },
    ];
    for key in &keys {
        let fresh = Ok(fixture.new_row());
        let accepted = fixture.store.accept::<()>(key.clone(), fresh).await;
        assert!(
            matches!(accepted.unwrap(), Accepted::Inserted { .. }),
            "{key:?}"
        );
    }
    for key in keys {
        let again = fixture.store.accept::<()>(key, Err(())).await.unwrap();
        assert!(matches!(again, Accepted::Known { .. }));
    }
}

#[tokio::test]
async fn c47_a_known_id_is_answered_although_a_new_send_would_be_refused() {
    let fixture = Fixture::new();
    let row = fixture.accept("known").await;
    let key = fixture.key("known", 1);
    match fixture
        .store
        .accept(key, Err("the disk is full"))
        .await
        .unwrap()
    {
        Accepted::Known { row: found, .. } => assert_eq!(found.row, row),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c47_a_refused_send_writes_nothing_and_leaves_its_id_free() {
    let fixture = Fixture::new();
    let key = fixture.key("later", 1);
    let refused = fixture.store.accept(key, Err("unknown recipient")).await;
    assert_eq!(refused.unwrap(), Accepted::Refused("unknown recipient"));
    assert!(fixture.dump("outbox").is_empty());
    fixture.accept("later").await;
}

#[tokio::test]
async fn a_key_that_belongs_to_another_id_is_corruption_and_not_a_duplicate() {
    let fixture = Fixture::new();
    fixture.accept("mine").await;
    let key = fixture.key("other", 1);
    let taken = IdKey::of(key.mesh, &key.sender, &key.client_message_id);
    fixture.store.stop();
    fixture
        .raw()
        .execute_batch("DROP TRIGGER outbox_frozen")
        .unwrap();
    fixture
        .raw()
        .execute("UPDATE outbox SET id_key = ?1", [taken.0])
        .unwrap();
    let store = open(&fixture.path()).unwrap();
    let accepted = store.accept::<()>(key, Ok(fixture.new_row())).await;
    assert!(
        matches!(accepted, Err(StoreError::Corrupt(_))),
        "{accepted:?}"
    );
}
