//! The upload of a snapshot at a team broker, on a file and on PostgreSQL: over HTTP by its operator, and by a home that
//! publishes a large mesh while both are killed (local-first §9.3, LF-33, LF-34).

use crate::support;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::team_broker::Team;
use support::{Daemon, Home, text_of, wait_until_within};

const SOON: Duration = Duration::from_secs(120);
const ID: &str = "6ba7b810-9dad-51d1-80b4-00c04fd430c8";

fn item(at: u64) -> Value {
    let envelope = json!({"v": 1, "kind": "op", "destination": {"kind": "log", "ref": "ops"},
        "priority": "next", "body": format!("{{\"n\":{at}}}")});
    let id = format!("op-{at}");
    json!({"at": at, "agent": "coder", "client_message_id": id,
        "envelope_base64": STANDARD.encode(envelope.to_string())})
}

/// Alice owns the mesh `team` there, with a mailbox; her member id.
fn owner(team: &Team) -> (Home, Daemon, String) {
    let invited = team.cli("team", &["invite", "--role", "owner"]).ok().json();
    let alice = Home::new();
    alice.config("[daemon]\nmember = \"alice\"\n");
    let up = alice.up();
    let link = invited["link"].as_str().unwrap();
    let joined = ["mesh", "join", link, "--as", "team", "--json"];
    alice.cli(&joined).ok();
    let register = ["--mesh", "team", "agent", "register", "coder"];
    alice.cli(&register).ok();
    let members = team.cli("team", &["members"]).ok().json();
    let member = members["members"][0]["member_id"]
        .as_str()
        .unwrap()
        .to_owned();
    (alice, up, member)
}

#[test]
fn lf_34_an_operator_uploads_in_parts_that_survive_kills_and_are_shown_once() {
    for mut team in Team::both() {
        let (_alice, _up, member) = owner(&team);
        let admin = format!("Bearer {}", team.admin());
        let head = [("Authorization", admin.as_str())];
        let at = |what: &str| format!("/api/my/meshes/team/snapshot/{what}");
        let chunk = at(&format!("{ID}/chunk"));
        let commit = at(&format!("{ID}/commit"));
        let begin = json!({"member": member, "snapshot_id": ID});
        // Only the operator, only for an owner, only in order.
        let daemon = format!("Bearer {}", team.broker.token());
        let other = [("Authorization", daemon.as_str())];
        assert_eq!(team.post(&at("begin"), &other, &begin).0, 401);
        let nobody = json!({"member": "01ARZ3NDEKTSV4RRFFQ69G5FAV"});
        let (status, answer) = team.post(&at("begin"), &head, &nobody);
        assert_eq!((status, &answer["code"]), (403, &json!("not_owner")));
        let first = json!({"member": member, "cursor": 0, "items": [item(1), item(2)]});
        let (status, answer) = team.post(&chunk, &head, &first);
        assert_eq!(status, 404, "nothing was begun: {answer}");
        let (status, answer) = team.post(&at("begin"), &head, &begin);
        assert_eq!(
            (status, &answer["next_cursor"]),
            (200, &json!(0)),
            "{answer}"
        );
        assert_eq!(answer["snapshot_id"], ID);
        // Another cursor than its own changes nothing and is told it, whatever comes with it; its own asks for places behind it.
        for (cursor, places) in [
            (2, vec![2]),
            (999, vec![1]),
            (999, vec![1000]),
            (2, vec![3]),
        ] {
            let items: Vec<Value> = places.into_iter().map(item).collect();
            let lost = json!({"member": member, "cursor": cursor, "items": items});
            let (status, answer) = team.post(&chunk, &head, &lost);
            assert_eq!(
                (status, &answer["next_cursor"]),
                (200, &json!(0)),
                "{answer}"
            );
        }
        let back = json!({"member": member, "cursor": 0, "items": [item(2), item(1)]});
        assert_eq!(team.post(&chunk, &head, &back).0, 400);
        for _ in 0..2 {
            assert_eq!(team.post(&chunk, &head, &first).1["next_cursor"], 2);
        }
        team = team.killed();
        let (_, answer) = team.post(&at("begin"), &head, &begin);
        assert_eq!(answer["next_cursor"], 2, "it goes on: {answer}");
        let rest = json!({"member": member, "cursor": 2, "items": [item(3)]});
        assert_eq!(team.post(&chunk, &head, &rest).1["next_cursor"], 3);
        // Somebody who has not heard of the last part shows nothing of it.
        let early = json!({"member": member, "cursor": 2});
        assert_eq!(team.post(&commit, &head, &early).1["committed"], false);
        let whole = json!({"member": member, "cursor": 3});
        let (status, done) = team.post(&commit, &head, &whole);
        assert_eq!(status, 200, "{done}");
        assert_eq!(
            (&done["committed"], &done["rows"], &done["duplicate"]),
            (&json!(true), &json!(3), &json!(false))
        );
        team = team.killed();
        let (_, again) = team.post(&commit, &head, &whole);
        assert_eq!(again["duplicate"], true);
        assert_eq!(again["broker_seq_start"], done["broker_seq_start"]);
        assert_eq!(again["broker_epoch"], 1);
        let check = team.cli("team", &["orphan-check"]).ok().json();
        assert_eq!(check["orphans"], json!([]));
    }
}

