//! The team broker over the real binary: PostgreSQL, several brokers, what operators see.
#![allow(clippy::disallowed_methods, reason = "tests wait on the real clock")]

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::ledger::{inbox_in, status};
use support::servers::{Postgres, Redis};
use support::{Daemon, Home, wait_until};

/// A folder for brokers, and the database that they share.
struct Team {
    house: Home,
    database: Postgres,
}

impl Team {
    fn new() -> Self {
        Self {
            house: Home::new(),
            database: Postgres::start(),
        }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.house.path().parent().unwrap().join(name)
    }

    fn broker(&self, name: &str, listen: &str, more: &[&str]) -> BrokerProcess {
        let url = self.database.url();
        let mut args = vec!["--database", url.as_str()];
        args.extend(more);
        BrokerProcess::start(&self.house, &self.folder(name), listen, &args)
    }

    fn cli(&self, verb: &[&str]) -> support::Ran {
        let url = self.database.url();
        let mut args = vec!["broker"];
        args.extend(verb);
        args.extend(["--json", "--database", url.as_str()]);
        self.house.cli(&args)
    }
}

/// A home whose mesh `team` is hosted by this broker.
fn member(broker: &BrokerProcess, name: &str) -> Home {
    let home = Home::new();
    home.config(&mesh_config(
        &format!("ws://{}/", broker.listen()),
        &broker.data,
        name,
    ));
    home
}

fn mesh_config(url: &str, data: &Path, name: &str) -> String {
    format!(
        "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = {url:?}\ntoken_file = {:?}\n",
        data.join("broker_token"),
    )
}

/// What is in a mailbox of the team.
fn inbox(daemon: &Daemon, agent: &str) -> std::collections::BTreeMap<String, usize> {
    inbox_in(daemon, "team", agent)
}

fn team_connected(daemon: &Daemon) {
    wait_until("the team's broker", || {
        let status = status(daemon);
        let meshes = status["meshes"].as_array().unwrap().iter();
        let mut team = meshes.filter(|mesh| mesh["mesh"] == "team");
        team.any(|mesh| mesh["connected"] == true)
    });
}

fn post(daemon: &Daemon, to: &str, id: &str) {
    let body = json!({"to": to, "message": id, "client_message_id": id, "mesh": "team"});
    daemon.http.post("/v1/send", &body).expect(202);
}

/// A page of a broker: status and body.
#[test]
fn a_team_broker_serves_from_postgres_and_shows_how_it_is() {
    let team = Team::new();
    let migrated = team.cli(&["migrate"]).ok().json();
    assert_eq!(migrated["from"], 0);
    assert_eq!(team.cli(&["migrate"]).ok().json()["from"], migrated["to"]);
    let broker = team.broker("one", "127.0.0.1:0", &[]);
    assert_eq!(broker.ready["storage"], "postgres");
    // What it tells people to present is what it takes, also where it shares another's.
    let token = broker.data.join("broker_token");
    assert_eq!(broker.ready["token_file"], token.to_str().unwrap());
    let shared = ["--token-file", token.to_str().unwrap()];
    let second = team.broker("two", "127.0.0.1:0", &shared);
    assert_eq!(second.ready["token_file"], token.to_str().unwrap());
    assert_eq!(broker.page("/healthz", None).0, 200);
    assert_eq!(
        broker.page("/readyz", None),
        (200, "{\"ready\":true,\"waiting_for\":[]}\n".to_owned())
    );
    assert_eq!(broker.page("/metrics", None).0, 401);
    assert_eq!(
        broker.page("/metrics", Some(&broker.token())).0,
        401,
        "that is the daemons' token"
    );
    let admin = support::text_of(&broker.data.join("admin_token"));
    let (code, figures) = broker.page("/metrics", Some(admin.trim()));
    assert_eq!(code, 200);
    assert!(figures.contains("heddle_broker_accept_total"), "{figures}");
    assert_eq!(broker.page("/other", None).0, 426);

    let homes = [member(&broker, "ann"), member(&broker, "bob")];
    let (ann, bob) = (homes[0].up(), homes[1].up());
    team_connected(&ann);
    team_connected(&bob);
    wait_until("bob in ann's roster", || {
        homes[0]
            .cli(&["--mesh", "team", "peers", "--json"])
            .stdout
            .contains("bob")
    });
    post(&ann, "@bob/tester", "A");
    wait_until("the message", || inbox(&bob, "tester").get("A") == Some(&1));
    let checked = team.cli(&["orphan-check"]).ok().json();
    assert_eq!(checked["orphans"], json!([]));
    assert!(checked["checked"].as_u64().unwrap() > 0);
    let epochs = team.cli(&["epoch"]).ok().json();
    assert_eq!(epochs["meshes"][0]["epoch"], 1);
    assert_eq!(
        team.cli(&["epoch", "bump"]).ok().json()["meshes"][0]["epoch"],
        2
    );
    team.cli(&["sweep"]).ok();
    assert_eq!(broker.terminate(), 0);
}

