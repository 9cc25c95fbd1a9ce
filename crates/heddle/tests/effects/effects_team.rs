//! A broker of its own is the authority over the effects of its meshes: on its file, and on a PostgreSQL that
//! two brokers share.

use crate::support;

use std::path::Path;

use serde_json::Value;
use support::broker_process::BrokerProcess;
use support::ledger::status;
use support::servers::Postgres;
use support::{Daemon, Home, Ran, wait_until};

fn member(broker: &BrokerProcess, name: &str) -> Home {
    let home = Home::new();
    home.config(&format!(
        "[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
        broker.listen(),
        broker.data.join("broker_token"),
    ));
    home
}

fn connected(daemon: &Daemon) {
    wait_until("the team's broker", || {
        let status = status(daemon);
        let meshes = status["meshes"].as_array().unwrap().iter();
        let mut team = meshes.filter(|mesh| mesh["mesh"] == "team");
        team.any(|mesh| mesh["connected"] == true)
    });
}

/// As one of this member's agents, or as its person, who needs no name.
fn effect(home: &Home, agent: &str, words: &[&str]) -> Ran {
    let mut args = vec!["--mesh", "team", "effect"];
    args.extend(words);
    match agent {
        PERSON => home.cli(&args),
        agent => home.cli_as(agent, &args),
    }
}

const PERSON: &str = "";

fn run<'a>(key: &'a str, nonce: &'a str, script: &'a str) -> Vec<&'a str> {
    let mut args = vec!["run", "--json", "--key", key, "--op", "migrate"];
    args.extend(["--target", "prod"]);
    if !nonce.is_empty() {
        args.extend(["--nonce", nonce]);
    }
    args.extend(["--", "/bin/sh", "-c", script]);
    args
}

const ASK: [&str; 8] = [
    "request", "--json", "--key", "m-1", "--op", "migrate", "--target", "prod",
];

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Ann's agent asks, Bob approves, Ann's agent runs it, and everybody gets that one result.
fn one_effect(ann: &Home, bob: &Home, side: &Path) {
    let script = format!("echo x >> {}; echo migrated", side.display());
    let alone = effect(ann, "planner", &run("m-1", "", &script));
    assert_eq!(
        (alone.code, text(&alone.json(), "code")),
        (6, "APPROVAL_NEEDED"),
        "{alone:?}"
    );
    let asked = effect(ann, "planner", &ASK).ok().json();
    assert_eq!(text(&asked, "status"), "awaiting_approval");
    let id = text(&asked, "request_id");
    let own = effect(ann, "planner", &["approve", id, "--json"]);
    assert_eq!(own.code, 6, "an agent decides nothing: {own:?}");
    let listed = effect(bob, PERSON, &["list", "--json"]).ok().json();
    assert_eq!(text(&listed["effects"][0], "requested_by"), "@ann/planner");
    let nonce = effect(bob, PERSON, &["approve", id, "--json"]).ok().json();
    let nonce = text(&nonce, "nonce");
    let ran = effect(ann, "planner", &run("m-1", nonce, &script)).ok();
    assert_eq!(text(&ran.json(), "status"), "closed");
    for (home, who) in [(ann, PERSON), (bob, PERSON), (bob, "worker")] {
        let again = effect(home, who, &run("m-1", "", &script)).ok().json();
        assert_eq!(again["duplicate"], true);
        assert_eq!(text(&again, "stdout"), "migrated\n");
    }
    assert_eq!(std::fs::read_to_string(side).unwrap(), "x\n");
    let told = effect(bob, PERSON, &["status", "m-1", "--json"])
        .ok()
        .json();
    assert_eq!(text(&told["decisions"][0], "by"), "@bob/bob");
    effect(bob, PERSON, &["surface-check", "--json"]).ok();
    let story = bob.cli(&["--mesh", "team", "explain", "effect:m-1", "--json"]);
    assert!(story.ok().stdout.contains("@ann/planner"));
}

/// S3 at the broker: what failed its verification is made up for once, by whose effect it is or who may approve.
fn one_compensation(ann: &Home, bob: &Home, side: &Path) {
    let failed = effect(ann, PERSON, &run("s3", "", "exit 4"));
    assert_eq!(
        (
            failed.code,
            text(&failed.json(), "state"),
            text(&failed.json(), "status")
        ),
        (1, "S3", "verify_failed")
    );
    let alone = effect(bob, "worker", &["compensate", "s3", "--json", "--", "true"]);
    assert_eq!(text(&alone.json(), "code"), "APPROVAL_NEEDED");
    let script = format!("echo undone >> {}", side.display());
    for _ in 0..2 {
        let words = ["compensate", "s3", "--json", "--", "/bin/sh", "-c", &script];
        let done = effect(bob, PERSON, &words).ok().json();
        assert_eq!(text(&done, "status"), "compensated");
    }
    assert_eq!(std::fs::read_to_string(side).unwrap(), "undone\n");
}