/// The steps of an upload by hand, as the operator of the team.
struct ByHand<'t> {
    team: &'t Team,
    member: &'t str,
    id: &'t str,
}

fn by_hand<'t>(team: &'t Team, member: &'t str, id: &'t str) -> ByHand<'t> {
    ByHand { team, member, id }
}

impl ByHand<'_> {
    fn ask(&self, step: &str, body: &Value) -> Value {
        let admin = format!("Bearer {}", self.team.admin());
        let path = format!("/api/my/meshes/team/snapshot/{step}");
        let (status, answer) = self.team.post(&path, &[("Authorization", &admin)], body);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn begin(&self) -> Value {
        let body = json!({"member": self.member, "snapshot_id": self.id});
        self.ask("begin", &body)
    }

    fn chunk(&self, cursor: u64, items: &[Value]) -> Value {
        let body = json!({"member": self.member, "cursor": cursor, "items": items});
        self.ask(&format!("{}/chunk", self.id), &body)
    }

    fn commit(&self, cursor: u64) -> Value {
        let body = json!({"member": self.member, "cursor": cursor});
        self.ask(&format!("{}/commit", self.id), &body)
    }
}

/// Of each item that an answer leaves out: its place, its id, why.
fn left_out(answer: &Value) -> Vec<(Option<u64>, String)> {
    let items = answer["left_out_items"].as_array().cloned();
    let items = items.unwrap_or_default();
    assert_eq!(answer["left_out"], items.len(), "{answer}");
    let named = items.iter().map(|item| {
        assert_eq!(item["code"], "idempotency_key_reused", "{answer}");
        assert_eq!(item["agent"], "coder", "{answer}");
        let id = item["client_message_id"].as_str().unwrap();
        (item["at"].as_u64(), id.to_owned())
    });
    named.collect()
}

/// The row of one place at another one, under another id.
fn row(of: u64, at: u64, id: &str) -> Value {
    let mut one = item(of);
    one["at"] = json!(at);
    one["client_message_id"] = json!(id);
    one
}

/// Two rows under one id, side by side, in two chunks, and beside what the mesh had: each that is not taken is named.
#[test]
fn lf_34_a_row_whose_id_is_another_rows_is_named_and_never_only_missing() {
    for mut team in Team::both() {
        let (_alice, _up, member) = owner(&team);
        let named = |at, id: &str| (at, id.to_owned());
        let (team_id, other_id) = (ID, "6ba7b811-9dad-51d1-80b4-00c04fd430c8");
        let first = by_hand(&team, &member, team_id);
        first.begin();
        // In one chunk.
        let items = [item(1), row(2, 2, "op-1"), item(3), item(4)];
        let told = first.chunk(0, &items);
        assert_eq!(told["next_cursor"], 4, "{told}");
        assert_eq!(left_out(&told), [named(Some(2), "op-1")]);
        // In another chunk: the commit finds it. The same row once more is no other row.
        let told = first.chunk(4, &[row(4, 5, "op-4"), row(6, 6, "op-3"), item(7)]);
        assert_eq!(left_out(&told), []);
        let done = first.commit(7);
        assert_eq!(
            (&done["committed"], &done["rows"]),
            (&json!(true), &json!(4))
        );
        assert_eq!(left_out(&done), [named(None, "op-3")]);
        team = team.killed();
        let first = by_hand(&team, &member, team_id);
        for again in [first.commit(7), first.begin()] {
            assert_eq!(again["committed"], true, "{again}");
            assert_eq!(left_out(&again), [named(None, "op-3")]);
        }
        // Beside what the mesh has: the chunk is told.
        let second = by_hand(&team, &member, other_id);
        second.begin();
        let told = second.chunk(0, &[row(1, 1, "op-7"), row(1, 2, "op-1"), item(9)]);
        assert_eq!(left_out(&told), [named(Some(1), "op-7")]);
        let done = second.commit(9);
        assert_eq!(done["rows"], 1, "{done}");
        assert_eq!(left_out(&done), []);
        let check = team.cli("team", &["orphan-check"]).ok().json();
        assert_eq!(check["orphans"], json!([]));
    }
}