#[test]
fn a_database_that_cannot_be_used_is_refused_before_the_port_is_bound_with_a_next_step() {
    let house = Home::new();
    let data = house.path().parent().unwrap().join("broker");
    let serve = |url: &str| {
        let args = ["--database", url];
        BrokerProcess::try_start(&house, &data, "127.0.0.1:0", &args)
            .err()
            .unwrap()
    };
    let gone = serve("postgres://u:secret@127.0.0.1:1/d");
    assert_eq!(gone.code, 5, "{gone:?}");
    assert!(gone.stderr.contains("Start the database"), "{gone:?}");
    assert!(!gone.stderr.contains("secret"), "{gone:?}");
    let nonsense = serve("mysql://u:secret@127.0.0.1/d");
    assert_eq!(nonsense.code, 2, "{nonsense:?}");
    assert!(!nonsense.stderr.contains("secret"), "{nonsense:?}");
    assert!(!data.join("broker.port").exists());
    // BR-18: a server that may forget what it acknowledged.
    let database = Postgres::start();
    database.sql("ALTER SYSTEM SET full_page_writes = off");
    database.sql("SELECT pg_reload_conf()");
    wait_until("the setting", || {
        database.sql("SHOW full_page_writes") == ["off"]
    });
    let unfit = serve(&database.url());
    assert_eq!(unfit.code, 6, "{unfit:?}");
    assert!(unfit.stderr.contains("full_page_writes"), "{unfit:?}");
    assert!(
        database
            .sql("SELECT nspname FROM pg_namespace WHERE nspname = 'mesh'")
            .is_empty()
    );
}

#[test]
fn what_one_broker_accepts_the_other_pushes_and_presence_is_shared() {
    let team = Team::new();
    let brokers = [
        team.broker("one", "127.0.0.1:0", &[]),
        team.broker("two", "127.0.0.1:0", &[]),
    ];
    let homes = [member(&brokers[0], "ann"), member(&brokers[1], "bob")];
    let (ann, bob) = (homes[0].up(), homes[1].up());
    team_connected(&ann);
    team_connected(&bob);
    let peers = |home: &Home| home.cli(&["--mesh", "team", "peers", "--json"]).stdout;
    wait_until("each other", || {
        peers(&homes[0]).contains("bob") && peers(&homes[1]).contains("ann")
    });
    for number in 0..20 {
        post(&ann, "@bob/tester", &format!("a{number}"));
        post(&bob, "@ann/tester", &format!("b{number}"));
    }
    wait_until("all of them", || {
        inbox(&bob, "tester").len() == 20 && inbox(&ann, "tester").len() == 20
    });
    // Work is waited for at one broker and comes in at the other.
    let [one, two] = brokers;
    assert_eq!(two.terminate(), 0, "a rolling restart");
    post(&ann, "@bob/tester", "while-away");
    let listen = bob_listen(&homes[1]);
    let _two = team.broker("two", &listen, &[]);
    wait_until("what waited", || {
        inbox(&bob, "tester").contains_key("while-away")
    });
    drop(one);
}