#[test]
fn the_brokers_own_file_keeps_what_happened_through_a_restart() {
    let house = Home::new();
    let data = house.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &[]);
    let homes = [member(&broker, "ann"), member(&broker, "bob")];
    let up = [homes[0].up(), homes[1].up()];
    up.iter().for_each(connected);
    let side = house.path().with_file_name("side");
    one_effect(&homes[0], &homes[1], &side);
    one_compensation(&homes[0], &homes[1], &side.with_extension("s3"));
    // Killed, and back on the same address: the key is used.
    let listen = broker.listen();
    broker.kill();
    let files = ["effects.db", "effects.db-wal"];
    for name in files {
        let _ = std::fs::copy(data.join(name), house.path().with_file_name(name));
    }
    wait_until("they notice", || {
        effect(&homes[1], PERSON, &["status", "m-1", "--json"]).code == 5
    });
    let broker = BrokerProcess::start(&house, &data, &listen, &[]);
    up.iter().for_each(connected);
    let script = format!("echo x >> {}", side.display());
    let again = effect(&homes[1], PERSON, &run("m-1", "", &script)).ok();
    assert_eq!(again.json()["duplicate"], true);
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    // The policy is that of its folder, from the next question on.
    let policy = "[[rule]]\noperation = \"*\"\napproval = \"auto\"\n";
    std::fs::write(data.join("effects.toml"), policy).unwrap();
    effect(&homes[0], "planner", &run("m-2", "", "true")).ok();
    assert_eq!(broker.terminate(), 0);
    // An earlier copy decides nothing.
    for name in files {
        let _ = std::fs::remove_file(data.join(name));
        let _ = std::fs::copy(house.path().with_file_name(name), data.join(name));
    }
    let broker = BrokerProcess::start(&house, &data, &listen, &[]);
    up.iter().for_each(connected);
    let older = effect(&homes[0], "planner", &run("m-2", "", "true"));
    assert_ne!(older.code, 0, "{older:?}");
    assert!(older.stderr.contains("earlier copy"), "{older:?}");
    assert_eq!(broker.terminate(), 0);
    // A lost file is no empty one.
    for name in ["effects.db", "effects.db-wal", "effects.db-shm"] {
        let _ = std::fs::remove_file(data.join(name));
    }
    let lost = BrokerProcess::try_start(&house, &data, &listen, &[]);
    let lost = lost.err().expect("a lost store");
    assert!(lost.stderr.contains("effects.db is missing"), "{lost:?}");
}

#[test]
fn rg_14_two_brokers_on_one_postgres_are_one_authority() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let folder = |name: &str| house.path().parent().unwrap().join(name);
    let broker = |name: &str| {
        let args = ["--database", url.as_str()];
        BrokerProcess::start(&house, &folder(name), "127.0.0.1:0", &args)
    };
    let brokers = [broker("one"), broker("two")];
    let homes = [member(&brokers[0], "ann"), member(&brokers[1], "bob")];
    let up = [homes[0].up(), homes[1].up()];
    up.iter().for_each(connected);
    one_effect(&homes[0], &homes[1], &folder("side"));
    one_compensation(&homes[0], &homes[1], &folder("s3"));
    // Both persons may; whoever is first runs it, through whichever broker.
    let side = folder("race");
    let script = format!("echo x >> {}; echo $HEDDLE_EFFECT_ATTEMPT", side.display());
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let racing: Vec<_> = (0..64)
            .map(|nth| {
                let home = &homes[nth % 2];
                let script = script.as_str();
                scope.spawn(move || effect(home, PERSON, &run("race", "", script)))
            })
            .collect();
        racing.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    let first = ran[0].json();
    for one in &ran {
        assert_eq!(one.code, 0, "{one:?}");
        assert_eq!(one.json()["stdout"], first["stdout"]);
    }
    // Whoever may append to the effects may change nothing there.
    let refused = database.sql(
        "SELECT has_table_privilege('heddle_registrar', 'mesh_effects.effect_consume', 'UPDATE')",
    );
    assert_eq!(refused, ["f"]);
}

#[test]
fn rp_10_rg_17_a_broker_on_a_postgres_that_is_not_fit_does_not_start() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let data = house.path().with_file_name("broker");
    let args = ["--database", url.as_str()];
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &args);
    broker.kill();
    // Append-only no more: somebody could take a used key away.
    let triggers = database.sql(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'mesh_effects.effect_consume'::regclass AND NOT tgisinternal",
    );
    let trigger = &triggers[0];
    database.sql(&format!(
        "DROP TRIGGER {trigger} ON mesh_effects.effect_consume"
    ));
    let unfit = BrokerProcess::try_start(&house, &data, "127.0.0.1:0", &args);
    let unfit = unfit.err().expect("an unfit store");
    assert!(unfit.stderr.contains("REPLAY_SURFACE_NOT_FIT"), "{unfit:?}");
    // It is not a file that is unfit.
    assert!(
        unfit.stderr.contains("schema mesh_effects of PostgreSQL"),
        "{unfit:?}"
    );
    assert!(!unfit.stderr.contains("effects.db: "), "{unfit:?}");
    assert!(
        unfit.stderr.contains(trigger.as_str()),
        "it is named: {unfit:?}"
    );
}
