//! Whose word counts, and for whom: approvers of other homes, nonces of somebody else, what a person sees of what
//! they approve, who begins it with which command, and a policy that changes its mind or is to be talked around.

use crate::support;

use serde_json::{Value, json};
use support::effect_pair::{MESH, home_of, pair_with, request, run};
use support::effect_proxy::{Moment, kill_at, said};
use support::team_broker::{Team, link_of};
use support::{Daemon, Home, Ran};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn code(ran: &Ran) -> String {
    text(&ran.json(), "code").to_owned()
}

/// The request's id.
fn asked(home: &Home, agent: &str, key: &str) -> String {
    let asked = home.cli_as(agent, &request(key)).ok().json();
    text(&asked, "request_id").to_owned()
}

fn nonce(home: &Home, id: &str) -> String {
    let granted = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    text(&granted, "nonce").to_owned()
}

#[test]
fn the_person_of_a_joined_home_approves_without_saying_who_it_is() {
    let policy = "[[rule]]\noperation = \"*\"\napproval = \"always\"\napprovers = [\"@bob\"]\n";
    // At home Bob's person is called otherwise than the member.
    let pair = pair_with(policy, "carl");
    let id = asked(&pair.alice, "planner", "k");
    let granted = pair.bob(&["effect", "approve", &id, "--json"]).ok().json();
    let nonce = text(&granted, "nonce");
    let args = run("k", &["--nonce", nonce], "true");
    pair.alice.cli_as("planner", &args).ok();
    let view = pair.alice.cli(&["effect", "status", "k", "--json"]).ok();
    assert_eq!(text(&view.json()["decisions"][0], "by"), "@bob/bob");
    // Over HTTP the same; and Bob's agents are not Bob.
    let id = asked(&pair.alice, "planner", "k2");
    let agent = json!({"request_id": id, "mesh": MESH, "agent": "planner"});
    let http = &pair.up.1.http;
    let refused = http.post("/v1/effect/approve", &agent).expect(403);
    assert_eq!(text(&refused, "code"), "APPROVAL_REFUSED");
    assert!(text(&refused, "detail").contains("@bob may"), "{refused}");
    let body = json!({"request_id": id, "mesh": MESH});
    let granted = http.post("/v1/effect/approve", &body).expect(200);
    assert!(text(&granted, "nonce").starts_with("hn_"));
}

/// A member whose home calls its person otherwise.
fn join(person: &str, name: &str, link: &str) -> (Home, Daemon) {
    let home = home_of(person);
    let up = home.up();
    let args = [
        "mesh", "join", "-", "--as", "team", "--name", name, "--json",
    ];
    let joined = home.cli_told(&args, link).ok().json();
    assert_eq!(joined["connected"], true);
    (home, up)
}

