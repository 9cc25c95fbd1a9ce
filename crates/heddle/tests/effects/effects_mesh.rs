//! Effects of a mesh with two homes: the home that hosts it decides, whoever asks.

use crate::support;

use std::process::Stdio;

use serde_json::json;
use support::effect_pair::{MESH, Pair, pair, request, run};
use support::effect_proxy::Moment::After;
use support::effect_proxy::{kill_at, said};
use support::pasted::{commands, pasted};
use support::{Ran, wait_until};

#[test]
fn the_host_approves_and_the_second_home_gets_the_winners_result() {
    let pair = pair("");
    let side = pair.alice.path().with_file_name("side");
    let script = format!("echo x >> {}; echo deployed", side.display());
    let early = pair.bob(&run("k", &[], &script));
    assert_eq!(
        (early.code, early.json()["code"].as_str()),
        (6, Some("APPROVAL_NEEDED")),
        "{early:?}"
    );
    let asked = pair.bob(&request("k")).ok().json();
    assert_eq!(asked["status"], "awaiting_approval");
    let id = asked["request_id"].as_str().unwrap();
    // Bob is no one's approver here, though he is the person of his own home.
    let own = pair.bob(&["effect", "approve", id, "--json"]);
    assert_eq!(
        (own.code, own.json()["code"].as_str()),
        (6, Some("APPROVAL_REFUSED"))
    );
    let list = pair.alice.cli(&["effect", "list", "--json"]).ok().json();
    assert_eq!(list["effects"][0]["request_id"], id);
    let granted = pair
        .alice
        .cli(&["effect", "approve", id, "--json"])
        .ok()
        .json();
    let nonce = granted["nonce"].as_str().unwrap();
    let ran = pair.bob(&run("k", &["--nonce", nonce], &script)).ok();
    assert_eq!(
        (said(&ran).as_str(), ran.json()["duplicate"].as_bool()),
        ("closed", Some(false))
    );
    let second = pair.alice.cli(&run("k", &[], &script)).ok();
    assert_eq!(
        (
            second.json()["duplicate"].as_bool(),
            second.json()["stdout"].as_str()
        ),
        (Some(true), Some("deployed\n"))
    );
    assert_eq!(second.json()["registration"], ran.json()["registration"]);
    let third = pair.bob(&run("k", &[], &script)).ok();
    assert_eq!(third.json()["code"], "REPLAY_DUPLICATE");
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    // The same key in Bob's own mesh is another matter.
    assert_eq!(pair.bob.cli(&["effect", "status", "k"]).code, 4);
    let story = pair.bob(&["explain", "effect:k", "--json"]).ok().json();
    let told = story["story"].to_string();
    for word in [
        "@bob/bob",
        "refused decide",
        "APPROVAL_NEEDED",
        "registered",
        "alice",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert_eq!(story["mesh"], MESH);
    assert!(!told.contains(nonce));
    let log = pair.bob(&["effect", "log", "--json"]).ok();
    assert!(!log.json()["lines"].as_array().unwrap().is_empty());
    assert_eq!(
        pair.bob(&["effect", "surface-check", "--json"]).ok().json()["fit"],
        true
    );
}

#[test]
fn rg_14_32_runs_in_two_homes_at_once_make_one_effect_and_one_answer() {
    let pair = pair("[[rule]]\noperation = \"*\"\napproval = \"auto\"\n");
    let side = pair.alice.path().with_file_name("side");
    let script = format!("echo x >> {}; echo $HEDDLE_EFFECT_ATTEMPT", side.display());
    let (pair, script) = (&pair, script.as_str());
    let ran: Vec<Ran> = std::thread::scope(|scope| {
        let racing: Vec<_> = (0..32)
            .map(|nth| {
                scope.spawn(move || match nth % 2 {
                    0 => pair.alice.cli(&run("race", &[], script)),
                    _ => pair.bob(&run("race", &[], script)),
                })
            })
            .collect();
        racing.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
    let mut won = 0;
    for one in &ran {
        assert_eq!(one.code, 0, "{one:?}");
        assert_eq!(one.json()["stdout"], ran[0].json()["stdout"]);
        assert_eq!(one.json()["registration"], ran[0].json()["registration"]);
        won += usize::from(one.json()["duplicate"] == false);
    }
    assert_eq!(won, 1);
}

#[test]
fn a_request_waits_for_the_broker_and_nothing_runs_meanwhile() {
    let mut pair = pair("");
    pair.up.0.take().unwrap().stop();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "k", "--json"]).code == 5
    });
    let side = pair.alice.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let refused = pair.bob(&run("k", &[], &script));
    assert_eq!(
        (refused.code, refused.json()["code"].as_str()),
        (5, Some("not_connected")),
        "{refused:?}"
    );
    assert!(!side.exists(), "nothing is assumed");
    let asked = pair.bob(&request("k")).ok().json();
    assert_eq!(asked["status"], "waiting_for_broker");
    let again = pair
        .bob(&[
            "effect", "request", "--key", "k", "--op", "deploy", "--target", "prod",
        ])
        .ok();
    assert!(again.stdout.contains("waits for the broker"), "{again:?}");
    let status = pair.bob(&["effect", "status", "k", "--json"]);
    assert_eq!(
        (status.code, &status.json()["status"]),
        (5, &json!("waiting_for_broker")),
        "that it waits is the answer, and nobody here knows whether the key was used: {status:?}"
    );
    assert_eq!(status.json()["state"], "unknown");
    assert_eq!(status.json()["target"], "prod");
    // The whole story is that it waits, with its mesh said or not.
    for told in [
        pair.bob(&["explain", "k", "--json"]),
        pair.bob.cli(&["explain", "effect:k", "--json"]),
    ] {
        let story = told.ok().json();
        assert_eq!(
            (&story["effect"]["status"], &story["mesh"]),
            (&json!("waiting_for_broker"), &json!(MESH))
        );
        assert_eq!(story["story"][0]["by"], "bob");
    }
    let words = pair.bob(&["explain", "k"]).ok().stdout;
    assert!(
        words.contains("when the broker of the mesh is back"),
        "{words}"
    );
    // It survives both homes.
    pair.up.1.terminate();
    pair.up.1.wait(std::time::Duration::from_secs(15));
    pair.up.1 = pair.bob.up();
    pair.up.0 = Some(pair.alice.up());
    let arrived = || pair.alice.cli(&["effect", "list", "--json"]).ok().json();
    wait_until("the request to arrive", || {
        let list = arrived();
        list["effects"][0]["status"] == "awaiting_approval"
    });
    assert_eq!(
        arrived()["effects"].as_array().unwrap().len(),
        1,
        "asked once"
    );
    pair.wait_connected();
    let known = pair.bob(&["effect", "status", "k", "--json"]);
    assert_eq!(
        (known.code, known.json()["status"].as_str()),
        (4, Some("awaiting_approval"))
    );
}

