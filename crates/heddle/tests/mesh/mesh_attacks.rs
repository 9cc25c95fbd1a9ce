//! The embedded broker's port from the outside: forged, replayed and stolen words, races, secrets.

use crate::support;

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Barrier};

use heddle_core::ids::{BrokerId, MemberId, MeshId};
use heddle_core::membership::{
    ClaimProof, HelloProof, LINK_PREFIX, MemberKey, Nonce, SignedInvite,
};
use heddle_core::names::MemberName;
use serde_json::{Value, json};
use support::broker_process::RawLink;
use support::{Home, http, text_of, wait_until};

struct Host {
    home: Home,
    daemon: support::Daemon,
    listen: String,
    mesh: MeshId,
    member: MemberId,
}

fn host() -> Host {
    let home = Home::new();
    home.config("[daemon]\nmember = \"alice\"\n");
    let daemon = home.up();
    let port = text_of(&home.path().join("broker.port"));
    let info = home.cli(&["mesh", "info", "--json"]).ok().json();
    let id = |name: &str| info[name].as_str().unwrap().to_owned();
    Host {
        listen: format!("127.0.0.1:{port}"),
        mesh: id("mesh_id").parse().unwrap(),
        member: id("member_id").parse().unwrap(),
        home,
        daemon,
    }
}

impl Host {
    fn invite(&self, more: &[&str]) -> String {
        let args = [&["mesh", "invite", "--json"], more].concat();
        let answer = self.home.cli(&args).ok().json();
        answer["link"].as_str().unwrap().to_owned()
    }

    /// A raw connection, and what it is challenged with.
    fn open(&self) -> (RawLink, Nonce, BrokerId) {
        let mut link = RawLink::open(&self.listen, None).unwrap();
        let challenge = link.next();
        let nonce = Nonce::parse(challenge["nonce"].as_str().unwrap()).unwrap();
        let broker = challenge["broker"].as_str().unwrap().parse().unwrap();
        (link, nonce, broker)
    }

    fn members(&self) -> usize {
        let info = self.home.cli(&["mesh", "info", "--json"]).ok().json();
        info["members"].as_array().unwrap().len()
    }
}

fn hello(mesh: MeshId, member: MemberId, signature: Option<String>) -> Value {
    let mut hello = json!({
        "type": "hello", "protocol": 1, "mesh": mesh.to_string(), "member": member.to_string(),
        "member_name": "mallory", "agents": ["one"], "seen": "0.0",
    });
    if let Some(signature) = signature {
        hello["signature"] = signature.into();
    }
    hello
}

fn claim_frame(link: &str, name: &str, key: &MemberKey, nonce: Nonce, broker: BrokerId) -> Value {
    let invite = SignedInvite::parse(link).unwrap().invite;
    let member_name = MemberName::parse(name).unwrap();
    let proof = ClaimProof {
        broker,
        mesh: invite.mesh,
        invite: invite.invite,
        nonce,
        key: key.public(),
        name: &member_name,
    };
    json!({
        "type": "claim", "protocol": 1, "link": link, "name": name,
        "key": key.public().to_string(), "signature": String::from(proof.sign(key)),
    })
}

/// Enrols a key by a raw claim; its member id.
fn enrol(host: &Host, name: &str, key: &MemberKey) -> MemberId {
    let link = host.invite(&[]);
    let (mut raw, nonce, broker) = host.open();
    raw.say(&claim_frame(&link, name, key, nonce, broker));
    let claimed = raw.next();
    assert_eq!(claimed["type"], "claimed", "{claimed}");
    claimed["member"].as_str().unwrap().parse().unwrap()
}

/// How a hello is signed, if at all.
type Sign<'a> = &'a dyn Fn(Nonce, BrokerId) -> Option<String>;

