//! Membership at a team broker, over the binary: the operator's invitations, owners who invite, a mesh that moves there.

#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

use crate::support;

use std::time::Duration;

use serde_json::json;
use support::broker_process::BrokerProcess;
use support::effect_pair::home_of;
use support::servers::Postgres;
use support::team_broker::{Team, link_of};
use support::{Daemon, Home, text_of, wait_until, wait_until_within};

/// Within this much somebody who was shut out is cut, also on a machine that is busy: hints take milliseconds, the look without one
/// five seconds.
const CUT: Duration = Duration::from_secs(10);

fn join(name: &str, link: &str) -> (Home, Daemon) {
    let home = home_of(name);
    let up = home.up();
    let joined = home
        .cli(&["mesh", "join", link, "--as", "team", "--json"])
        .ok();
    assert_eq!(joined.json()["connected"], true, "{joined:?}");
    home.cli(&["--mesh", "team", "agent", "register", "coder"])
        .ok();
    (home, up)
}

pub(crate) fn is_connected(home: &Home, mesh: &str) -> bool {
    let list = home.cli(&["mesh", "list", "--json"]).json();
    let meshes = list["meshes"].as_array().unwrap().clone();
    let mut found = meshes.iter().filter(|one| one["mesh"] == mesh);
    found.any(|one| one["connected"] == true)
}

pub(crate) fn has(home: &Home, mesh: &str, agent: &str, body: &str) -> bool {
    let args = ["inbox", "--json", "--mesh", mesh, "--agent", agent];
    let page = home.cli(&args).json();
    let items = page["items"].as_array().unwrap().clone();
    items.iter().any(|item| item["body"] == body)
}

#[track_caller]
pub(crate) fn send(home: &Home, mesh: &str, to: &str, body: &str) {
    wait_until(&format!("{to} to be known"), || {
        home.cli(&["send", to, body, "--id", body, "--mesh", mesh])
            .code
            == 0
    });
}

#[test]
fn an_operator_makes_a_mesh_and_its_first_owner_who_invites_blocks_and_revokes() {
    for team in Team::both() {
        let made = team.cli("team", &["invite", "--role", "owner"]).ok().json();
        assert_eq!(
            (&made["created"], &made["role"]),
            (&json!(true), &json!("owner"))
        );
        let (alice, _alice_up) = join("alice", link_of(&made));
        let info = alice
            .cli(&["mesh", "info", "--mesh", "team", "--json"])
            .ok()
            .json();
        assert_eq!(info["role"], "owner", "{info}");
        // Once: the link is used up.
        let late = home_of("mallory");
        let _late_up = late.up();
        assert_eq!(late.cli(&["mesh", "join", link_of(&made)]).code, 6);

        let invited = alice
            .cli(&["mesh", "invite", "--mesh", "team", "--json"])
            .ok()
            .json();
        let (bob, bob_up) = join("bob", link_of(&invited));
        send(&alice, "team", "@bob/coder", "down");
        send(&bob, "team", "@alice/coder", "up");
        wait_until("both", || {
            has(&bob, "team", "coder", "down") && has(&alice, "team", "coder", "up")
        });
        // Another of the operator's, for a plain member.
        let more = team.cli("team", &["invite"]).ok().json();
        assert_eq!(
            (&more["created"], &more["role"]),
            (&json!(false), &json!("member"))
        );
        let (carol, _carol_up) = join("carol", link_of(&more));
        assert_eq!(carol.cli(&["mesh", "invite", "--mesh", "team"]).code, 6);

        // The only owner stays one, though it came by an invitation.
        let last = alice.cli(&["mesh", "grant", "alice", "member", "--mesh", "team"]);
        assert_eq!(last.code, 3, "{last:?}");
        alice.cli(&["mesh", "block", "bob", "--mesh", "team"]).ok();
        wait_until("bob to be cut", || !is_connected(&bob, "team"));
        alice
            .cli(&["mesh", "grant", "bob", "member", "--mesh", "team"])
            .ok();
        wait_until("bob to be back", || is_connected(&bob, "team"));
        alice.cli(&["mesh", "revoke", "bob", "--mesh", "team"]).ok();
        wait_until("bob to be out", || !is_connected(&bob, "team"));
        bob_up.wait_log("member_revoked");
        let members = team.cli("team", &["members"]).ok().json();
        let rows = members["members"].as_array().unwrap().clone();
        let bob = rows.iter().find(|row| row["member"] == "bob").unwrap();
        assert!(bob["revoked_at"].is_string());
    }
}