/// The address in a home's config.
fn bob_listen(home: &Home) -> String {
    let config = support::text_of(&home.path().join("config.toml"));
    let behind = config.split("ws://").nth(1).unwrap();
    behind.split('/').next().unwrap().to_owned()
}

/// RL-06, L-24: a Redis that is killed, flushed, slow. Nothing dies, nothing is accepted unmetered.
#[test]
fn rl_06_l_24_a_limiter_that_is_gone_slow_or_empty_refuses_for_now_and_no_row_dies() {
    let team = Team::new();
    let mut redis = Redis::start();
    let url = redis.url();
    let broker = team.broker("one", "127.0.0.1:0", &["--limiter", &url]);
    assert_eq!(broker.ready["limiter"], "redis");
    let home = member(&broker, "ann");
    let ann = home.up();
    team_connected(&ann);
    let settled = |id: &str| {
        wait_until("the message", || inbox(&ann, "tester").get(id) == Some(&1));
    };
    post(&ann, "@ann/tester", "before");
    settled("before");
    assert_eq!(redis.ask(&["dbsize"]), "2", "a counter and its ids");

    redis.kill();
    wait_until("not ready", || broker.page("/readyz", None).0 == 503);
    post(&ann, "@ann/tester", "while-gone");
    let is_refused = |id: &str| {
        let row = ann.http.get(&format!("/v1/outbox/{id}")).expect(200);
        row.to_string().contains("limiter_unavailable")
    };
    wait_until("the refusal", || is_refused("while-gone"));
    let dead = |daemon: &Daemon| status(daemon)["outbox"]["dead"].clone();
    assert_eq!(dead(&ann), 0);
    let rows = "SELECT client_message_id FROM mesh.client_message_dedupe";
    assert_eq!(team.database.sql(rows), ["before"], "nothing unmetered");
    redis.run();
    settled("while-gone");
    wait_until("ready", || broker.page("/readyz", None).0 == 200);

    redis.ask(&["flushall"]);
    redis.ask(&["script", "flush"]);
    post(&ann, "@ann/tester", "after-a-flush");
    settled("after-a-flush");

    let mut asleep = redis.sleep(10);
    wait_until("silence", || redis.is_silent());
    post(&ann, "@ann/tester", "while-slow");
    wait_until("the refusal", || is_refused("while-slow"));
    let is_there = team.database.sql(rows).contains(&"while-slow".to_owned());
    assert!(
        asleep.try_wait().unwrap().is_none(),
        "it woke before it was waited for"
    );
    assert!(!is_there, "accepted by a limiter that has said nothing");
    asleep.wait().unwrap();
    settled("while-slow");
    assert_eq!(dead(&ann), 0);
    for key in redis.ask(&["keys", "*"]).lines() {
        let life: i64 = redis.ask(&["pttl", key]).parse().unwrap();
        assert_ne!(life, -1, "{key} never expires");
    }
}