#[test]
fn at_a_broker_of_its_own_the_owners_approve_by_default_and_nobody_else_does() {
    for team in Team::both() {
        let owner = team.cli("team", &["invite", "--role", "owner"]).ok().json();
        let member = team.cli("team", &["invite"]).ok().json();
        let (alice, _up) = join("al", "alice", link_of(&owner));
        let (bob, up) = join("bo", "bob", link_of(&member));
        let at = |home: &Home, args: &[&str]| home.cli(&[&["--mesh", "team"], args].concat());
        let ask = [&["--mesh", "team"], request("k").as_slice()].concat();
        let asked = bob.cli_as("planner", &ask).ok().json();
        let id = text(&asked, "request_id");
        // Who looks is sent to the same people as who asks, and so is who runs it without having asked.
        assert_eq!(asked["approvers"], json!(["@alice"]));
        let looked = at(&bob, &["effect", "status", "k", "--json"]).json();
        assert_eq!(looked["approvers"], json!(["@alice"]), "{looked}");
        let words = at(&bob, &["effect", "status", "k"]).stdout;
        assert!(words.contains("(@alice)"), "{words}");
        let early = [&["--mesh", "team"], run("k", &[], "true").as_slice()].concat();
        let early = bob.cli_as("planner", &early);
        assert!(early.stderr.contains("(@alice)"), "{early:?}");
        let own = at(&bob, &["effect", "approve", id, "--json"]);
        assert_eq!((own.code, code(&own).as_str()), (6, "APPROVAL_REFUSED"));
        let body = json!({"request_id": id, "mesh": "team"});
        let refused = up.http.post("/v1/effect/approve", &body).expect(403);
        assert!(text(&refused, "detail").contains("owners"), "{refused}");
        let granted = at(&alice, &["effect", "approve", id, "--json"]).ok().json();
        let nonce = text(&granted, "nonce");
        let args = run("k", &["--nonce", nonce], "echo done");
        let ran = bob.cli_as("planner", &[&["--mesh", "team"], args.as_slice()].concat());
        assert_eq!(said(&ran.ok()), "closed");
        let view = at(&alice, &["effect", "status", "k", "--json"]).ok().json();
        assert_eq!(
            (
                text(&view["decisions"][0], "by"),
                text(&view, "requested_by")
            ),
            ("@alice/alice", "@bob/planner")
        );
        // An owner who runs something has said yes; a member who is none has to ask.
        assert_eq!(at(&alice, &run("own", &[], "true")).ok().code, 0);
        let alone = at(&bob, &run("alone", &[], "true"));
        assert_eq!((alone.code, code(&alone).as_str()), (6, "APPROVAL_NEEDED"));
    }
}

#[test]
fn rp_04_a_nonce_is_good_for_who_asked_and_for_nobody_else() {
    let home = Home::new();
    let _daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let id = asked(&home, "planner", "k");
    let granted = nonce(&home, &id);
    let args = run("k", &["--nonce", &granted], &script);
    let stolen = home.cli_as("worker", &args);
    assert_eq!((stolen.code, code(&stolen).as_str()), (6, "NONCE_UNBOUND"));
    assert!(stolen.stderr.contains("planner"), "whose it is: {stolen:?}");
    assert!(!side.exists());
    // It can ask for itself, and then holds an approval of its own.
    let own = asked(&home, "worker", "k");
    assert_ne!(own, id);
    let granted_own = nonce(&home, &own);
    assert_eq!(
        code(&home.cli_as("planner", &run("k", &["--nonce", &granted_own], &script))),
        "NONCE_UNBOUND"
    );
    home.cli_as("planner", &args).ok();
    let late = run("k", &["--nonce", &granted_own], &script);
    assert_eq!(home.cli_as("worker", &late).ok().json()["duplicate"], true);
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    // Whoever granted it has said yes, and may run it as well.
    let id = asked(&home, "planner", "k2");
    let granted = nonce(&home, &id);
    home.cli(&run("k2", &["--nonce", &granted], "true")).ok();
}