/// Whoever shuts somebody out does so everywhere: the member is connected to another broker than the owner.
#[test]
fn t_30_a_member_is_cut_though_it_is_at_another_broker_and_what_was_on_its_way_stops() {
    let team = Team::on(Some(Postgres::start()));
    let url = team.database.as_ref().unwrap().url();
    let data = team.house.path().parent().unwrap().join("second");
    let second = BrokerProcess::start(&team.house, &data, "127.0.0.1:0", &["--database", &url]);
    let made = team.cli("team", &["invite", "--role", "owner"]).ok().json();
    let (alice, _alice_up) = join("alice", link_of(&made));
    let address = format!("ws://{}/", second.listen());
    let mut invite = vec!["--json", "--mesh", "team", "broker", "invite"];
    invite.extend(["--database", &url, "--url", &address]);
    let invited = team.house.cli(&invite).ok().json();
    let (bob, bob_up) = join("bob", link_of(&invited));
    let list = bob.cli(&["mesh", "list", "--json"]).json();
    assert!(list.to_string().contains(&second.listen()), "{list}");
    send(&alice, "team", "@bob/coder", "first");
    wait_until("the first", || has(&bob, "team", "coder", "first"));

    alice.cli(&["mesh", "block", "bob", "--mesh", "team"]).ok();
    wait_until_within(CUT, "bob to be cut", || !is_connected(&bob, "team"));
    send(&alice, "team", "@bob/coder", "while he is out");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!has(&bob, "team", "coder", "while he is out"));
    let grant = ["mesh", "grant", "bob", "member", "--mesh", "team"];
    alice.cli(&grant).ok();
    wait_until("what waited", || {
        has(&bob, "team", "coder", "while he is out")
    });

    alice.cli(&["mesh", "revoke", "bob", "--mesh", "team"]).ok();
    wait_until_within(CUT, "bob to be out", || !is_connected(&bob, "team"));
    bob_up.wait_log("member_revoked");
    let late = alice.cli(&["send", "@bob/coder", "too late", "--mesh", "team"]);
    assert_eq!(late.code, 4, "{late:?}");
    bob_up.kill();
    let _bob_up = bob.up();
    std::thread::sleep(Duration::from_secs(1));
    assert!(!is_connected(&bob, "team"));
    assert!(!has(&bob, "team", "coder", "too late"));
}

#[test]
fn the_http_door_takes_the_operators_token_and_the_same_key_is_the_same_link() {
    let team = Team::on(None);
    let (admin, daemon) = (team.admin(), team.broker.token());
    let bearer = |token: &str| format!("Bearer {}", token.trim());
    let (admin, daemon) = (bearer(&admin), bearer(&daemon));
    let slug = json!({"slug": "team", "kind": "shared_owner"});
    for (head, code) in [
        (vec![], 401),
        (vec![("Authorization", "Bearer nonsense")], 401),
        // The daemons' token brings a mesh with its owner, and makes none without one.
        (vec![("Authorization", daemon.as_str())], 401),
        (
            vec![("Authorization", admin.as_str()), ("Origin", "http://x")],
            403,
        ),
    ] {
        let (status, answer) = team.post("/api/my/meshes", &head, &slug);
        assert_eq!(status, code, "{head:?} {answer}");
        assert!(answer["next"].is_string(), "{answer}");
    }
    let head = [("Authorization", admin.as_str())];
    let (status, made) = team.post("/api/my/meshes", &head, &slug);
    assert_eq!((status, &made["duplicate"]), (200, &json!(false)), "{made}");
    let (_, again) = team.post("/api/my/meshes", &head, &slug);
    assert_eq!(
        (&again["mesh_id"], &again["duplicate"]),
        (&made["mesh_id"], &json!(true))
    );
    assert_eq!(made["broker_epoch"], 1);

    let path = "/api/my/meshes/team/invites";
    let body = json!({"role": "owner", "expires_in": "1h"});
    assert_eq!(
        team.post(path, &[("Authorization", daemon.as_str())], &body)
            .0,
        401
    );
    let keyed = [
        ("Authorization", admin.as_str()),
        ("Idempotency-Key", "first"),
    ];
    let (status, first) = team.post(path, &keyed, &body);
    assert_eq!(
        (status, &first["duplicate"]),
        (200, &json!(false)),
        "{first}"
    );
    let (_, again) = team.post(path, &keyed, &body);
    assert_eq!(
        (&again["url"], &again["duplicate"]),
        (&first["url"], &json!(true))
    );
    let (status, other) = team.post(path, &keyed, &json!({"role": "member"}));
    assert_eq!(
        (status, &other["code"]),
        (409, &json!("idempotency_key_reused"))
    );
    assert_eq!(team.post("/api/my/other", &head, &body).0, 404);
    let (_alice, _up) = join("alice", link_of(&first));
}

