//! Signed hellos, claims on invitations, and members who are shut out.

use heddle_core::clock::{Clock as _, WallMs};
use heddle_core::ids::{BrokerId, InviteId, MemberId};
use heddle_core::limits::NONCE_LIFE;
use heddle_core::membership::{
    ClaimProof, HelloProof, Invite, MemberKey, Nonce, Role, SignedInvite,
};
use heddle_core::names::MemberName;
use heddle_wire::broker::{
    BROKER_PROTOCOL, ClaimRefused, ClientFrame, ReplyResult, Request, ServerFrame,
};
use ulid::Ulid;

use super::client::{Client, Hello};
use super::house::{House, end};
use crate::members::Members as _;
use crate::principal::{Claim, Principal};
use crate::storage::{MemoryStorage, Storage as _};
use crate::test_support::{mesh, mesh_name, principal, send_item};

pub(super) fn key(number: u8) -> MemberKey {
    MemberKey::from_seed([number; 32])
}

pub(super) fn name(text: &str) -> MemberName {
    MemberName::parse(text).unwrap()
}

/// A house whose mesh `a` owns, with key 1.
pub(super) async fn owned() -> House<MemoryStorage> {
    let house = House::new().await;
    let owner = principal("a");
    let enrolled = house.storage.enrol_owner(
        mesh(1),
        owner.member,
        &owner.member_name,
        key(1).public(),
        WallMs(1),
    );
    assert!(enrolled.await.unwrap());
    house
}

/// A connection that has proven nothing, and what it is challenged with.
pub(super) async fn stranger(
    house: &House<MemoryStorage>,
) -> (
    Client,
    tokio::task::JoinHandle<crate::Ending>,
    Nonce,
    BrokerId,
) {
    let (mut client, serving) = house.connect_as(Claim::Stranger).await;
    let ServerFrame::Challenge { nonce, broker, .. } = client.frame().await else {
        panic!("no challenge");
    };
    let nonce = Nonce::parse(&nonce).unwrap();
    (client, serving, nonce, broker.unwrap())
}

pub(super) fn proof(of: &Principal, nonce: Nonce, broker: BrokerId) -> HelloProof {
    HelloProof {
        broker,
        mesh: of.mesh,
        member: of.member,
        nonce,
    }
}

pub(super) fn signed_hello(of: &Principal, proof: &HelloProof, key: &MemberKey) -> Hello {
    Hello {
        signature: Some(proof.sign(key)),
        ..Hello::of(of, &["one"])
    }
}

#[tokio::test]
async fn a_signed_hello_is_welcome_under_the_name_that_was_enrolled() {
    let house = owned().await;
    let (mut client, _serving, nonce, broker) = stranger(&house).await;
    let lying = Principal {
        member_name: name("mallory"),
        ..principal("a")
    };
    let hello = signed_hello(&lying, &proof(&lying, nonce, broker), &key(1));
    client.hello(hello).await;
    let ServerFrame::Welcome { roster, .. } = client.frame().await else {
        panic!("not welcome");
    };
    assert_eq!(roster.members[0].name.as_str(), "a");
}

/// What a hello's signature is over, where it is not what it should be.
type Signed<'p> = (&'p Principal, Option<BrokerId>, Option<Nonce>);