#[test]
fn a_person_sees_what_they_approve_before_and_after() {
    let home = Home::new();
    let _daemon = home.up();
    let file = home.path().with_file_name("up.sql");
    std::fs::write(&file, "hello").unwrap();
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let mut args = request("k");
    args.retain(|word| *word != "--json");
    let file = file.to_str().unwrap();
    args.extend(["--artifact", file, "--run", "r7", "--agent", "planner"]);
    let words = home.cli(&args).ok().stdout;
    // The person runs it as it stands there: not as the agent that asked.
    let line = words.lines().find(|line| line.contains("effect approve"));
    let line = line.expect("a next step");
    let line = line.strip_suffix(" --agent tester").expect(line);
    let id = line.split_whitespace().last().unwrap();
    let status = home.cli(&["effect", "status", "k"]);
    let approved = home.cli(&["effect", "approve", id]).ok();
    for shown in [&status.stdout, &approved.stderr, &approved.stdout] {
        for word in ["deploy", "prod", hash, "r7", "planner"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
    }
    let again = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    let seen = [
        "operation",
        "target",
        "artifact_hash",
        "run",
        "requested_by",
    ];
    assert_eq!(
        seen.map(|name| text(&again, name)),
        ["deploy", "prod", hash, "r7", "planner"]
    );
    assert_eq!(text(&again, "logical_request_key"), "k");
}

#[test]
fn a_hint_names_the_callers_own_request_and_the_person_who_is_to_run_it() {
    let home = Home::new();
    let _daemon = home.up();
    let theirs = asked(&home, "planner", "k");
    let words = |agent: &str| {
        let mut args = run("k", &["--agent", agent], "true");
        args.retain(|word| *word != "--json");
        home.cli(&args).stderr
    };
    let worker = words("worker");
    assert!(!worker.contains(&theirs), "{worker}");
    assert!(worker.contains("heddle effect request"), "{worker}");
    let planner = words("planner");
    let command = format!("`heddle effect approve {theirs} --agent tester`");
    assert!(planner.contains(&command), "{planner}");
}

#[test]
fn what_the_policy_approves_is_not_told_as_the_askers_word() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    let policy = "[[rule]]\noperation = \"deploy\"\napproval = \"auto\"\n";
    std::fs::write(home.path().join("effects.toml"), policy).unwrap();
    let _daemon = home.up();
    home.cli_as("planner", &run("k", &[], "true")).ok();
    asked(&home, "planner", "k2");
    for key in ["k", "k2"] {
        let view = home.cli(&["effect", "status", key, "--json"]).json();
        assert_eq!(text(&view["decisions"][0], "by"), "policy (auto)", "{key}");
        assert_eq!(text(&view, "requested_by"), "planner");
    }
    // Nobody is asked, whoever comes second.
    home.cli_as("worker", &run("k2", &[], "true")).ok();
}

#[test]
fn never_stops_what_was_approved_or_registered_before() {
    let home = Home::new();
    let daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let id = asked(&home, "planner", "k");
    let granted = nonce(&home, &id);
    let body = |key: &str| json!({"key": key, "op": "deploy", "target": "prod"});
    let registered = daemon.http.post("/v1/effect/register", &body("inert"));
    let registered = registered.expect(200);
    home.cli(&run("done", &[], "echo done")).ok();
    let policy = home.path().join("effects.toml");
    std::fs::write(
        &policy,
        "[[rule]]\noperation = \"*\"\napproval = \"never\"\n",
    )
    .unwrap();
    let args = run("k", &["--nonce", &granted], &script);
    let stopped = home.cli_as("planner", &args);
    assert_eq!(
        (stopped.code, code(&stopped).as_str()),
        (6, "APPROVAL_REFUSED")
    );
    assert!(stopped.stderr.contains("says never"), "{stopped:?}");
    let start = json!({"key": "inert", "attempt_id": registered["attempt_id"]});
    let start = daemon.http.post("/v1/effect/start", &start).expect(403);
    assert_eq!(text(&start, "code"), "APPROVAL_REFUSED");
    assert!(!side.exists());
    // What has happened has happened, and is told.
    let told = home.cli(&run("done", &[], "false")).ok().json();
    assert_eq!(text(&told, "stdout"), "done\n");
    // Nothing was used up.
    std::fs::remove_file(&policy).unwrap();
    home.cli_as("planner", &args).ok();
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
}

#[test]
fn only_whose_it_is_begins_what_was_registered_and_with_its_command() {
    let home = Home::new();
    let _daemon = home.up();
    let side = home.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let granted = nonce(&home, &asked(&home, "planner", "k"));
    let args = run("k", &["--nonce", &granted, "--agent", "planner"], &script);
    kill_at(&home, Moment::After, "/v1/effect/register", &args);
    let own = format!("echo y >> {}", side.display());
    let stranger = home.cli_as("worker", &run("k", &["--wait", "0s"], &own));
    assert_eq!(
        (stranger.code, code(&stranger).as_str()),
        (6, "APPROVAL_REFUSED")
    );
    assert!(stranger.stderr.contains("planner"), "{stranger:?}");
    let other = home.cli_as("planner", &run("k", &[], &own));
    assert_eq!(
        (other.code, code(&other).as_str()),
        (3, "REPLAY_BINDING_MISMATCH")
    );
    assert!(other.stderr.contains("another command"), "{other:?}");
    assert!(!side.exists(), "nothing ran");
    home.cli(&args).ok();
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    // What has its result is told, and that it was another command.
    let told = home.cli_as("planner", &run("k", &[], &own)).ok().json();
    assert_eq!(
        (told["duplicate"].as_bool(), told["same_command"].as_bool()),
        (Some(true), Some(false))
    );
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
}