#[test]
fn a_name_that_was_mistyped_makes_no_mesh_and_a_refused_token_is_told_which_one_is_asked_for() {
    let team = Team::on(None);
    let bearer = |token: &str| format!("Bearer {}", token.trim());
    let (admin, daemon) = (bearer(&team.admin()), bearer(&team.broker.token()));
    let head = [("Authorization", admin.as_str())];
    let slug = json!({"slug": "team", "kind": "shared_owner"});
    assert_eq!(team.post("/api/my/meshes", &head, &slug).0, 200);
    // The daemons' token makes none, and is told whose does.
    let (status, refused) = team.post(
        "/api/my/meshes",
        &[("Authorization", daemon.as_str())],
        &slug,
    );
    let next = refused["next"].as_str().unwrap().to_owned();
    assert_eq!(status, 401, "{refused}");
    assert!(
        next.contains("--admin-token-file") && !next.contains("local_token"),
        "{refused}"
    );
    // A name that was mistyped makes no mesh for whoever says that it is there.
    let typo = "/api/my/meshes/taem/invites";
    let (status, refused) = team.post(typo, &head, &json!({"create": false}));
    assert_eq!((status, &refused["code"]), (404, &json!("not_found")));
    let named = team.cli("taem", &["members"]);
    assert_eq!(named.code, 4, "{named:?}");
    let path = "/api/my/meshes/team/invites";
    assert_eq!(team.post(path, &head, &json!({"create": false})).0, 200);
}

#[test]
fn an_invitation_that_cannot_be_one_is_refused() {
    let team = Team::on(None);
    let admin = format!("Bearer {}", team.admin().trim());
    let head = [("Authorization", admin.as_str())];
    let path = "/api/my/meshes/team/invites";
    for (bad, code) in [
        (json!({"role": "king"}), 400),
        (json!({"uses": 0}), 400),
        (json!({"expires_in": "400d"}), 400),
        (json!({"colour": 1}), 400),
        (json!({"url": "wss://u:p@broker.example/"}), 400),
        (json!({"url": "wss://broker.example/?q"}), 400),
        (json!({"url": "wss://broker.example/#f"}), 400),
        (json!({"url": "wss:///x"}), 400),
    ] {
        assert_eq!(team.post(path, &head, &bad).0, code, "{bad}");
    }
}

/// A home with a row of each kind, and a message.
fn alice_with_rows() -> (Home, Daemon) {
    let alice = home_of("alice");
    let up = alice.up();
    for agent in ["planner", "coder"] {
        alice.cli(&["agent", "register", agent]).ok();
    }
    alice
        .cli(&["topic", "subscribe", "ops", "--agent", "planner"])
        .ok();
    alice.cli(&["state", "set", "k", "1"]).ok();
    alice.cli(&["remember", "who", "ada"]).ok();
    alice.cli(&["task", "add", "dig"]).ok();
    send(&alice, "home", "@planner", "before");
    wait_until("the message", || has(&alice, "home", "planner", "before"));
    (alice, up)
}