/// The home that ran it, whoever else has not heard of it.
fn says_what_it_has_seen(pair: &Pair, ran: &Ran) {
    let next = ran.json()["next"].clone();
    assert!(next.to_string().contains("told by itself"), "{ran:?}");
    let seen = pair.bob(&["effect", "status", "k", "--json"]);
    let told = seen.json();
    assert_eq!(
        (seen.code, &told["exit_code"], &told["stdout"]),
        (5, &json!(0), &json!("deployed\n")),
        "{seen:?}"
    );
    let story = pair.bob(&["explain", "k"]).ok();
    assert!(story.stdout.contains("exit code 0; kept here"), "{story:?}");
}

#[test]
fn the_end_of_a_command_is_told_when_the_broker_is_back() {
    let mut pair = pair("[[rule]]\noperation = \"*\"\napproval = \"auto\"\n");
    let side = pair.alice.path().with_file_name("side");
    let go = pair.alice.path().with_file_name("go");
    let script = format!(
        "echo x >> {}; while [ ! -e {} ]; do sleep 0.05; done; echo deployed",
        side.display(),
        go.display()
    );
    let args = [&["--mesh", MESH], run("k", &[], &script).as_slice()].concat();
    let child = pair
        .bob
        .command(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the side effect", || side.exists());
    let running = pair
        .alice
        .cli(&["effect", "status", "k", "--json"])
        .ok()
        .json();
    assert_eq!(
        (running["status"].as_str(), running["runs_at"].as_str()),
        (Some("running"), Some("@bob/bob"))
    );
    // Only Bob's home knows whether it still runs.
    let elsewhere = pair.alice.cli(&run("k", &["--resolve"], &script));
    assert_eq!(
        (elsewhere.code, elsewhere.json()["code"].as_str()),
        (3, Some("EFFECT_STEP_REFUSED")),
        "{elsewhere:?}"
    );
    pair.up.0.take().unwrap().kill();
    wait_until("bob to notice", || {
        pair.bob(&["effect", "status", "k", "--json"]).code == 5
    });
    std::fs::write(&go, "").unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(
        (ran.code, &ran.json()["waiting"]),
        (5, &json!(true)),
        "{ran:?}"
    );
    assert_eq!(
        (said(&ran).as_str(), ran.json()["exit_code"].as_i64()),
        ("waiting_for_broker", Some(0))
    );
    says_what_it_has_seen(&pair, &ran);
    pair.up.0 = Some(pair.alice.up());
    let status = || {
        pair.alice
            .cli(&["effect", "status", "k", "--json"])
            .ok()
            .json()
    };
    wait_until("the end to be told", || status()["status"] == "closed");
    assert_eq!(status()["stdout"], "deployed\n");
    pair.wait_connected();
    let again = pair.bob(&run("k", &[], &script)).ok();
    assert_eq!(
        (said(&again).as_str(), again.json()["stdout"].as_str()),
        ("closed", Some("deployed\n"))
    );
    assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
}

#[test]
fn a_runner_that_died_in_another_home_is_unknown_there_and_resolved_by_the_host() {
    let pair = pair("[[rule]]\noperation = \"*\"\napproval = \"auto\"\n");
    let side = pair.alice.path().with_file_name("side");
    let script = format!("echo x >> {}", side.display());
    let args = [&["--mesh", MESH], run("k", &[], &script).as_slice()].concat();
    kill_at(&pair.bob, After, "/v1/effect/start", &args);
    let at_bob = pair.bob(&["effect", "status", "k", "--json"]).ok();
    assert_eq!(said(&at_bob), "unknown");
    assert_eq!(
        said(&pair.alice.cli(&["effect", "status", "k", "--json"]).ok()),
        "running"
    );
    // Whoever looks at it there is told the one command that helps, which is the host's.
    for told in [
        pair.bob(&run("k", &[], &script)),
        pair.bob(&["effect", "verify", "k", "--pass"]),
    ] {
        assert_eq!(told.code, 3, "{told:?}");
        assert!(told.stderr.contains("--resolve=done --force"), "{told:?}");
    }
    let told = pair.bob(&["effect", "status", "k"]).ok();
    assert!(told.stdout.contains("--resolve=done --force"), "{told:?}");
    let not_sure = pair.alice.cli(&run("k", &["--resolve=done"], &script));
    assert_eq!(not_sure.code, 3, "{not_sure:?}");
    let word = pair
        .alice
        .cli(&run("k", &["--resolve=done", "--force"], &script))
        .ok();
    assert_eq!(said(&word), "closed");
    assert_eq!(said(&pair.bob(&run("k", &[], &script)).ok()), "closed");
    assert!(!side.exists(), "nobody ran it");
}

/// What either home prints about the other's is run there as it is: the name of the mesh is another one there.
#[test]
fn rg_18_what_helps_is_named_in_both_homes_and_can_be_pasted_where_it_is_to_be_run() {
    let pair = pair("[[rule]]\noperation = \"*\"\napproval = \"auto\"\n");
    let args = [&["--mesh", MESH], run("k", &[], "true").as_slice()].concat();
    kill_at(&pair.bob, After, "/v1/effect/start", &args);
    // The guest knows that its runner is gone: whose word is waited for, and their command.
    let told = pair.bob(&["effect", "status", "k"]).ok().stdout;
    assert!(told.contains("(@alice)"), "{told}");
    let words = commands(&told);
    assert!(words.iter().all(|word| !word.contains(MESH)), "{words:?}");
    let word = words.iter().find(|it| it.contains("--resolve=done"));
    let word = word.unwrap_or_else(|| panic!("{told}")).clone();
    // The host cannot know it, and says who does and what helps when nobody answers there.
    let told = pair.alice.cli(&["effect", "status", "k"]).ok().stdout;
    assert!(told.contains("only the home of @bob/bob knows"), "{told}");
    let words = commands(&told);
    let look = pasted(&pair.bob, &words[0]).ok().stdout;
    assert!(look.contains("unknown"), "{words:?}: {look}");
    assert!(words[1].contains("--resolve=done --force"), "{words:?}");
    let waits = pair
        .alice
        .cli(&[run("k", &["--wait", "1s"], "true").as_slice()].concat());
    assert_eq!(waits.code, 3, "{waits:?}");
    assert!(waits.stderr.contains("--resolve=done --force"), "{waits:?}");
    let json = pair.alice.cli(&["effect", "status", "k", "--json"]).ok();
    assert_eq!(json.json()["runs_elsewhere"], true, "{json:?}");
    // A verifier is not asked about what has not ended.
    let side = pair.alice.path().with_file_name("asked");
    let check = format!("echo x >> {}", side.display());
    let early = pair
        .alice
        .cli(&["effect", "verify", "k", "--command", &check]);
    assert_eq!((early.code, side.exists()), (3, false), "{early:?}");
    pasted(&pair.alice, &word).ok();
    assert_eq!(
        said(&pair.bob(&["effect", "status", "k", "--json"]).ok()),
        "closed"
    );
    // What failed at the guest's: who makes up for it, and how.
    let failed = pair.bob(&run("f", &["--verify", "false"], "true"));
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("(@alice)"), "{failed:?}");
    let words = commands(&failed.stderr);
    let make_up = words.iter().find(|it| it.contains("compensate"));
    let make_up = make_up.unwrap_or_else(|| panic!("{failed:?}"));
    pasted(&pair.alice, &make_up.replace("COMMAND", "true")).ok();
    // Who may not approve is told who may.
    let asked = pair.bob(&request("asked")).ok().json();
    assert_eq!(asked["status"], "approved", "nobody is asked here");
    let policy = pair.alice.path().join("effects.toml");
    std::fs::write(policy, "").unwrap();
    let asked = pair.bob(&request("asks")).ok().json();
    let id = asked["request_id"].as_str().unwrap();
    let refused = pair.bob(&["effect", "approve", id]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.stderr.contains("@alice may"), "{refused:?}");
}