#[tokio::test]
async fn t_20_no_hello_without_the_right_signature_is_heard() {
    let house = owned().await;
    let a = principal("a");
    let elsewhere = BrokerId(Ulid(99));
    let other_mesh = Principal {
        mesh: mesh(2),
        ..a.clone()
    };
    house
        .storage
        .ensure_mesh(mesh(2), &mesh_name("other"))
        .await
        .unwrap();
    // What was signed, by whom, and how it is refused. The hello always names `a` and mesh 1.
    let cases: [(Option<Signed<'_>>, u8, &str); 6] = [
        (None, 1, "signature_required"),
        (Some((&a, None, None)), 2, "signature_invalid"),
        (Some((&a, Some(elsewhere), None)), 1, "signature_invalid"),
        (Some((&other_mesh, None, None)), 1, "signature_invalid"),
        (Some((&principal("b"), None, None)), 1, "signature_invalid"),
        (
            Some((&a, None, Some(Nonce([0; 32])))),
            1,
            "signature_invalid",
        ),
    ];
    for claim in [Claim::Stranger, Claim::Bearer(mesh_name("home"))] {
        for (signed, by, reason) in &cases {
            let (mut client, serving) = house.connect_as(claim.clone()).await;
            let ServerFrame::Challenge { nonce, broker, .. } = client.frame().await else {
                panic!("no challenge");
            };
            let fresh = Nonce::parse(&nonce).unwrap();
            let signature = signed.map(|(of, broker_id, nonce)| {
                let broker = broker_id.or(broker).unwrap();
                proof(of, nonce.unwrap_or(fresh), broker).sign(&key(*by))
            });
            let hello = Hello {
                signature,
                ..Hello::of(&a, &["one"])
            };
            client.hello(hello).await;
            assert_eq!(client.closed().await, (4005, (*reason).to_owned()));
            end(serving).await;
        }
    }
    // A member, a mesh that does not exist: a stranger hears the same.
    for nobody in [principal("z"), Principal { mesh: mesh(7), ..a }] {
        let (mut client, _serving, nonce, broker) = stranger(&house).await;
        let hello = signed_hello(&nobody, &proof(&nobody, nonce, broker), &key(1));
        client.hello(hello).await;
        assert_eq!(
            client.closed().await,
            (4005, "signature_invalid".to_owned())
        );
    }
}

#[tokio::test]
async fn t_20_a_hello_that_was_recorded_opens_nothing_a_second_time() {
    let house = owned().await;
    let a = principal("a");
    let (mut client, serving, nonce, broker) = stranger(&house).await;
    let recorded = || signed_hello(&a, &proof(&a, nonce, broker), &key(1));
    client.hello(recorded()).await;
    assert!(matches!(client.frame().await, ServerFrame::Welcome { .. }));
    let (mut thief, _thieving, _, _) = stranger(&house).await;
    thief.hello(recorded()).await;
    assert_eq!(thief.closed().await, (4005, "signature_invalid".to_owned()));
    // And it did not throw out the one that was there.
    client
        .send(1, vec![send_item("one", "x", "#none", "hello")])
        .await;
    assert_eq!(client.verdicts().await.0, 1);
    drop(client);
    end(serving).await;
}

/// T-20: for one frame of its own connection, and for five seconds.
#[tokio::test(start_paused = true)]
async fn t_20_a_hello_that_comes_later_than_its_nonce_is_good_is_not_heard() {
    for (percent, is_heard) in [(98, true), (102, false)] {
        let house = owned().await;
        let a = principal("a");
        let (mut client, serving, nonce, broker) = stranger(&house).await;
        let hello = signed_hello(&a, &proof(&a, nonce, broker), &key(1));
        tokio::time::sleep(NONCE_LIFE * percent / 100).await;
        if is_heard {
            client.hello(hello).await;
            assert!(matches!(client.frame().await, ServerFrame::Welcome { .. }));
        } else {
            assert_eq!(client.closed().await, (1008, "hello_timeout".to_owned()));
            assert_eq!(end(serving).await, crate::Ending::HelloTimeout);
        }
    }
}

/// An invitation that `a` signs.
pub(super) fn invite(house: &House<MemoryStorage>, number: u128, broker: BrokerId) -> Invite {
    let owner = principal("a");
    Invite {
        broker,
        mesh: mesh(1),
        invite: InviteId(Ulid(number)),
        inviter: owner.member,
        inviter_key: key(1).public(),
        role: Role::Member,
        uses_max: 1,
        expires_at: WallMs(house.clock.wall().0 + 60_000),
        secret: [3; 32],
        mesh_name: mesh_name("home"),
        inviter_name: owner.member_name,
        url: "ws://127.0.0.1:1/".to_owned(),
    }
}

pub(super) async fn claim(
    house: &House<MemoryStorage>,
    link: &SignedInvite,
    by: u8,
    called: &str,
) -> ServerFrame {
    let (mut client, serving, nonce, broker) = stranger(house).await;
    let name = name(called);
    let proof = ClaimProof {
        broker,
        mesh: link.invite.mesh,
        invite: link.invite.invite,
        nonce,
        key: key(by).public(),
        name: &name,
    };
    let frame = ClientFrame::Claim {
        protocol: BROKER_PROTOCOL,
        link: link.link(),
        key: key(by).public(),
        signature: proof.sign(&key(by)),
        name: name.clone(),
    };
    client.say(&frame).await;
    let answer = client.frame().await;
    end(serving).await;
    answer
}

fn refused(frame: ServerFrame) -> String {
    match frame {
        ServerFrame::Refused(ClaimRefused { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn ask(client: &mut Client, body: Request) -> String {
    match client.request(body).await {
        ReplyResult::Ok { changed } => format!("changed={changed}"),
        ReplyResult::Refused(refused) => refused.code,
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn an_invitation_lets_one_in_who_then_says_hello_with_its_own_key() {
    let house = owned().await;
    let (mut owner, _owning) = house.enter("a", &["one"]).await;
    let broker = house.storage.broker_id(BrokerId(Ulid(0))).await.unwrap();
    let link = SignedInvite::sign(invite(&house, 1, broker), &key(1));
    let create = Request::CreateInvite { link: link.link() };
    // Before the owner has told the broker of it, the link is worth nothing.
    let early = refused(claim(&house, &link, 2, "bob").await);
    assert_eq!(early, "invite_invalid");
    assert_eq!(ask(&mut owner, create).await, "changed=true");
    let ServerFrame::Claimed {
        member,
        duplicate: false,
        ..
    } = claim(&house, &link, 2, "bob").await
    else {
        panic!("not enrolled");
    };
    assert!(matches!(
        claim(&house, &link, 2, "bob").await,
        ServerFrame::Claimed {
            duplicate: true,
            ..
        }
    ));
    assert_eq!(
        refused(claim(&house, &link, 3, "eve").await),
        "invite_used_up"
    );
    let bob = Principal {
        mesh: mesh(1),
        member,
        member_name: name("bob"),
    };
    let (mut client, serving, nonce, broker) = stranger(&house).await;
    client
        .hello(signed_hello(&bob, &proof(&bob, nonce, broker), &key(2)))
        .await;
    assert!(matches!(client.frame().await, ServerFrame::Welcome { .. }));
    // A member invites nobody and shuts nobody out.
    let own = Invite {
        inviter: member,
        inviter_key: key(2).public(),
        ..invite(&house, 2, broker)
    };
    let link = SignedInvite::sign(own, &key(2)).link();
    assert_eq!(
        ask(&mut client, Request::CreateInvite { link }).await,
        "not_owner"
    );
    let revoke = Request::RevokeMember {
        member: principal("a").member,
    };
    assert_eq!(ask(&mut client, revoke).await, "not_owner");
    // T-30: shut out, it is cut, and does not come back.
    let revoke = Request::RevokeMember { member };
    assert_eq!(ask(&mut owner, revoke.clone()).await, "changed=true");
    assert_eq!(client.closed().await, (4006, "member_revoked".to_owned()));
    end(serving).await;
    let (mut client, _serving, nonce, broker) = stranger(&house).await;
    client
        .hello(signed_hello(&bob, &proof(&bob, nonce, broker), &key(2)))
        .await;
    assert_eq!(client.closed().await, (4006, "member_revoked".to_owned()));
    assert_eq!(ask(&mut owner, revoke).await, "changed=false");
}

#[tokio::test]
async fn t_72_t_73_an_invitation_counts_at_its_broker_for_its_time_and_as_it_was_signed() {
    let house = owned().await;
    let (mut owner, _owning) = house.enter("a", &["one"]).await;
    let broker = house.storage.broker_id(BrokerId(Ulid(0))).await.unwrap();
    let good = invite(&house, 1, broker);
    let soon = WallMs(house.clock.wall().0 + 1);
    let far = WallMs(house.clock.wall().0 + 91 * 24 * 3_600_000);
    let by_owner = |invite: &Invite| SignedInvite::sign(invite.clone(), &key(1)).link();
    for wrong in [
        Invite {
            broker: BrokerId(Ulid(9)),
            ..good.clone()
        },
        Invite {
            mesh: mesh(2),
            ..good.clone()
        },
        Invite {
            role: Role::Owner,
            ..good.clone()
        },
        Invite {
            expires_at: house.clock.wall(),
            ..good.clone()
        },
        Invite {
            expires_at: far,
            ..good.clone()
        },
        Invite {
            inviter: MemberId(Ulid(5)),
            ..good.clone()
        },
    ] {
        let link = by_owner(&wrong);
        let answer = ask(&mut owner, Request::CreateInvite { link }).await;
        assert_eq!(answer, "invite_invalid", "{wrong:?}");
    }
    let brief = Invite {
        expires_at: soon,
        ..good.clone()
    };
    let create = Request::CreateInvite {
        link: by_owner(&brief),
    };
    assert_eq!(ask(&mut owner, create).await, "changed=true");
    // The same invitation with more time, signed by the owner but never told to the broker.
    let longer = SignedInvite::sign(good, &key(1));
    assert_eq!(
        refused(claim(&house, &longer, 2, "bob").await),
        "invite_invalid"
    );
    house.clock.set_wall(WallMs(soon.0 + 1));
    let late = SignedInvite::sign(brief, &key(1));
    assert_eq!(
        refused(claim(&house, &late, 2, "bob").await),
        "invite_expired"
    );
}

#[tokio::test]
async fn a_claim_must_be_signed_by_the_key_that_it_names() {
    let house = owned().await;
    let (mut owner, _owning) = house.enter("a", &["one"]).await;
    let broker = house.storage.broker_id(BrokerId(Ulid(0))).await.unwrap();
    let link = SignedInvite::sign(invite(&house, 1, broker), &key(1));
    let create = Request::CreateInvite { link: link.link() };
    assert_eq!(ask(&mut owner, create).await, "changed=true");
    let (mut client, _serving, nonce, broker) = stranger(&house).await;
    let name = name("bob");
    let proof = ClaimProof {
        broker,
        mesh: mesh(1),
        invite: link.invite.invite,
        nonce,
        key: key(2).public(),
        name: &name,
    };
    client
        .say(&ClientFrame::Claim {
            protocol: BROKER_PROTOCOL,
            link: link.link(),
            key: key(2).public(),
            signature: proof.sign(&key(3)),
            name: name.clone(),
        })
        .await;
    assert_eq!(refused(client.frame().await), "invite_invalid");
    assert_eq!(house.storage.standings(mesh(1)).await.unwrap().len(), 1);
}
