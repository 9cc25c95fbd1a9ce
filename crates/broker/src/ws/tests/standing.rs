//! Roles and blocks over a connection: who may, what is cut, what is refused, what is lifted.

use heddle_core::ids::{BrokerId, MemberId};
use heddle_core::membership::{Change, SignedInvite};
use heddle_wire::broker::{ReplyResult, Request, ServerFrame};
use ulid::Ulid;

use super::client::Client;
use super::house::{House, end};
use super::membership::{ask, claim, invite, key, name, owned, proof, signed_hello, stranger};
use crate::Ending;
use crate::members::Members as _;
use crate::principal::Principal;
use crate::storage::MemoryStorage;
use crate::test_support::{mesh, principal};

/// Joins by an invitation of `a`.
async fn joined(
    house: &House<MemoryStorage>,
    owner: &mut Client,
    number: u8,
    called: &str,
) -> Principal {
    let broker = house.storage.broker_id(BrokerId(Ulid(0))).await.unwrap();
    let link = SignedInvite::sign(invite(house, u128::from(number), broker), &key(1));
    let create = Request::CreateInvite { link: link.link() };
    assert_eq!(ask(owner, create).await, "changed=true");
    let ServerFrame::Claimed { member, .. } = claim(house, &link, number, called).await else {
        panic!("not enrolled");
    };
    Principal {
        mesh: mesh(1),
        member,
        member_name: name(called),
    }
}

type Serving = tokio::task::JoinHandle<Ending>;

async fn hello(house: &House<MemoryStorage>, who: &Principal, number: u8) -> (Client, Serving) {
    let (mut client, serving, nonce, broker) = stranger(house).await;
    let hello = signed_hello(who, &proof(who, nonce, broker), &key(number));
    client.hello(hello).await;
    (client, serving)
}

async fn enter(house: &House<MemoryStorage>, who: &Principal, number: u8) -> (Client, Serving) {
    let (mut client, serving) = hello(house, who, number).await;
    assert!(matches!(client.frame().await, ServerFrame::Welcome { .. }));
    (client, serving)
}

fn grant(member: MemberId, role: &str) -> Request {
    Request::GrantMember {
        member,
        role: role.to_owned(),
    }
}

#[tokio::test]
async fn t_30_a_blocked_member_is_cut_and_turned_away_until_it_is_granted_a_role() {
    let house = owned().await;
    let (mut owner, _owning) = house.enter("a", &["one"]).await;
    let bob = joined(&house, &mut owner, 2, "bob").await;
    let (mut client, serving) = enter(&house, &bob, 2).await;
    let block = Request::BlockMember { member: bob.member };
    assert_eq!(ask(&mut client, block.clone()).await, "not_owner");
    assert_eq!(ask(&mut owner, block.clone()).await, "changed=true");
    assert_eq!(client.closed().await, (4007, "member_blocked".to_owned()));
    end(serving).await;
    let (mut client, serving) = hello(&house, &bob, 2).await;
    assert_eq!(client.closed().await, (4007, "member_blocked".to_owned()));
    end(serving).await;
    assert_eq!(ask(&mut owner, block).await, "changed=false");
    // With another's key nobody learns that it is blocked.
    let (mut thief, serving) = hello(&house, &bob, 9).await;
    assert_eq!(thief.closed().await, (4005, "signature_invalid".to_owned()));
    end(serving).await;
    let ReplyResult::Members { members, .. } = owner.request(Request::Members).await else {
        panic!("no members");
    };
    let shown = members.iter().find(|one| one.member == bob.member).unwrap();
    assert!(shown.blocked_at.is_some() && shown.revoked_at.is_none() && !shown.online);
    assert_eq!(
        ask(&mut owner, grant(bob.member, "member")).await,
        "changed=true"
    );
    let (_client, _serving) = enter(&house, &bob, 2).await;
}

#[tokio::test]
async fn an_owner_by_grant_invites_and_a_role_that_is_none_is_refused() {
    let house = owned().await;
    let (mut owner, _owning) = house.enter("a", &["one"]).await;
    let bob = joined(&house, &mut owner, 2, "bob").await;
    let (mut client, _serving) = enter(&house, &bob, 2).await;
    let broker = house.storage.broker_id(BrokerId(Ulid(0))).await.unwrap();
    let own = heddle_core::membership::Invite {
        inviter: bob.member,
        inviter_key: key(2).public(),
        ..invite(&house, 77, broker)
    };
    let link = SignedInvite::sign(own, &key(2));
    let create = Request::CreateInvite { link: link.link() };
    assert_eq!(ask(&mut client, create.clone()).await, "not_owner");
    for (role, answer) in [
        ("king", "invalid_request"),
        ("member", "changed=false"),
        ("owner", "changed=true"),
    ] {
        assert_eq!(ask(&mut owner, grant(bob.member, role)).await, answer);
    }
    assert_eq!(ask(&mut client, create).await, "changed=true");
    assert!(matches!(
        claim(&house, &link, 3, "carol").await,
        ServerFrame::Claimed { .. }
    ));
    let a = principal("a").member;
    assert_eq!(ask(&mut client, grant(a, "member")).await, "last_owner");
    let revoke = Request::RevokeMember { member: a };
    assert_eq!(ask(&mut client, revoke).await, "not_owner");
}

#[tokio::test(start_paused = true)]
async fn t_30_a_connection_whose_cut_was_never_told_ends_with_its_next_pulse() {
    let house = owned().await;
    let (mut owner, _owning) = house.enter("a", &["one"]).await;
    let bob = joined(&house, &mut owner, 2, "bob").await;
    let (mut client, _serving) = enter(&house, &bob, 2).await;
    // As another broker on the same tables does it, whose hint is lost.
    let at = heddle_core::clock::WallMs(5);
    let by = principal("a").member;
    let storage = &house.storage;
    let blocked = storage.change_standing(mesh(1), by, bob.member, Change::Block, at);
    blocked.await.unwrap();
    assert_eq!(client.closed().await, (4007, "member_blocked".to_owned()));
}