#[test]
fn the_verdict_is_of_who_ran_it_or_may_approve() {
    let home = Home::new();
    let _daemon = home.up();
    for (key, by) in [("own", "planner"), ("person", "")] {
        let granted = nonce(&home, &asked(&home, "planner", key));
        let args = run(key, &["--nonce", &granted, "--verify-later"], "true");
        home.cli_as("planner", &args).ok();
        let verdict = ["effect", "verify", key, "--fail", "--json"];
        let stranger = home.cli_as("worker", &verdict);
        assert_eq!(
            (stranger.code, code(&stranger).as_str()),
            (6, "APPROVAL_REFUSED")
        );
        assert!(stranger.stderr.contains("planner"), "{stranger:?}");
        let verdict = ["effect", "verify", key, "--pass", "--json"];
        let said_by = match by {
            "" => home.cli(&verdict),
            agent => home.cli_as(agent, &verdict),
        };
        assert_eq!(said(&said_by.ok()), "closed", "{key}");
    }
}

#[test]
fn a_rule_is_not_escaped_by_another_way_to_write_its_name() {
    let home = Home::new();
    let _daemon = home.up();
    let policy = "[[rule]]\noperation = \"pay\"\napproval = \"never\"\n[[rule]]\noperation = \"*\"\napproval = \"auto\"\n";
    std::fs::write(home.path().join("effects.toml"), policy).unwrap();
    let pay = |operation: &str, target: &str| {
        let args = ["effect", "run", "--json", "--key", "k", "--op", operation];
        let args = [&args[..], &["--target", target, "--", "true"]].concat();
        home.cli_as("planner", &args)
    };
    for operation in ["pay", "Pay", "PAY", "\u{ff50}ay"] {
        let never = pay(operation, "acme");
        assert_eq!(
            (never.code, code(&never).as_str()),
            (6, "APPROVAL_REFUSED"),
            "{operation}"
        );
    }
    for (operation, target) in [
        ("p\u{200b}ay", "acme"),
        ("give", "ac\u{ad}me"),
        ("pay\u{fe0f}", "a"),
    ] {
        let hidden = pay(operation, target);
        assert_eq!(hidden.code, 2, "{hidden:?}");
        assert!(hidden.stderr.contains("cannot be seen"), "{hidden:?}");
    }
    pay("give", "acme").ok();
}

#[test]
fn a_policy_means_what_it_says_of_approvers_and_windows() {
    let home = Home::new();
    let _daemon = home.up();
    let file = home.path().join("effects.toml");
    let rule = "[[rule]]\noperation = \"*\"\napproval = \"person\"\n";
    std::fs::write(&file, format!("{rule}approvers = []\n")).unwrap();
    let refused = home.cli_as("planner", &request("k"));
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("names nobody"), "{refused:?}");
    std::fs::write(&file, format!("{rule}window_minutes = 5\n")).unwrap();
    let id = asked(&home, "planner", "k");
    let long = home.cli(&["effect", "approve", &id, "--window", "6m"]);
    assert_eq!(long.code, 2, "{long:?}");
    assert!(long.stderr.contains("5 minutes"), "{long:?}");
    let granted = home.cli(&["effect", "approve", &id, "--window", "5m"]).ok();
    // Who granted it may use it as well.
    assert!(!granted.stdout.contains("only"), "{granted:?}");
    assert!(granted.stdout.contains("planner, who asked"), "{granted:?}");
}