/// What can never be taken is left out by name, wherever it stands; its neighbours are taken.
#[test]
fn lf_34_an_item_that_can_never_be_taken_is_named_and_its_neighbours_are_taken() {
    for team in Team::both() {
        let (_alice, _up, member) = owner(&team);
        let upload = by_hand(&team, &member, ID);
        upload.begin();
        let with = |at: u64, bytes: &[u8]| {
            let mut one = item(at);
            one["envelope_base64"] = json!(STANDARD.encode(bytes));
            one
        };
        let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1_200_000));
        let mut nobodys = item(8);
        nobodys["agent"] = json!("nobody");
        let items = [
            with(1, b"not json"),
            item(2),
            with(3, br#"{"x":1}"#),
            item(4),
            with(5, large.as_bytes()),
            item(6),
            nobodys,
            item(9),
            with(10, b"\xff"),
        ];
        let told = upload.chunk(0, &items);
        assert_eq!(told["next_cursor"], 10, "{told}");
        assert_eq!(told["left_out"], 5, "{told}");
        assert_eq!(told.get("waits"), None, "{told}");
        let named = told["left_out_items"].as_array().unwrap().iter();
        let named: Vec<_> = named
            .map(|item| (item["at"].as_u64().unwrap(), item["code"].as_str().unwrap()))
            .collect();
        let (bad, large, unknown) = ("invalid_request", "payload_too_large", "unknown_agent");
        let expected = [(1, bad), (3, bad), (5, large), (8, unknown), (10, bad)];
        assert_eq!(named, expected, "{told}");
        let done = upload.commit(10);
        assert_eq!(
            (&done["committed"], &done["rows"]),
            (&json!(true), &json!(4)),
            "{done}"
        );
    }
}

/// What everybody can read of it, from the broker's own tables: ops of the log.
fn shown_ops(team: &Team) -> u64 {
    let (rows, file) = ("SELECT count(*) FROM", team.broker.data.join("broker.db"));
    match &team.database {
        Some(database) => database.sql(&format!("{rows} mesh.log_row"))[0]
            .parse()
            .unwrap(),
        None => {
            let tables = rusqlite::Connection::open(file).unwrap();
            let sql = format!("{rows} log_row");
            let count: i64 = tables.query_row(&sql, [], |row| row.get(0)).unwrap();
            count.try_into().unwrap()
        }
    }
}

/// By hand: chunks come twice, too early, cut short, in the wrong order, and the broker is killed after each of them. A part
/// is never seen, and what is shown in the end is each row once.
#[test]
fn lf_34_chunks_that_come_in_any_order_and_across_kills_are_never_seen_in_part() {
    const CHUNKS: u64 = 6;
    const SIZE: u64 = 5;
    for mut team in Team::both() {
        let (_alice, _up, member) = owner(&team);
        let admin = format!("Bearer {}", team.admin());
        let head = [("Authorization", admin.as_str())];
        let at = |what: &str| format!("/api/my/meshes/team/snapshot/{what}");
        let (path, commit) = (at(&format!("{ID}/chunk")), at(&format!("{ID}/commit")));
        let begin = json!({"member": member, "snapshot_id": ID});
        let chunk = |number: u64, size: u64| {
            let items: Vec<Value> = (1..=size).map(|n| item(number * SIZE + n)).collect();
            json!({"member": member, "cursor": number * SIZE, "items": items})
        };
        let before = shown_ops(&team);
        assert_eq!(team.post(&at("begin"), &head, &begin).0, 200);
        for number in 0..CHUNKS {
            let stands = number * SIZE;
            // Those behind it, and that of before once more: told where it stands.
            for other in [number + 2, number + 1, number.saturating_sub(1)] {
                if other != number {
                    let (status, told) = team.post(&path, &head, &chunk(other, SIZE));
                    assert_eq!(
                        (status, &told["next_cursor"]),
                        (200, &json!(stands)),
                        "{told}"
                    );
                }
            }
            // Cut in its middle, then the whole of it: the front of it is there already.
            let (_, cut) = team.post(&path, &head, &chunk(number, SIZE - 2));
            assert_eq!(cut["next_cursor"], stands + SIZE - 2, "{cut}");
            let (_, told) = team.post(&path, &head, &chunk(number, SIZE));
            assert_eq!(told["next_cursor"], stands + SIZE - 2, "{told}");
            let rest = json!({"member": member, "cursor": stands + SIZE - 2,
                "items": [item(stands + SIZE - 1), item(stands + SIZE)]});
            assert_eq!(
                team.post(&path, &head, &rest).1["next_cursor"],
                stands + SIZE
            );
            if number % 2 == 0 {
                team = team.killed();
            }
            assert_eq!(shown_ops(&team), before, "a part of it is seen");
            let early = json!({"member": member, "cursor": CHUNKS * SIZE + 1});
            let (_, told) = team.post(&commit, &head, &early);
            assert_eq!(
                (&told["committed"], &told["next_cursor"]),
                (&json!(false), &json!(stands + SIZE))
            );
        }
        team = team.killed();
        assert_eq!(shown_ops(&team), before);
        let whole = json!({"member": member, "cursor": CHUNKS * SIZE});
        let (_, done) = team.post(&commit, &head, &whole);
        assert_eq!(
            (&done["committed"], &done["rows"]),
            (&json!(true), &json!(CHUNKS * SIZE)),
            "{done}"
        );
        assert_eq!(shown_ops(&team), before + CHUNKS * SIZE);
        let (_, late) = team.post(&path, &head, &chunk(CHUNKS, 1));
        assert_eq!(late["committed"], true, "{late}");
        assert_eq!(shown_ops(&team), before + CHUNKS * SIZE);
        let check = team.cli("team", &["orphan-check"]).ok().json();
        assert_eq!(check["orphans"], json!([]));
    }
}

