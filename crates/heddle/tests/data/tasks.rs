//! Tasks over the real binary: claims that race, leases that run out, crashes, keys, and hostile hands.

use crate::support;

use serde_json::{Value, json};
use support::{Answer, Daemon, Home, Ran, wait_until};

fn post(daemon: &Daemon, verb: &str, body: &Value) -> Answer {
    daemon.http.post(&format!("/v1/task/{verb}"), body)
}

fn under(daemon: &Daemon, id: &str, verb: &str, body: &Value) -> Answer {
    let headers = [("idempotency-key", id)];
    let target = format!("/v1/task/{verb}");
    daemon.http.post_with(&target, &headers, &body.to_string())
}

fn add(daemon: &Daemon, title: &str, blocked_by: &[&str]) -> String {
    let body = json!({"title": title, "blocked_by": blocked_by});
    let added = post(daemon, "create", &body).expect(200);
    assert_eq!(added["task"]["status"], "open");
    added["task"]["id"].as_str().unwrap().to_owned()
}

fn titles(daemon: &Daemon, query: &str) -> Vec<String> {
    let page = daemon
        .http
        .get(&format!("/v1/task/list?{query}"))
        .expect(200);
    let items = page["items"].as_array().unwrap();
    let title = |item: &Value| item["title"].as_str().unwrap().to_owned();
    items.iter().map(title).collect()
}

fn story(daemon: &Daemon, id: &str) -> Value {
    daemon
        .http
        .get(&format!("/v1/task/get?id={id}&agent=onlooker"))
        .expect(200)
}

fn status(daemon: &Daemon, id: &str) -> Value {
    story(daemon, id)["task"]["status"].clone()
}

// --- claims --------------------------------------------------------------------------------------