/// Bob joins the mesh that has moved; alice is killed in between, and shuts bob out at the end.
fn both_go_on(alice: &Home, up: Daemon) {
    let invited = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    let (bob, _bob_up) = join("bob", link_of(&invited));
    let dump =
        |home: &Home, mesh: &str| home.cli(&["advanced", "dump", "--mesh", mesh]).ok().stdout;
    wait_until("the same rows", || {
        dump(alice, "home") == dump(&bob, "team")
    });
    assert!(dump(&bob, "team").contains("ada"));
    // It is there after a kill, and both go on.
    up.kill();
    let up = alice.up();
    wait_until("alice to be back", || is_connected(alice, "home"));
    send(&bob, "team", "@alice/planner", "hello");
    send(alice, "home", "@bob/coder", "welcome");
    wait_until("both", || {
        has(alice, "home", "planner", "hello") && has(&bob, "team", "coder", "welcome")
    });
    bob.cli(&["--mesh", "team", "state", "set", "k", "2"]).ok();
    wait_until("the same rows again", || {
        dump(alice, "home") == dump(&bob, "team")
    });
    alice.cli(&["mesh", "revoke", "bob"]).ok();
    wait_until("bob to be out", || !is_connected(&bob, "team"));
    up.stop();
}

#[test]
fn lf_34_a_personal_mesh_moves_to_the_team_with_every_row_and_its_owner_invites_there() {
    for team in Team::both() {
        let (alice, up) = alice_with_rows();
        let url = team.url();
        let publish = |more: &[&str]| {
            let args = [
                &["mesh", "publish", "home", "--json", "--to", url.as_str()],
                more,
            ]
            .concat();
            alice.cli(&args)
        };
        // Without the broker's leave nothing happens.
        let refused = publish(&[]);
        assert_eq!(refused.code, 6, "{refused:?}");
        assert!(refused.stderr.contains("--token-file"), "{refused:?}");
        assert!(!text_of(&alice.path().join("config.toml")).contains("[[mesh]]"));
        wait_until("the link of before", || is_connected(&alice, "home"));
        // Work that waits is not left behind.
        alice.cli(&["queue", "push", "jobs", "one"]).ok();
        let token = team.broker.data.join("broker_token");
        let token = ["--token-file", token.to_str().unwrap()];
        wait_until("the work", || {
            let list = alice.cli(&["queue", "list", "--json"]).json();
            list["queues"][0]["ready"] == 1
        });
        let waits = publish(&token);
        assert_eq!(waits.code, 2, "{waits:?}");
        assert!(waits.stderr.contains("queue jobs"), "{waits:?}");
        let taken = alice.cli(&["queue", "take", "jobs", "--json"]).ok().json();
        let item = &taken["items"][0];
        let (id, fence) = (item["id"].as_str().unwrap(), item["fence"].to_string());
        alice
            .cli(&["queue", "ack", "jobs", id, "--fence", &fence])
            .ok();

        let done = publish(&token).ok().json();
        assert_eq!(
            (&done["done"], &done["broker"]),
            (&json!(true), &json!(url)),
            "{done}"
        );
        let again = publish(&token).ok().json();
        assert_eq!(again["fresh"], false);
        assert_eq!(
            alice.cli(&["mesh", "info", "--json"]).ok().json()["role"],
            "owner"
        );
        send(&alice, "home", "#ops", "after");
        wait_until("a post after the move", || {
            has(&alice, "home", "planner", "after")
        });

        both_go_on(&alice, up);
        let _up = alice.up();
        // A further mesh is hosted here still, and moves as well.
        alice.cli(&["mesh", "create", "work"]).ok();
        alice
            .cli(&["--mesh", "work", "state", "set", "w", "1"])
            .ok();
        let args = ["mesh", "publish", "work", "--json", "--to", url.as_str()];
        let moved = alice.cli(&[&args[..], &token[..]].concat()).ok().json();
        assert_eq!(moved["broker"], json!(url), "{moved}");
    }
}

/// As a kill between the two leaves it: the config says that the mesh has moved, the store does not know yet.
#[test]
fn lf_33_a_move_that_was_cut_between_config_and_store_goes_on_at_the_next_start() {
    let team = Team::on(None);
    let (alice, up) = alice_with_rows();
    up.stop();
    let files = ["data.db", "data.db-wal", "data.db-shm"];
    let kept: Vec<Option<Vec<u8>>> = files
        .iter()
        .map(|name| std::fs::read(alice.path().join(name)).ok())
        .collect();
    let up = alice.up();
    let (url, token) = (team.url(), team.broker.data.join("broker_token"));
    let args = ["mesh", "publish", "home", "--to", &url, "--token-file"];
    alice
        .cli(&[&args[..], &[token.to_str().unwrap()]].concat())
        .ok();
    up.stop();
    for (name, bytes) in files.iter().zip(kept) {
        let path = alice.path().join(name);
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
            None => drop(std::fs::remove_file(path)),
        }
    }
    let up = alice.up();
    wait_until("alice to be there", || is_connected(&alice, "home"));
    let tables = rusqlite::Connection::open(alice.path().join("data.db")).unwrap();
    let kind = "SELECT kind FROM mesh WHERE name = 'home'";
    let kind: String = tables.query_row(kind, [], |row| row.get(0)).unwrap();
    assert_eq!(kind, "shared_owner", "nobody had to ask for it again");
    drop(tables);
    alice.cli(&["state", "set", "later", "2"]).ok();
    both_go_on(&alice, up);
}