#[test]
fn another_file_than_the_one_that_was_approved_is_told_as_such() {
    let home = Home::new();
    let _daemon = home.up();
    let file = home.path().with_file_name("up.sql");
    std::fs::write(&file, "hello").unwrap();
    let artifact = ["--artifact", file.to_str().unwrap()];
    let mut args = request("k");
    args.extend(artifact);
    let asked = home.cli_as("planner", &args).ok().json();
    let granted = nonce(&home, text(&asked, "request_id"));
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let go = || {
        let options = [&artifact[..], &["--nonce", &granted]].concat();
        home.cli_as("planner", &run("k", &options, "true"))
    };
    let told = |ran: &Ran, expected: &str| {
        assert_eq!(code(ran), expected, "{ran:?}");
        for word in [hash, "Give the file"] {
            assert!(ran.stderr.contains(word), "{word}: {ran:?}");
        }
        // To approve the same request once more would not help.
        assert!(!ran.stderr.contains("effect approve"), "{ran:?}");
    };
    std::fs::write(&file, "hello, world").unwrap();
    told(&go(), "NONCE_UNBOUND");
    std::fs::write(&file, "hello").unwrap();
    go().ok();
    std::fs::write(&file, "hello, world").unwrap();
    told(&go(), "REPLAY_BINDING_MISMATCH");
}

#[test]
fn an_agent_of_the_members_name_is_an_agent_and_not_the_person() {
    let policy = "[[rule]]\noperation = \"*\"\napproval = \"person\"\napprovers = [\"@bob\"]\n";
    // At home Bob's person is called `me`, and an agent there bears his name in the mesh.
    let pair = pair_with(policy, "me");
    let at = |home: &Home, agent: &str, args: &[&str]| {
        home.cli_as(agent, &[&["--mesh", MESH], args].concat())
    };
    pair.bob.cli(&["agent", "register", "bob"]).ok();
    let id = asked(&pair.alice, "planner", "k");
    let refused = at(&pair.bob, "bob", &["effect", "approve", &id, "--json"]);
    assert_eq!(code(&refused), "APPROVAL_REFUSED", "{refused:?}");
    let alone = at(&pair.bob, "bob", &run("alone", &[], "true"));
    assert_eq!(code(&alone), "APPROVAL_NEEDED", "{alone:?}");
    // It asks as every agent, and its person says yes.
    let own = at(&pair.bob, "bob", &request("own")).ok().json();
    assert_eq!(own["approvers"], json!(["me"]), "{own}");
    let granted = pair.bob(&["effect", "approve", text(&own, "request_id"), "--json"]);
    let granted = granted.ok().json();
    let args = run("own", &["--nonce", text(&granted, "nonce")], "true");
    at(&pair.bob, "bob", &args).ok();
    let view = pair.bob(&["effect", "status", "own", "--json"]).ok().json();
    assert_eq!(text(&view, "requested_by"), "@bob/bob.agent");
    assert_eq!(text(&view["decisions"][0], "by"), "@bob/bob");
    at(&pair.bob, "me", &run("person", &[], "true")).ok();
}

#[test]
fn at_a_broker_of_its_own_an_agent_of_an_owners_name_decides_nothing() {
    let team = Team::on(None);
    let owner = team.cli("team", &["invite", "--role", "owner"]).ok().json();
    let (home, _up) = join("me", "alice", link_of(&owner));
    let at = |agent: &str, args: &[&str]| home.cli_as(agent, &[&["--mesh", "team"], args].concat());
    let asked = at("planner", &request("k")).ok().json();
    let id = text(&asked, "request_id");
    let refused = at("alice", &["effect", "approve", id, "--json"]);
    assert_eq!(code(&refused), "APPROVAL_REFUSED", "{refused:?}");
    let alone = at("alice", &run("alone", &[], "true"));
    assert_eq!(code(&alone), "APPROVAL_NEEDED", "{alone:?}");
    at("me", &["effect", "approve", id, "--json"]).ok();
    at("me", &run("own", &[], "true")).ok();
}