fn dump(home: &Home, mesh: &str) -> String {
    home.cli(&["--mesh", mesh, "advanced", "dump"]).ok().stdout
}

/// What the broker did with it, from its own tables.
fn uploads(team: &Team) -> (u64, u64) {
    let words = "SELECT coalesce(sum(shown_count), 0)";
    let counted = match &team.database {
        Some(database) => database.sql(&format!(
            "{words}::text, (SELECT count(*) FROM mesh.snapshot_row)::text FROM mesh.snapshot_upload"
        )),
        None => {
            let file = team.broker.data.join("broker.db");
            let tables = rusqlite::Connection::open(file).unwrap();
            let sql = format!(
                "{words}, (SELECT count(*) FROM snapshot_row) FROM snapshot_upload"
            );
            let row = tables.query_row(&sql, [], |row| {
                Ok(format!("{}|{}", row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            });
            vec![row.unwrap()]
        }
    };
    let (shown, staged) = counted[0].split_once('|').unwrap();
    (shown.parse().unwrap(), staged.parse().unwrap())
}

#[test]
fn lf_33_a_large_mesh_moves_to_the_team_in_parts_while_both_sides_are_killed() {
    const ROWS: usize = 700;
    for mut team in Team::both() {
        let (alice, bob) = (Home::new(), Home::new());
        alice.config("[daemon]\nmember = \"alice\"\nsnapshot_rows = 100\n");
        bob.config("[daemon]\nmember = \"bob\"\n");
        let mut up = alice.up();
        for number in 0..ROWS {
            let body = json!({"key": format!("k{number:05}"), "value": number});
            up.http.post("/v1/state/set", &body).expect(200);
        }
        let (url, token) = (team.url(), team.broker.data.join("broker_token"));
        let args = ["mesh", "publish", "home", "--json", "--to", &url];
        let with = ["--token-file", token.to_str().unwrap()];
        up = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| alice.cli(&[&args[..], &with[..]].concat()));
            wait_until_within(SOON, "the move to be written down", || {
                text_of(&alice.path().join("config.toml")).contains("[[mesh]]")
            });
            // Whoever asked for it dies with the daemon, or is told that it is done: the daemon goes on by itself.
            up.kill();
            let again = alice.up();
            publishing.join().unwrap();
            again
        });
        for round in 0..3 {
            if round % 2 == 0 {
                team = team.killed();
            } else {
                up.kill();
                up = alice.up();
            }
        }
        wait_until_within(SOON, "everything to be published", || {
            let body = json!({"wait_seconds": 0});
            let answer = up.http.post("/v1/mesh/publish", &body);
            answer.status == 200 && answer.json()["done"] == json!(true)
        });
        let (shown, staged) = uploads(&team);
        assert_eq!((shown, staged), (u64::try_from(ROWS).unwrap(), 0));
        // Whoever joins later reads all of it from the log.
        let invited = alice.cli(&["mesh", "invite", "--json"]).ok().json();
        let _bob_up = bob.up();
        let link = invited["link"].as_str().unwrap();
        bob.cli(&["mesh", "join", link, "--as", "team"]).ok();
        wait_until_within(SOON, "the same rows", || {
            dump(&alice, "home") == dump(&bob, "team")
        });
        let check = team.cli("home", &["orphan-check"]).ok().json();
        assert_eq!(check["orphans"], json!([]));
        up.stop();
    }
}
