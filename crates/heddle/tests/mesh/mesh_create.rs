//! Further personal meshes of a home: made once, apart from each other, there after a kill, good for every verb.

use crate::support;

use serde_json::{Value, json};
use support::{Daemon, Home, wait_until};

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

fn create(home: &Home, name: &str) -> Value {
    home.cli(&["mesh", "create", name, "--json"]).ok().json()
}

fn names(home: &Home) -> Vec<String> {
    let list = home.cli(&["mesh", "list", "--json"]).ok().json();
    let meshes = list["meshes"].as_array().unwrap().clone();
    let name = |mesh: &Value| mesh["mesh"].as_str().unwrap().to_owned();
    meshes.iter().map(name).collect()
}

fn bodies(home: &Home, mesh: &str, agent: &str) -> Vec<String> {
    let args = ["inbox", "--json", "--mesh", mesh, "--agent", agent];
    let page = home.cli(&args).ok().json();
    let items = page["items"].as_array().unwrap().clone();
    let body = |item: &Value| item["body"].as_str().unwrap().to_owned();
    items.iter().map(body).collect()
}

#[test]
fn a_mesh_is_made_once_is_apart_and_is_there_after_a_kill() {
    let home = home_of("alice");
    let up = home.up();
    let made = create(&home, "work");
    assert_eq!(
        (&made["duplicate"], &made["kind"]),
        (&json!(false), &json!("personal"))
    );
    assert_eq!(made["member"], "alice");
    let again = create(&home, "work");
    assert_eq!(again["duplicate"], true);
    for field in ["mesh_id", "member_id"] {
        assert_eq!(again[field], made[field], "{field}");
    }
    assert_eq!(create(&home, "home")["duplicate"], true);
    assert_eq!(names(&home), ["home", "work"]);

    home.cli(&["--mesh", "work", "agent", "register", "planner"])
        .ok();
    home.cli(&["--mesh", "work", "send", "@planner", "hello"])
        .ok();
    wait_until("the message", || {
        bodies(&home, "work", "planner") == ["hello"]
    });
    home.cli(&["--mesh", "work", "state", "set", "k", "1"]).ok();
    home.cli(&["state", "set", "k", "2"]).ok();
    // The mesh without a name is the first one still.
    let first = home.cli(&["mesh", "info", "--json"]).ok().json();
    assert_eq!(first["mesh"], "home");
    up.kill();

    let _up = home.up();
    assert_eq!(names(&home), ["home", "work"]);
    let state = |mesh: &str| {
        let args = ["--mesh", mesh, "state", "get", "k", "--json"];
        home.cli(&args).ok().json()["value"].clone()
    };
    assert_eq!((state("work"), state("home")), (json!(1), json!(2)));
    assert_eq!(bodies(&home, "work", "planner"), ["hello"]);
    home.cli(&["--mesh", "work", "send", "@planner", "again", "--wait"])
        .ok();
    wait_until("both", || bodies(&home, "work", "planner").len() == 2);
    assert_eq!(create(&home, "work")["mesh_id"], made["mesh_id"]);
}

#[test]
fn every_kind_of_verb_works_in_a_mesh_that_was_made() {
    let home = home_of("alice");
    let _up = home.up();
    create(&home, "work");
    let run = |verb: &[&str]| {
        home.cli(&[&["--mesh", "work", "--json"], verb].concat())
            .ok()
    };
    run(&["agent", "register", "planner"]);
    run(&["topic", "subscribe", "ops", "--agent", "planner"]);
    run(&["topic", "post", "ops", "news"]);
    run(&["queue", "push", "jobs", "one"]);
    assert!(
        run(&["queue", "take", "jobs", "--agent", "planner"])
            .stdout
            .contains("one")
    );
    run(&["remember", "who", "ada"]);
    assert!(run(&["recall", "who"]).stdout.contains("ada"));
    let task = run(&["task", "add", "dig"]).json();
    run(&["task", "claim", task["task"]["id"].as_str().unwrap()]);
    run(&["vector", "store", "v", "a text"]);
    run(&["mesh", "clock"]);
    run(&["peers"]);
    // Effects of this mesh are decided here, apart from those of another.
    let effect = [
        "effect", "request", "--key", "k", "--op", "deploy", "--target", "x",
    ];
    let asked = run(&effect).json();
    run(&["effect", "approve", asked["request_id"].as_str().unwrap()]);
    assert!(run(&["effect", "list"]).stdout.contains("deploy"));
    assert!(
        !home
            .cli(&["effect", "list", "--json"])
            .ok()
            .stdout
            .contains("deploy")
    );
}