#[test]
fn a_member_that_was_shut_out_registers_nothing() {
    let pair = pair("[[rule]]\noperation = \"*\"\napproval = \"auto\"\n");
    pair.alice.cli(&["mesh", "revoke", "bob", "--json"]).ok();
    wait_until("bob to be cut", || {
        pair.bob(&["effect", "status", "k", "--json"]).code == 5
    });
    assert_eq!(pair.bob(&run("k", &[], "true")).code, 5);
    assert_eq!(pair.alice.cli(&["effect", "status", "k"]).code, 4);
}

#[test]
fn approvers_of_another_home_are_named_in_the_policy_of_the_host() {
    let pair = pair("[[rule]]\noperation = \"*\"\napproval = \"always\"\napprovers = [\"@bob\"]\n");
    let asked = pair.alice.cli(&request("k")).ok().json();
    let id = asked["request_id"].as_str().unwrap();
    assert_eq!(pair.alice.cli(&["effect", "approve", id]).code, 6);
    let granted = pair.bob(&["effect", "approve", id, "--json"]).ok().json();
    let nonce = granted["nonce"].as_str().unwrap();
    let ran = pair.alice.cli(&run("k", &["--nonce", nonce], "true")).ok();
    assert_eq!(said(&ran), "closed");
    let story = pair.alice.cli(&["explain", "k", "--json"]).ok().json();
    let approved = story["story"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["what"] == "approved")
        .unwrap();
    assert_eq!(approved["by"], "@bob/bob");
}