#[test]
fn a_mesh_that_others_have_joined_and_one_hosted_elsewhere_do_not_move() {
    let team = Team::on(None);
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (_alice_up, _bob_up) = (alice.up(), bob.up());
    let invited = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    bob.cli(&["mesh", "join", link_of(&invited), "--as", "theirs"])
        .ok();
    let (url, token) = (team.url(), team.broker.data.join("broker_token"));
    let publish = |home: &Home, mesh: &str, url: &str| {
        let token = token.to_str().unwrap();
        home.cli(&["mesh", "publish", mesh, "--to", url, "--token-file", token])
    };
    let shared = publish(&alice, "home", &url);
    assert_eq!(shared.code, 2, "{shared:?}");
    assert!(shared.stderr.contains("heddle mesh create"), "{shared:?}");
    let guest = publish(&bob, "theirs", &url);
    assert_eq!(guest.code, 2, "{guest:?}");
    for bad in [
        "http://127.0.0.1:1/",
        "ws://192.0.2.1:1/",
        "ws://u:p@127.0.0.1:1/",
        "x",
    ] {
        let ran = publish(&bob, "home", bad);
        assert_eq!(ran.code, 2, "{bad}: {ran:?}");
        assert!(ran.stderr.contains("wss://"), "{ran:?}");
    }
    let gone = publish(&bob, "home", "ws://127.0.0.1:1/");
    assert_eq!(gone.code, 5, "{gone:?}");
    // Somebody else's mesh is not taken over with the daemons' token.
    bob.cli(&["mesh", "create", "mine"]).ok();
    publish(&bob, "mine", &url).ok();
    let info = bob
        .cli(&["--mesh", "mine", "mesh", "info", "--json"])
        .ok()
        .json();
    let bearer = format!("Bearer {}", team.broker.token().trim());
    let theft = json!({"slug": "mine", "owner": {
        "mesh_id": info["mesh_id"], "member_id": info["member_id"], "member": "bob", "key": "ab".repeat(32),
    }});
    let (status, answer) = team.post("/api/my/meshes", &[("Authorization", &bearer)], &theft);
    assert!(status == 409 || status == 400, "{status} {answer}");
}

/// `--mesh` was taken and not obeyed by three of the four.
#[test]
fn a_job_by_hand_is_about_the_mesh_that_is_named_and_says_if_there_is_none() {
    for team in Team::both() {
        for mesh in ["red", "blue"] {
            team.cli(mesh, &["invite", "--role", "owner"]).ok();
        }
        let link = team.cli("red", &["invite"]).ok().json();
        let _joined = join("alice", link_of(&link));
        for mesh in ["red", "blue"] {
            let swept = team.cli(mesh, &["sweep"]).ok().json();
            let names = swept["meshes"].as_array().unwrap().iter();
            assert_eq!(names.map(|one| &one["mesh"]).collect::<Vec<_>>(), [mesh]);
            let epochs = team.cli(mesh, &["epoch"]).ok().json();
            assert_eq!(epochs["meshes"].as_array().unwrap().len(), 1, "{epochs}");
            let members = team.cli(mesh, &["members"]).ok().json();
            let count = members["members"].as_array().unwrap().len();
            assert_eq!(count, usize::from(mesh == "red"), "{members}");
            assert_eq!(team.cli(mesh, &["orphan-check"]).ok().json()["checked"], 0);
        }
        for verb in ["sweep", "orphan-check", "members", "epoch"] {
            let none = team.cli("nope", &[verb]);
            assert_eq!(none.code, 4, "{verb}: {none:?}");
            let detail = none.json()["detail"].clone();
            assert_eq!(detail, "no mesh here is called \"nope\"", "{verb}");
        }
    }
}