#[test]
fn others_are_invited_to_a_mesh_that_was_made_and_to_it_alone() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let (alice_up, _bob_up) = (alice.up(), bob.up());
    create(&alice, "work");
    alice
        .cli(&["--mesh", "work", "state", "set", "k", "\"shared\""])
        .ok();
    alice.cli(&["state", "set", "k", "\"private\""]).ok();
    let invited = alice
        .cli(&["--mesh", "work", "mesh", "invite", "--json"])
        .ok()
        .json();
    let joined = bob.cli(&["mesh", "join", invited["link"].as_str().unwrap(), "--json"]);
    assert_eq!(joined.ok().json()["mesh"], "work");
    let seen = || {
        bob.cli(&["--mesh", "work", "state", "get", "k", "--json"])
            .stdout
    };
    wait_until("the data", || seen().contains("shared"));
    assert_eq!(create(&alice, "work")["kind"], "shared_owner");
    // Bob's own mesh of that name cannot be; it is told which can.
    let taken = bob.cli(&["mesh", "create", "work"]);
    assert_eq!(taken.code, 3, "{taken:?}");
    assert!(taken.stderr.contains("work-2"), "{taken:?}");
    create(&bob, "work-2");
    // The port that bob knows stays, though it was never given out for `home`.
    alice_up.stop();
    let _alice_up = alice.up();
    wait_until("bob to be back", || {
        let info = bob
            .cli(&["--mesh", "work", "mesh", "info", "--json"])
            .json();
        info["connected"] == true
    });
    alice
        .cli(&["--mesh", "work", "state", "set", "k", "\"later\""])
        .ok();
    wait_until("what came later", || seen().contains("later"));
}

#[test]
fn names_that_cannot_be_and_homes_that_cannot_host_are_refused_with_a_next_step() {
    let home = home_of("alice");
    let up = home.up();
    for bad in ["", "a b", "#x", "a/b", "UPPER\n"] {
        let ran = home.cli(&["mesh", "create", bad]);
        assert_eq!(ran.code, 2, "{bad:?}: {ran:?}");
    }
    create(&home, "work");
    up.stop();
    // A config that means another mesh by that name is refused before anything is touched.
    let config = std::fs::read_to_string(home.path().join("config.toml")).unwrap();
    home.config(&format!(
        "{config}\n[[mesh]]\nname = \"work\"\nurl = \"ws://127.0.0.1:1/\"\n"
    ));
    let ran = home.cli(&["up", "--detach"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("another name"), "{ran:?}");
    home.config(&config);
    // Without a broker of its own a home makes none.
    let elsewhere = Home::new();
    elsewhere.config("[[mesh]]\nname = \"far\"\nurl = \"ws://127.0.0.1:1/\"\n");
    let up = elsewhere.cli(&["daemon", "up", "--detach", "--json"]).ok();
    assert!(up.json()["pid"].is_u64());
    let ran = elsewhere.cli(&["mesh", "create", "work"]);
    elsewhere.cli(&["down"]).ok();
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("heddle up"), "{ran:?}");
}

#[test]
fn a_key_that_made_a_mesh_makes_no_other_one_and_a_refusal_consumes_none() {
    let home = home_of("alice");
    let up = home.up();
    let under = |up: &Daemon, key: &str, name: &str| {
        let body = json!({"name": name}).to_string();
        let headers = [("idempotency-key", key)];
        up.http.post_with("/v1/mesh/create", &headers, &body)
    };
    under(&up, "k1", "a b").expect(400);
    let made = under(&up, "k1", "work").expect(200);
    assert_eq!(made["duplicate"], false, "{made}");
    let again = under(&up, "k1", "work").expect(200);
    assert_eq!(
        (&again["duplicate"], &again["mesh_id"]),
        (&json!(true), &made["mesh_id"])
    );
    let other = under(&up, "k1", "play").expect(409);
    assert_eq!(other["code"], "idempotency_key_reused", "{other}");
    assert_eq!(names(&home), ["home", "work"]);
    // Neither does a restart make it free, nor is it an invitation's.
    up.kill();
    let up = home.up();
    under(&up, "k1", "play").expect(409);
    let headers = [("idempotency-key", "k1")];
    let invite = up.http.post_with("/v1/mesh/invite", &headers, "{}");
    invite.expect(409);
    assert_eq!(names(&home), ["home", "work"]);
    let second = under(&up, "k2", "play").expect(200);
    assert_eq!(second["duplicate"], false, "{second}");
}