#[test]
fn two_agents_race_for_a_task_and_one_wins() {
    let home = Home::new();
    let daemon = home.up();
    for round in 0..5 {
        let id = add(&daemon, &format!("race {round}"), &[]);
        let agents: Vec<String> = (0..8).map(|n| format!("agent{n}")).collect();
        let runs: Vec<Ran> = std::thread::scope(|scope| {
            let claim = |agent| home.cli_as(agent, &["task", "claim", &id, "--json"]);
            let racing: Vec<_> = agents
                .iter()
                .map(|agent| scope.spawn(move || claim(agent)))
                .collect();
            racing.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let won: Vec<&Ran> = runs.iter().filter(|ran| ran.code == 0).collect();
        assert_eq!(won.len(), 1, "{runs:?}");
        let winner = won[0].json();
        let holder = winner["task"]["claim"]["by"].clone();
        assert_eq!(
            holder,
            json!(format!("@tester/{}", winner["agent"].as_str().unwrap()))
        );
        for loser in runs.iter().filter(|ran| ran.code != 0) {
            assert_eq!(loser.code, 3, "{loser:?}");
            let problem = loser.json();
            assert_eq!(problem["code"], "task_claimed");
            assert_eq!(problem["status"], 409);
            assert_eq!(problem["holder"], holder);
            assert!(problem["until"].as_str().unwrap() > winner["at"].as_str().unwrap());
            assert!(loser.stderr.contains(holder.as_str().unwrap()), "{loser:?}");
        }
        let story = story(&daemon, &id);
        assert_eq!(
            story["events"].as_array().unwrap().len(),
            1,
            "refused claims leave no op"
        );
    }
}

#[test]
fn a_claim_and_its_fence_survive_kill_9() {
    let home = Home::new();
    let daemon = home.up();
    let id = add(&daemon, "durable", &[]);
    let claimed = post(&daemon, "claim", &json!({"id": id, "agent": "ann"})).expect(200);
    let fence = claimed["fence"].as_u64().unwrap();
    assert_eq!(fence, claimed["stamp"]["lamport"].as_u64().unwrap());
    assert_eq!(claimed["durability"], "local");
    daemon.kill();
    let daemon = home.up();
    let after = story(&daemon, &id)["task"].clone();
    assert_eq!(after["status"], "claimed");
    assert_eq!(after["claim"]["fence"], fence);
    let other = json!({"id": id, "agent": "bob"});
    assert_eq!(
        post(&daemon, "claim", &other).expect(409)["code"],
        "task_claimed"
    );
    let done = json!({"id": id, "fence": fence, "agent": "ann"});
    assert_eq!(
        post(&daemon, "complete", &done).expect(200)["task"]["status"],
        "completed"
    );
    daemon.kill();
    let daemon = home.up();
    assert_eq!(status(&daemon, &id), "completed");
    for verb in ["claim", "complete", "cancel"] {
        let late = post(&daemon, verb, &other).expect(409);
        assert_eq!(late["code"], "task_finished", "{verb}");
        assert_eq!(late["finished_by"], "@tester/ann");
    }
}

#[test]
fn an_expired_lease_is_taken_over_and_the_old_holder_is_refused_and_told() {
    let home = Home::new();
    let daemon = home.up();
    let id = add(&daemon, "slow", &[]);
    let short = json!({"id": id, "agent": "ann", "lease_seconds": 1});
    let old = post(&daemon, "claim", &short).expect(200)["fence"]
        .as_u64()
        .unwrap();
    // Whoever tries often enough gets it when the lease is over: the holder is silent.
    let mut taken = Value::Null;
    wait_until("the lease to run out", || {
        let answer = post(&daemon, "claim", &json!({"id": id, "agent": "bob"}));
        if answer.status == 200 {
            taken = answer.expect(200);
        }
        taken != Value::Null
    });
    let fence = taken["fence"].as_u64().unwrap();
    assert!(fence > old, "fences rise");
    let events: Vec<Value> = story(&daemon, &id)["events"].as_array().unwrap().clone();
    let kinds: Vec<&str> = events
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["claimed", "released", "claimed"]);
    // The old number decides nothing, with the verb of a person, either.
    let done = home.cli_as(
        "ann",
        &["task", "done", &id, "--fence", &old.to_string(), "--json"],
    );
    assert_eq!(done.code, 3, "{done:?}");
    let problem = done.json();
    assert_eq!(problem["code"], "stale_fence");
    assert_eq!(problem["holder"], "@tester/bob");
    // The refusal brought the warning, once.
    let warnings = problem["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0]["type"], "task_lease_expired");
    assert_eq!(warnings[0]["yours"]["lamport"], old);
    assert_eq!(warnings[0]["task_id"], id.as_str());
    assert!(!warnings[0]["next"].as_str().unwrap().is_empty());
    let again = daemon.http.get("/v1/task/list?agent=ann").expect(200);
    assert_eq!(again["warnings"], json!([]));
    let done = json!({"id": id, "fence": fence, "agent": "bob"});
    post(&daemon, "complete", &done).expect(200);
}

#[test]
fn activity_renews_a_lease_and_silence_ends_it() {
    let home = Home::new();
    let daemon = home.up();
    let (busy, idle) = (add(&daemon, "busy", &[]), add(&daemon, "idle", &[]));
    for (id, agent) in [(&busy, "ann"), (&idle, "bob")] {
        let body = json!({"id": id, "agent": agent, "lease_seconds": 3});
        post(&daemon, "claim", &body).expect(200);
    }
    // Bob is silent, and his lease ends by itself; ann reads her memory all the while.
    wait_until("the silent one's lease to end", || {
        daemon.http.get("/v1/memory/recall?agent=ann").expect(200);
        status(&daemon, &idle) == "open"
    });
    assert_eq!(status(&daemon, &busy), "claimed");
    let metrics = daemon.http.get("/v1/metrics").body;
    for outcome in ["renewed", "expired"] {
        let line = format!("heddle_task_leases_total{{outcome=\"{outcome}\"}}");
        assert!(metrics.contains(&line), "{line}");
    }
    // Told with the next answer of any kind, here the inbox.
    let inbox = daemon.http.get("/v1/inbox?agent=bob").expect(200);
    assert_eq!(inbox["warnings"][0]["type"], "task_lease_expired");
    let inbox = daemon.http.get("/v1/inbox?agent=bob").expect(200);
    assert_eq!(inbox["warnings"], json!([]));
    // Renewing leaves no trace in the record (LF-25).
    let record = story(&daemon, &busy)["events"].clone();
    assert_eq!(record.as_array().unwrap().len(), 1);
}

#[test]
fn a_lease_outlives_a_restart_of_the_daemon_no_longer_than_it_lasts() {
    let home = Home::new();
    let daemon = home.up();
    let id = add(&daemon, "left behind", &[]);
    let body = json!({"id": id, "agent": "ann", "lease_seconds": 2});
    post(&daemon, "claim", &body).expect(200);
    daemon.kill();
    let daemon = home.up();
    wait_until("the lease to end", || status(&daemon, &id) == "open");
    assert_eq!(titles(&daemon, "ready=true"), ["left behind"]);
}

#[test]
fn a_cancelled_task_is_told_to_its_holder_once() {
    let home = Home::new();
    let daemon = home.up();
    let id = add(&daemon, "in vain", &[]);
    home.cli_as("ann", &["task", "claim", &id]).ok();
    home.cli_as("bob", &["task", "cancel", &id]).ok();
    let next = home.cli_as("ann", &["remember", "k", "v"]).ok();
    assert!(next.stderr.contains("warning:"), "{next:?}");
    assert!(next.stderr.contains("in vain") && next.stderr.contains("@tester/bob"));
    assert!(next.stderr.contains("next: "));
    let next = home.cli_as("ann", &["task", "list"]).ok();
    assert!(!next.stderr.contains("warning"), "{next:?}");
}

// --- dependencies and lists ----------------------------------------------------------------------

#[test]
fn ready_follows_the_dependencies() {
    let home = Home::new();
    let daemon = home.up();
    let first = add(&daemon, "first", &[]);
    let second = add(&daemon, "second", &[&first]);
    add(&daemon, "third", &[&first, &second]);
    assert_eq!(titles(&daemon, "ready=true"), ["first"]);
    // Whoever takes one that waits is told so; whoever takes one that does not hears nothing of it.
    let waits = |id: &str| {
        let claimed = home.cli(&["task", "claim", id]).ok().stdout;
        home.cli(&["task", "release", id]).ok();
        claimed.contains("it waits for a task that is not finished")
    };
    assert_eq!((waits(&first), waits(&second)), (false, true));
    home.cli(&["task", "claim", &first]).ok();
    assert_eq!(titles(&daemon, "ready=true"), [] as [&str; 0]);
    home.cli(&["task", "done", &first]).ok();
    assert_eq!(titles(&daemon, "ready=true"), ["second"]);
    home.cli(&["task", "cancel", &second]).ok();
    assert_eq!(titles(&daemon, "ready=true"), ["third"]);
    let ready = home.cli(&["task", "ready"]).ok();
    assert!(ready.stdout.contains("third") && !ready.stdout.contains("second"));
    assert_eq!(titles(&daemon, "status=completed"), ["first"]);
    assert_eq!(titles(&daemon, ""), ["first", "second", "third"]);
    // Unknown blockers are refused, and nothing is kept.
    let unknown = "01890000-0000-7000-8000-000000000000";
    let body = json!({"title": "x", "blocked_by": [unknown]});
    let refused = post(&daemon, "create", &body).expect(404);
    assert_eq!(refused["code"], "unknown_task");
    assert!(refused["detail"].as_str().unwrap().contains(unknown));
    assert_eq!(titles(&daemon, "").len(), 3);
}

#[test]
fn lists_are_paged_to_their_end() {
    let home = Home::new();
    let daemon = home.up();
    let all: Vec<String> = (0..7).map(|n| format!("t{n}")).collect();
    for title in &all {
        add(&daemon, title, &[]);
    }
    for query in ["limit=2", "limit=3&ready=true", "limit=7&status=open"] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let target = format!("/v1/task/list?{query}{cursor}");
            let page = daemon.http.get(&target).expect(200);
            let items = page["items"].as_array().unwrap();
            found.extend(
                items
                    .iter()
                    .map(|i| i["title"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["cursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, all, "{query}");
    }
    for bad in [
        "status=done",
        "ready=true&status=claimed",
        "cursor=x",
        "limit=0",
        "colour=red",
    ] {
        daemon.http.get(&format!("/v1/task/list?{bad}")).expect(400);
    }
}

// --- the gate ------------------------------------------------------------------------------------

#[test]
fn the_same_key_lands_once_and_another_request_conflicts() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"title": "once"});
    let first = under(&daemon, "k1", "create", &body).expect(200);
    let id = first["task"]["id"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        let mut again = under(&daemon, "k1", "create", &body).expect(200);
        assert_eq!(again["duplicate"], true);
        again["duplicate"] = json!(false);
        assert_eq!(again, first);
    }
    let other = under(&daemon, "k1", "create", &json!({"title": "twice"})).expect(409);
    assert_eq!(other["code"], "idempotency_key_reused");
    assert_eq!(titles(&daemon, ""), ["once"]);
    let claim = json!({"id": id});
    let first = under(&daemon, "k2", "claim", &claim).expect(200);
    let again = under(&daemon, "k2", "claim", &claim).expect(200);
    assert_eq!(
        (&again["fence"], &again["stamp"]),
        (&first["fence"], &first["stamp"])
    );
    let longer = json!({"id": id, "lease_seconds": 60});
    under(&daemon, "k2", "claim", &longer).expect(409);
    under(&daemon, "k3", "release", &claim).expect(200);
    under(&daemon, "k3", "release", &claim).expect(200);
    // A refusal consumes no key.
    assert_eq!(
        under(&daemon, "k4", "release", &claim).expect(409)["code"],
        "stale_fence"
    );
    under(&daemon, "k5", "claim", &claim).expect(200);
    under(&daemon, "k4", "release", &claim).expect(200);
}

// --- people and hostile hands --------------------------------------------------------------------

#[test]
fn the_verbs_of_a_task_read_well_and_end_with_their_codes() {
    let home = Home::new();
    let _daemon = home.up();
    let empty = home.cli(&["task", "list"]).ok();
    assert!(empty.stdout.contains("heddle task add"));
    let added = home
        .cli(&["task", "add", "write it", "--description", "with care"])
        .ok();
    let id = added.stdout.split(' ').nth(1).unwrap().to_owned();
    let claimed = home
        .cli_as("ann", &["task", "claim", &id, "--lease", "2h"])
        .ok();
    assert!(
        claimed
            .stdout
            .contains(&format!("heddle task done {id} --fence "))
    );
    let shown = home.cli(&["task", "show", &id]).ok();
    for words in ["write it", "with care", "held by @tester/ann", "claimed"] {
        assert!(shown.stdout.contains(words), "{words}: {shown:?}");
    }
    let other = home.cli_as("bob", &["task", "done", &id]);
    assert_eq!(other.code, 3, "{other:?}");
    assert!(other.stderr.contains("@tester/ann"));
    home.cli_as("ann", &["task", "release", &id]).ok();
    // Without a claim: nobody holds it, so it may be done at once.
    home.cli_as("bob", &["task", "done", &id]).ok();
    for unknown in ["nonsense", "01890000-0000-7000-8000-000000000000"] {
        for verb in ["claim", "release", "done", "cancel", "show"] {
            let ran = home.cli(&["task", verb, unknown]);
            assert_eq!(ran.code, 4, "{verb} {unknown}: {ran:?}");
            assert!(ran.stderr.contains("heddle task list"), "{ran:?}");
        }
    }
    for usage in [
        &["task", "claim", &id, "--lease", "0s"][..],
        &["task", "list", "--status", "done"],
        &["task", "add", ""],
    ] {
        assert_eq!(home.cli(usage).code, 2, "{usage:?}");
    }
}

#[test]
fn hostile_titles_are_refused_or_shown_and_never_obeyed() {
    let home = Home::new();
    let daemon = home.up();
    for title in ["", "   ", "a\nb", "a\u{0}b", "\u{1b}[2J", "\u{9b}31m"] {
        let refused = post(&daemon, "create", &json!({"title": title})).expect(400);
        assert_eq!(refused["code"], "invalid_request", "{title:?}");
    }
    let long = "x".repeat(513);
    assert_eq!(
        post(&daemon, "create", &json!({"title": long})).expect(413)["code"],
        "payload_too_large"
    );
    let long = "x".repeat((64 << 10) + 1);
    post(
        &daemon,
        "create",
        &json!({"title": "t", "description": long}),
    )
    .expect(413);
    let many = vec!["01890000-0000-7000-8000-000000000000"; 65];
    post(
        &daemon,
        "create",
        &json!({"title": "t", "blocked_by": many}),
    )
    .expect(400);
    for bad in [
        json!({"title": 7}),
        json!({"title": "t", "colour": "red"}),
        json!({"title": "t", "blocked_by": "x"}),
        json!([]),
    ] {
        post(&daemon, "create", &bad).expect(400);
    }
    assert!(titles(&daemon, "").is_empty());
    let hostile = "'); DROP TABLE tasks;-- \u{202e}evil {} %s <script>";
    let id = add(&daemon, hostile, &[]);
    assert_eq!(story(&daemon, &id)["task"]["title"], hostile);
    for args in [
        &["task", "list"][..],
        &["task", "show", &id],
        &["task", "claim", &id],
    ] {
        let ran = home.cli(args).ok();
        assert!(!ran.stdout.contains('\u{202e}'), "{ran:?}");
        assert!(ran.stdout.contains("DROP TABLE"));
    }
    for bad in [
        json!({"id": id, "lease_seconds": 0}),
        json!({"id": id, "lease_seconds": u64::MAX}),
        json!({"id": id, "lease_seconds": -1}),
        json!({"id": id, "fence": 1}),
        json!({}),
    ] {
        post(&daemon, "claim", &bad).expect(400);
    }
    post(&daemon, "complete", &json!({"id": id, "fence": -1})).expect(400);
    let huge = post(
        &daemon,
        "complete",
        &json!({"id": id, "fence": (1_u64 << 53) - 1}),
    );
    assert_eq!(huge.expect(409)["code"], "stale_fence");
}

#[test]
fn the_title_of_a_413_is_true_of_a_title_of_some_hundred_bytes() {
    let home = Home::new();
    let daemon = home.up();
    let body = json!({"title": "x".repeat(513)});
    let refused = daemon.http.post("/v1/task/create", &body).expect(413);
    assert!(!refused["title"].as_str().unwrap().contains("1 MB"));
    assert!(
        refused["detail"].as_str().unwrap().contains("512"),
        "{refused}"
    );
    daemon.stop();
}
