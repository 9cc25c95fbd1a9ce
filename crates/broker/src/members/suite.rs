//! The suite of members: the same cases over every implementation, and the rows compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, InviteId, MemberId};
use heddle_core::membership::{Change, MemberKey, PublicKey, Role};
use heddle_core::names::MemberName;
use ulid::Ulid;

use super::{EnrolVerdict, Enrolment, Members as _, NewInvite, RevokeVerdict};
use crate::storage::{LeaseMs, Storage as _, StorageError};
use crate::test_support::{
    TestStorage, member, memory, mesh, mesh_name, on_every_storage, party, postgres, sqlite, topic,
};

pub(super) const AT: WallMs = WallMs(1_000);
pub(super) const LATE: WallMs = WallMs(9_000);

pub(super) fn name(text: &str) -> MemberName {
    MemberName::parse(text).unwrap()
}

pub(super) fn key(number: u8) -> PublicKey {
    MemberKey::from_seed([number; 32]).public()
}

fn invite(number: u128, uses_max: u32) -> NewInvite {
    NewInvite {
        invite: InviteId(Ulid(number)),
        digest: [u8::try_from(number).unwrap(); 32],
        inviter: member("a"),
        role: Role::Member,
        uses_max,
        created_at: AT,
        expires_at: LATE,
    }
}

/// A claim on invitation `number` by the key of that number, as this member.
pub(super) fn claim(number: u128, by: u8, called: &str) -> Enrolment {
    Enrolment {
        invite: InviteId(Ulid(number)),
        digest: [u8::try_from(number).unwrap(); 32],
        member: MemberId(Ulid(u128::from(by) + 5_000)),
        name: name(called),
        key: key(by),
        at: AT,
    }
}

fn enrolled(by: u8, called: &str) -> EnrolVerdict {
    EnrolVerdict::Enrolled {
        member: MemberId(Ulid(u128::from(by) + 5_000)),
        name: name(called),
    }
}

/// A mesh that `a` owns, with an invitation for so many.
pub(super) async fn open<S: TestStorage>(storage: &S, uses_max: u32) {
    let (mesh, a) = (mesh(1), member("a"));
    storage.ensure_mesh(mesh, &mesh_name("home")).await.unwrap();
    let alice = name("alice");
    let owner = storage.enrol_owner(mesh, a, &alice, key(1), AT);
    assert!(owner.await.unwrap());
    assert!(
        storage
            .create_invite(mesh, invite(1, uses_max))
            .await
            .unwrap()
    );
}

on_every_storage!(
    a_broker_keeps_the_first_id_it_was_offered,
    t_69_the_last_use_is_taken_once_however_many_race,
    t_71_the_same_key_again_gets_the_first_answer_and_takes_no_use,
    t_72_t_73_expired_unknown_and_other_links_enrol_nobody,
    a_taken_name_is_refused_with_a_suggestion_and_takes_no_use,
    c1_a_member_keeps_its_id_when_its_key_changes,
    t_30_a_revoked_member_loses_its_mailboxes_and_gets_none,
    only_an_owner_revokes_and_an_owner_stays,
    br_17_meshes_are_apart,
);

async fn a_broker_keeps_the_first_id_it_was_offered<S: TestStorage>(storage: Arc<S>) {
    let (first, second) = (BrokerId(Ulid(1)), BrokerId(Ulid(2)));
    assert_eq!(storage.broker_id(first).await.unwrap(), first);
    assert_eq!(storage.broker_id(second).await.unwrap(), first);
}