#[test]
fn t_20_unsigned_forged_and_replayed_hellos_get_nowhere() {
    let host = host();
    let key = MemberKey::from_seed([5; 32]);
    let bob = enrol(&host, "bob", &key);
    let proof = |member, nonce, broker| HelloProof {
        broker,
        mesh: host.mesh,
        member,
        nonce,
    };
    // Without a signature; for the owner by a member's key; garbage.
    let cases: [(MemberId, Sign<'_>, &str); 5] = [
        (bob, &|_, _| None, "signature_required"),
        (host.member, &|_, _| None, "signature_required"),
        (
            host.member,
            &|nonce, broker| Some(proof(host.member, nonce, broker).sign(&key).into()),
            "signature_invalid",
        ),
        (
            host.member,
            &|nonce, broker| Some(proof(bob, nonce, broker).sign(&key).into()),
            "signature_invalid",
        ),
        (bob, &|_, _| Some("00".repeat(64)), "signature_invalid"),
    ];
    for (member, sign, reason) in cases {
        let (mut raw, nonce, broker) = host.open();
        raw.say(&hello(host.mesh, member, sign(nonce, broker)));
        assert_eq!(raw.next(), json!({"closed": 4005, "reason": reason}));
    }
    // The right one is let in, under the name that it was enrolled by.
    let (mut raw, nonce, broker) = host.open();
    let signature: String = proof(bob, nonce, broker).sign(&key).into();
    let recorded = hello(host.mesh, bob, Some(signature));
    raw.say(&recorded);
    let welcome = raw.next();
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    assert!(welcome["roster"].to_string().contains("\"bob\""));
    assert!(!welcome.to_string().contains("mallory"));
    // What was recorded opens nothing, and throws nobody out.
    let (mut thief, _, _) = host.open();
    thief.say(&recorded);
    let closed = json!({"closed": 4005, "reason": "signature_invalid"});
    assert_eq!(thief.next(), closed);
    raw.say(&json!({"type": "request", "request": 1, "body": {"what": "members"}}));
    assert_eq!(raw.next_of("reply")["result"], "members");
    // Words before the hello, and a hello that says it twice.
    for early in [
        json!({"type": "request", "request": 1, "body": {"what": "members"}}),
        json!({"type": "send", "batch": 1, "items": []}),
        json!({"type": "hello"}),
    ] {
        let (mut raw, _, _) = host.open();
        raw.say(&early);
        assert_eq!(raw.next()["closed"], 1008, "{early}");
    }
    raw.say(&recorded);
    assert_eq!(raw.next_of("none")["closed"], 1008);
    // T-24: no page of a browser.
    let page = Some(("origin", "http://evil.test".to_owned()));
    assert_eq!(RawLink::open(&host.listen, page).err(), Some(403));
    assert_eq!(host.members(), 2);
    let metrics = host.daemon.http.get("/v1/metrics").body;
    assert!(metrics.contains("heddle_broker_hellos_denied_total"));
}

/// A member that is let in and writes what no Heddle would: a stamp at the end of all numbers, and one that is only far ahead.
#[test]
fn lf_06_a_member_whose_ops_carry_2_to_the_63_minus_1_moves_no_clock_and_holds_nothing_up() {
    let host = host();
    let key = MemberKey::from_seed([6; 32]);
    let mallory = enrol(&host, "mallory", &key);
    let (mut raw, nonce, broker) = host.open();
    let proof = HelloProof {
        broker,
        mesh: host.mesh,
        member: mallory,
        nonce,
    };
    raw.say(&hello(host.mesh, mallory, Some(proof.sign(&key).into())));
    assert_eq!(raw.next()["type"], "welcome");
    let set = json!({"key": "mine", "value": 1});
    host.daemon.http.post("/v1/state/set", &set).expect(200);
    let before = clock(&host)["lamport"].as_u64().unwrap();
    let stamps = [i64::MAX as u64, (1 << 53) - 1, before + 1];
    for (number, lamport) in stamps.into_iter().enumerate() {
        raw.say(&op_frame(mallory, number, lamport));
        let verdicts = raw.next_of("verdicts");
        assert_eq!(verdicts["items"][0]["verdict"], "created", "{verdicts}");
    }
    wait_until("the one that can be right", || {
        let got = host.daemon.http.get("/v1/state/get?key=theirs");
        got.status == 200 && got.json()["value"] == 2
    });
    let after = clock(&host);
    assert_eq!(after["sync"]["in_quarantined"], 2, "{after}");
    assert_eq!(after["lamport"], before + 2, "{after}");
    let next = json!({"key": "mine", "value": 2});
    let set = host.daemon.http.post("/v1/state/set", &next).expect(200);
    assert_eq!(set["stamp"]["lamport"], before + 3, "{set}");
}

fn clock(host: &Host) -> Value {
    host.daemon.http.get("/v1/mesh/clock").expect(200)
}

/// The send of an op `state.set theirs = NUMBER` under that stamp, as it crosses the wire.
fn op_frame(member: MemberId, number: usize, lamport: u64) -> Value {
    let id = format!("0000000{number}-0000-4000-8000-000000000000");
    let op = json!({
        "v": 1, "op": "state.set", "lamport": lamport, "peer": format!("{member}/one"), "op_id": id,
        "incarnation": 1, "at": 1, "key": "theirs", "value": number.to_string(),
    });
    let envelope = json!({
        "v": 1, "kind": "op", "destination": {"kind": "log", "ref": "ops"}, "priority": "next",
        "body": op.to_string(),
    });
    let item = json!({"agent": "one", "client_message_id": id, "envelope": envelope});
    json!({"type": "send", "batch": number, "items": [item]})
}

#[test]
fn t_30_a_raw_connection_of_a_revoked_member_is_closed_within_a_second() {
    let host = host();
    let key = MemberKey::from_seed([6; 32]);
    let bob = enrol(&host, "bob", &key);
    let enter = || {
        let (mut raw, nonce, broker) = host.open();
        let proof = HelloProof {
            broker,
            mesh: host.mesh,
            member: bob,
            nonce,
        };
        raw.say(&hello(host.mesh, bob, Some(proof.sign(&key).into())));
        let first = raw.next();
        (raw, first)
    };
    let (mut raw, welcome) = enter();
    assert_eq!(welcome["type"], "welcome");
    // A second is what a person would notice; the read gives up after it.
    let patience = Some(std::time::Duration::from_secs(1));
    host.home.cli(&["mesh", "revoke", "bob"]).ok();
    raw.0.get_mut().set_read_timeout(patience).unwrap();
    let closed = json!({"closed": 4006, "reason": "member_revoked"});
    assert_eq!(raw.next_of("none"), closed);
    assert_eq!(enter().1, closed);
    // Neither a fresh invitation nor the old link helps this key.
    let link = host.invite(&[]);
    let (mut raw, nonce, broker) = host.open();
    raw.say(&claim_frame(&link, "bobby", &key, nonce, broker));
    assert_eq!(raw.next()["code"], "member_revoked");
}

#[test]
fn t_69_sixteen_race_for_one_use_and_exactly_one_wins() {
    let host = host();
    let link = host.invite(&[]);
    let start = Arc::new(Barrier::new(16));
    let racers: Vec<_> = (0..16_u8)
        .map(|number| {
            let (mut raw, nonce, broker) = host.open();
            let key = MemberKey::from_seed([number + 10; 32]);
            let frame = claim_frame(&link, &format!("m{number}"), &key, nonce, broker);
            let start = Arc::clone(&start);
            std::thread::spawn(move || {
                start.wait();
                raw.say(&frame);
                raw.next()
            })
        })
        .collect();
    let answers: Vec<Value> = racers.into_iter().map(|one| one.join().unwrap()).collect();
    let won = answers.iter().filter(|a| a["type"] == "claimed").count();
    let lost = answers.iter().filter(|a| a["code"] == "invite_used_up");
    assert_eq!((won, lost.count()), (1, 15), "{answers:?}");
    assert_eq!(host.members(), 2);
}

#[test]
fn t_70_t_73_looking_at_a_link_takes_no_use_and_a_changed_one_is_none() {
    let host = host();
    let link = host.invite(&[]);
    let path = link.strip_prefix(LINK_PREFIX).unwrap();
    let port: u16 = host.listen.rsplit(':').next().unwrap().parse().unwrap();
    for target in ["/".to_owned(), format!("/join/{path}"), format!("/{path}")] {
        for _ in 0..5 {
            let looked = http::tcp(port, "GET", &target, &[], "");
            assert!(looked.is_none_or(|answer| answer.status >= 400));
        }
    }
    let key = MemberKey::from_seed([7; 32]);
    // The secret changed, and signed anew by somebody else's key: well-formed, and worth nothing.
    let mut forged = SignedInvite::parse(&link).unwrap().invite;
    forged.inviter_key = key.public();
    forged.uses_max = 1000;
    let forged = SignedInvite::sign(forged, &key).link();
    let (mut raw, nonce, broker) = host.open();
    raw.say(&claim_frame(&forged, "eve", &key, nonce, broker));
    assert_eq!(raw.next()["code"], "invite_invalid");
    // A claim that was recorded is for its nonce.
    let (_, nonce, broker) = host.open();
    let recorded = claim_frame(&link, "eve", &key, nonce, broker);
    let (mut raw, _, _) = host.open();
    raw.say(&recorded);
    assert_eq!(raw.next()["code"], "invite_invalid");
    assert_eq!(host.members(), 1);
    let (mut raw, nonce, broker) = host.open();
    raw.say(&claim_frame(&link, "eve", &key, nonce, broker));
    assert_eq!(raw.next()["type"], "claimed");
}

#[test]
fn xc_01_links_and_keys_are_in_no_log_status_metric_or_argument() {
    let host = host();
    let bob = Home::new();
    bob.config("[daemon]\nmember = \"bob\"\n[log]\nlevel = \"trace\"\n");
    let ready = bob
        .command(&["up", "--detach", "--json"])
        .env("HEDDLE_LOG", "trace")
        .output()
        .unwrap();
    let ready: Value = serde_json::from_slice(&ready.stdout).unwrap();
    let link = host.invite(&[]);
    let mut child = bob
        .command(&["mesh", "join", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), link.as_bytes()).unwrap();
    let joined = child.wait_with_output().unwrap();
    assert!(joined.status.success());
    // And once more, with words that go wrong.
    let mut damaged = link.clone();
    damaged.pop();
    let refused = bob.cli(&["mesh", "join", &damaged]);
    assert_eq!(refused.code, 6, "{refused:?}");
    let mut seen = String::from_utf8(joined.stdout).unwrap();
    seen.push_str(&format!("{refused:?}"));
    let pid = ready["pid"].as_u64().unwrap();
    seen.push_str(&text_of(Path::new(&format!("/proc/{pid}/cmdline"))));
    for home in [&bob, &host.home] {
        for args in [
            &["status", "--json"][..],
            &["mesh", "info", "--json"],
            &["logs", "--json"],
        ] {
            seen.push_str(&home.cli(args).stdout);
        }
        seen.push_str(&support::Http::new(&home.path()).get("/v1/metrics").body);
    }
    wait_until("a word about the mesh", || {
        bob.cli(&["logs"]).stdout.contains("joined a mesh")
    });
    bob.cli(&["down"]).ok();
    for home in [&bob, &host.home] {
        for entry in std::fs::read_dir(home.path().join("logs")).unwrap() {
            seen.push_str(&text_of(&entry.unwrap().path()));
        }
    }
    seen.push_str(&host.daemon.log());
    assert!(
        seen.contains("joined a mesh"),
        "the canary could have been seen"
    );
    let mut secrets = vec![link[LINK_PREFIX.len()..][..60].to_owned()];
    secrets.push(link[link.len() - 60..].to_owned());
    for home in [&bob, &host.home] {
        for entry in std::fs::read_dir(home.path().join("keys")).unwrap() {
            secrets.push(text_of(&entry.unwrap().path()));
        }
    }
    assert!(
        secrets.len() >= 5,
        "each home has a key for each of its meshes"
    );
    for secret in secrets {
        assert!(!seen.contains(&secret), "a secret is in\n{seen}");
    }
}