#[test]
fn t_20_beyond_this_machine_a_broker_is_reached_by_tls_and_only_by_whoever_trusts_it() {
    let team = Team::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let file = |name: &str| fixtures.join(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (file("broker.pem"), file("broker.key"), file("ca.pem"));
    let broker = team.broker(
        "one",
        "127.0.0.1:0",
        &["--tls-cert", &cert, "--tls-key", &key],
    );
    assert_eq!(broker.ready["tls"], true);
    let home = Home::new();
    let port = broker.listen().rsplit_once(':').unwrap().1.to_owned();
    home.config(&mesh_config(
        &format!("wss://localhost:{port}/"),
        &broker.data,
        "ann",
    ));
    let stranger = home.up();
    wait_until("the distrust", || {
        status(&stranger)["degraded"]
            .to_string()
            .contains("ca_file")
    });
    stranger.stop();
    let mut command = home.command(&["up", "--detach", "--json"]);
    let started = command.env("SSL_CERT_FILE", &ca).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let sent = home.cli(&[
        "--mesh",
        "team",
        "send",
        "@ann/tester",
        "hello",
        "--id",
        "A",
        "--wait",
    ]);
    sent.ok();
    let read: Value = home.cli(&["--mesh", "team", "inbox", "--json"]).ok().json();
    assert!(read.to_string().contains("hello"), "{read}");
    home.cli(&["down"]).ok();
    // In clear nobody gets anywhere.
    let mut plain = TcpStream::connect(broker.listen()).unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // A key that is none says which option is wrong.
    let folder = team.folder("bad");
    let args = ["--tls-cert", &cert, "--tls-key", &ca];
    let bad = BrokerProcess::try_start(&team.house, &folder, "127.0.0.1:0", &args)
        .err()
        .unwrap();
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(bad.stderr.contains("--tls-key"), "{bad:?}");
}

/// LF-16: an older copy is put back. Its places were given out before, so a new epoch begins, and nothing that
/// anybody holds is lost or comes twice.
#[test]
fn lf_16_after_an_older_copy_is_put_back_a_new_epoch_begins_and_nothing_is_lost() {
    let team = Team::new();
    let broker = team.broker("one", "127.0.0.1:0", &[]);
    let listen = broker.listen();
    let home = member(&broker, "ann");
    let ann = home.up();
    team_connected(&ann);
    let settled = |id: &str| {
        wait_until("the message", || inbox(&ann, "tester").get(id) == Some(&1));
    };
    post(&ann, "@ann/tester", "kept");
    settled("kept");
    broker.terminate();
    let copy = team.database.dump();
    let broker = team.broker("one", &listen, &[]);
    post(&ann, "@ann/tester", "after-the-copy");
    settled("after-the-copy");
    broker.terminate();
    team.database.restore(&copy);
    let bumped = team.cli(&["epoch", "bump"]).ok().json();
    assert_eq!(bumped["meshes"][0]["epoch"], 2);
    let _broker = team.broker("one", &listen, &[]);
    post(&ann, "@ann/tester", "afterwards");
    settled("afterwards");
    assert_eq!(inbox(&ann, "tester").len(), 3);
    assert!(inbox(&ann, "tester").values().all(|count| *count == 1));
    let row = ann.http.get("/v1/outbox/afterwards").expect(200);
    assert!(row.to_string().contains("\"2.1\""), "{row}");
    assert_eq!(
        team.cli(&["orphan-check"]).ok().json()["orphans"],
        json!([])
    );
}

/// The folder of a broker on a database holds its tokens: who names both, as for `serve`, means the database.
#[test]
fn jobs_by_hand_mean_the_database_that_serve_means() {
    let team = Team::new();
    let broker = team.broker("one", "127.0.0.1:0", &[]);
    let asked = |data: &Path| {
        let args = [
            "broker",
            "members",
            "--json",
            "--data",
            data.to_str().unwrap(),
        ];
        let mut command = team.house.command(&args);
        command.env("HEDDLE_BROKER_DATABASE", team.database.url());
        support::Ran::from(command.output().unwrap())
    };
    let of_database = team.cli(&["members"]).ok();
    let meant = asked(&broker.data).ok();
    assert_eq!(meant.json(), of_database.json());
    assert_eq!(meant.stderr, "");
    assert!(
        !broker.data.join("broker.db").exists(),
        "a look makes no tables"
    );
    // A folder with tables of its own was meant, and that is said.
    let alone = team.folder("alone");
    drop(BrokerProcess::start(
        &team.house,
        &alone,
        "127.0.0.1:0",
        &[],
    ));
    let meant = asked(&alone).ok();
    assert!(
        meant.stderr.contains("not about HEDDLE_BROKER_DATABASE"),
        "{meant:?}"
    );
}