async fn t_69_the_last_use_is_taken_once_however_many_race<S: TestStorage>(storage: Arc<S>) {
    open(storage.as_ref(), 3).await;
    let tasks: Vec<_> = (10..74)
        .map(|by| {
            let storage = Arc::clone(&storage);
            tokio::spawn(async move {
                let claim = claim(1, by, &format!("m{by}"));
                storage.enrol(mesh(1), claim).await.unwrap()
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            EnrolVerdict::Enrolled { .. } => won += 1,
            other => assert_eq!(other, EnrolVerdict::UsedUp),
        }
    }
    assert_eq!(won, 3);
    assert_eq!(storage.standings(mesh(1)).await.unwrap().len(), 4);
}

async fn t_71_the_same_key_again_gets_the_first_answer_and_takes_no_use<S: TestStorage>(
    storage: Arc<S>,
) {
    open(storage.as_ref(), 2).await;
    let verdict = storage.enrol(mesh(1), claim(1, 2, "bob")).await.unwrap();
    assert_eq!(verdict, enrolled(2, "bob"));
    // With another id and name on offer, and after the end of the invitation: it is the same enrolment.
    let again = Enrolment {
        member: MemberId(Ulid(77)),
        at: WallMs(LATE.0 + 1),
        ..claim(1, 2, "robert")
    };
    let first = EnrolVerdict::Duplicate {
        member: MemberId(Ulid(5_002)),
        name: name("bob"),
    };
    for _ in 0..3 {
        assert_eq!(storage.enrol(mesh(1), again.clone()).await.unwrap(), first);
    }
    let other = storage.enrol(mesh(1), claim(1, 3, "carol")).await.unwrap();
    assert_eq!(other, enrolled(3, "carol"));
    let third = storage.enrol(mesh(1), claim(1, 4, "dave")).await.unwrap();
    assert_eq!(third, EnrolVerdict::UsedUp);
}

async fn t_72_t_73_expired_unknown_and_other_links_enrol_nobody<S: TestStorage>(storage: Arc<S>) {
    open(storage.as_ref(), 1).await;
    let expired = Enrolment {
        at: LATE,
        ..claim(1, 2, "bob")
    };
    let other_link = Enrolment {
        digest: [9; 32],
        ..claim(1, 2, "bob")
    };
    for (claim, verdict) in [
        (expired, EnrolVerdict::Expired { at: LATE }),
        (other_link, EnrolVerdict::UnknownInvite),
        (claim(2, 2, "bob"), EnrolVerdict::UnknownInvite),
    ] {
        assert_eq!(storage.enrol(mesh(1), claim).await.unwrap(), verdict);
    }
    assert_eq!(storage.standings(mesh(1)).await.unwrap().len(), 1);
    assert_eq!(
        storage.invite(mesh(1), invite(1, 1).invite).await.unwrap(),
        Some(invite(1, 1))
    );
    assert_eq!(
        storage.invite(mesh(1), invite(2, 1).invite).await.unwrap(),
        None
    );
    // The same invitation again is no news, and gives no use back.
    assert!(!storage.create_invite(mesh(1), invite(1, 5)).await.unwrap());
    let won = storage.enrol(mesh(1), claim(1, 2, "bob")).await.unwrap();
    assert_eq!(won, enrolled(2, "bob"));
    let late = storage.enrol(mesh(1), claim(1, 3, "eve")).await.unwrap();
    assert_eq!(late, EnrolVerdict::UsedUp);
}

async fn a_taken_name_is_refused_with_a_suggestion_and_takes_no_use<S: TestStorage>(
    storage: Arc<S>,
) {
    open(storage.as_ref(), 1).await;
    let taken = storage.enrol(mesh(1), claim(1, 2, "Alice")).await.unwrap();
    let suggestion = Some(name("Alice-2"));
    assert_eq!(taken, EnrolVerdict::NameTaken { suggestion });
    let free = storage.enrol(mesh(1), claim(1, 2, "Alice-2")).await;
    assert_eq!(free.unwrap(), enrolled(2, "Alice-2"));
}

async fn c1_a_member_keeps_its_id_when_its_key_changes<S: TestStorage>(storage: Arc<S>) {
    open(storage.as_ref(), 2).await;
    storage.enrol(mesh(1), claim(1, 2, "bob")).await.unwrap();
    let bob = MemberId(Ulid(5_002));
    storage
        .register_agent(mesh(1), &party_of(bob))
        .await
        .unwrap();
    assert!(
        storage
            .rotate_key(mesh(1), bob, key(9), LATE)
            .await
            .unwrap()
    );
    assert!(
        !storage
            .rotate_key(mesh(1), bob, key(9), LATE)
            .await
            .unwrap()
    );
    // Neither an old key nor somebody else's.
    assert!(
        !storage
            .rotate_key(mesh(1), bob, key(2), LATE)
            .await
            .unwrap()
    );
    assert!(
        !storage
            .rotate_key(mesh(1), bob, key(1), LATE)
            .await
            .unwrap()
    );
    let credentials = storage.credentials(mesh(1), bob).await.unwrap();
    let standing = credentials.standing.unwrap();
    assert_eq!((standing.member, standing.key), (bob, key(9)));
    let roster = storage.roster(mesh(1)).await.unwrap();
    assert_eq!(roster.agents, [party_of(bob)]);
    let old = storage.enrol(mesh(1), claim(1, 2, "bob2")).await.unwrap();
    assert_eq!(old, EnrolVerdict::Revoked);
    let nobody = storage.rotate_key(mesh(1), member("z"), key(8), AT).await;
    assert_eq!(nobody, Err(StorageError::UnknownMember(member("z"))));
    // The owner of the store may put an old key file back.
    let (a, alice) = (member("a"), name("alice"));
    for number in [7, 1, 7] {
        let owner = storage.enrol_owner(mesh(1), a, &alice, key(number), LATE);
        assert!(owner.await.unwrap());
        let standing = storage.credentials(mesh(1), a).await.unwrap().standing;
        assert_eq!(standing.unwrap().key, key(number));
    }
    let same = storage.enrol_owner(mesh(1), a, &alice, key(7), LATE).await;
    assert!(!same.unwrap());
}

pub(super) fn party_of(member: MemberId) -> heddle_core::ids::Party {
    heddle_core::ids::Party {
        member,
        ..party("b/one")
    }
}

async fn t_30_a_revoked_member_loses_its_mailboxes_and_gets_none<S: TestStorage>(storage: Arc<S>) {
    open(storage.as_ref(), 9).await;
    storage.enrol(mesh(1), claim(1, 2, "bob")).await.unwrap();
    let bob = MemberId(Ulid(5_002));
    let mailbox = party_of(bob);
    storage.register_agent(mesh(1), &mailbox).await.unwrap();
    let subscribed = storage.subscribe(mesh(1), &topic("#ops"), &mailbox).await;
    assert!(subscribed.unwrap());
    let generation = storage.begin_session(mesh(1), bob, AT, LeaseMs(100)).await;
    let by = member("a");
    let revoked = storage.revoke(mesh(1), by, bob, LATE).await.unwrap();
    assert_eq!(revoked, RevokeVerdict::Revoked);
    let again = storage.revoke(mesh(1), by, bob, LATE).await.unwrap();
    assert_eq!(again, RevokeVerdict::Already);
    let roster = storage.roster(mesh(1)).await.unwrap();
    assert!(roster.agents.is_empty() && roster.topics[0].subscribers.is_empty());
    assert_eq!(roster.members.len(), 1);
    let renewed = storage.renew_session(mesh(1), bob, generation.unwrap(), LeaseMs(200));
    assert!(!renewed.await.unwrap());
    let mailbox = storage.register_agent(mesh(1), &mailbox).await;
    assert_eq!(mailbox, Err(StorageError::UnknownMember(bob)));
    let standing = storage.credentials(mesh(1), bob).await.unwrap().standing;
    assert_eq!(standing.unwrap().revoked_at, Some(LATE));
    // Not by its key, not under its name, not by a new key.
    let back = storage.enrol(mesh(1), claim(1, 2, "bobby")).await.unwrap();
    assert_eq!(back, EnrolVerdict::Revoked);
    let named = storage.enrol(mesh(1), claim(1, 3, "bob")).await.unwrap();
    assert!(matches!(named, EnrolVerdict::NameTaken { .. }));
    assert!(
        !storage
            .rotate_key(mesh(1), bob, key(8), LATE)
            .await
            .unwrap()
    );
}

async fn only_an_owner_revokes_and_an_owner_stays<S: TestStorage>(storage: Arc<S>) {
    open(storage.as_ref(), 9).await;
    storage.enrol(mesh(1), claim(1, 2, "bob")).await.unwrap();
    storage.enrol(mesh(1), claim(1, 3, "carol")).await.unwrap();
    let (a, bob, carol) = (member("a"), MemberId(Ulid(5_002)), MemberId(Ulid(5_003)));
    for (by, who, verdict) in [
        (bob, carol, RevokeVerdict::NotOwner),
        (bob, a, RevokeVerdict::NotOwner),
        (member("z"), bob, RevokeVerdict::NotOwner),
        (a, a, RevokeVerdict::IsOwner),
        (a, member("z"), RevokeVerdict::UnknownMember),
    ] {
        assert_eq!(storage.revoke(mesh(1), by, who, AT).await.unwrap(), verdict);
    }
    let standings = storage.standings(mesh(1)).await.unwrap();
    assert!(
        standings
            .iter()
            .all(|standing| standing.revoked_at.is_none())
    );
    let roles: BTreeSet<Role> = standings.iter().map(|standing| standing.role).collect();
    assert_eq!(roles, BTreeSet::from([Role::Owner, Role::Member]));
}

async fn br_17_meshes_are_apart<S: TestStorage>(storage: Arc<S>) {
    open(storage.as_ref(), 1).await;
    storage
        .ensure_mesh(mesh(2), &mesh_name("other"))
        .await
        .unwrap();
    let other = storage.enrol(mesh(2), claim(1, 2, "bob")).await.unwrap();
    assert_eq!(other, EnrolVerdict::UnknownInvite);
    let credentials = storage.credentials(mesh(2), member("a")).await.unwrap();
    assert!(!credentials.mesh_has_keys && credentials.standing.is_none());
    assert!(!storage.has_invites(mesh(2)).await.unwrap());
    assert!(storage.has_invites(mesh(1)).await.unwrap());
    let unknown = storage.credentials(mesh(3), member("a")).await;
    assert_eq!(unknown, Err(StorageError::UnknownMesh(mesh(3))));
}

#[tokio::test]
async fn memory_and_sqlite_keep_the_same_rows() {
    keep_the_same_rows(&sqlite().storage, 2_000).await;
}

#[tokio::test]
async fn memory_and_postgres_keep_the_same_rows() {
    keep_the_same_rows(&postgres().await, 500).await;
}

/// Many steps of a seeded walk: the same answers and the same rows on both.
async fn keep_the_same_rows<S: TestStorage>(tables: &S, steps: u32) {
    let oracle = memory();
    open(oracle.as_ref(), 4).await;
    open(tables, 4).await;
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for step in 0..steps {
        let (number, by) = (u128::from(draw(6)) + 1, u8::try_from(draw(24)).unwrap() + 2);
        let who = MemberId(Ulid(u128::from(by) + 5_000));
        let at = WallMs(i64::try_from(draw(10_000)).unwrap());
        let uses_max = u32::try_from(draw(3)).unwrap() + 1;
        let called = format!("m{}", draw(12));
        // Each call on both, and the same answer from both.
        macro_rules! both {
            ($($call:tt)*) => {
                assert_eq!(oracle.$($call)*.await, tables.$($call)*.await, "step {step}")
            };
        }
        match draw(10) {
            0 => both!(create_invite(mesh(1), invite(number, uses_max))),
            1 if uses_max == 1 => both!(revoke(mesh(1), member("a"), who, at)),
            2 => both!(rotate_key(mesh(1), who, key(by + 30), at)),
            3 => both!(register_agent(mesh(1), &party_of(who))),
            8 => both!(change_standing(
                mesh(1),
                member("a"),
                who,
                Change::Block,
                at
            )),
            9 => {
                // Also by one that may be no owner, and about the founder.
                let (by, role) =
                    [(member("a"), Role::Owner), (who, Role::Member)][step as usize % 2];
                let whom = if uses_max == 3 { member("a") } else { who };
                both!(change_standing(mesh(1), by, whom, Change::Grant(role), at));
            }
            _ => {
                let one = Enrolment {
                    at,
                    ..claim(number, by, &called)
                };
                both!(enrol(mesh(1), one.clone()));
            }
        }
    }
    assert_eq!(oracle.dump(), tables.dump().await);
    assert!(oracle.standings(mesh(1)).await.unwrap().len() > 5);
}
