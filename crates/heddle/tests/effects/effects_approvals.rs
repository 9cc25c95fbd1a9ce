//! What is said about approvals is true: windows that ended, requests that were used, who decided and when, the policy as it
//! is in the file now.

use crate::support;

use support::Home;
use support::effect_file::change;
use support::effect_verbs::{request, run, status, text};

/// An approval whose window is over: written as it would have been then.
fn expired(home: &Home, id: &str) {
    let connection = rusqlite::Connection::open(home.path().join("effects.db")).unwrap();
    let written = connection.execute(
        "INSERT INTO effect_decision (mesh_id, envelope_id, seq, ruling, nonce_hash, purpose,
                                      not_before, expires_at, decided_by, decided_at)
         SELECT mesh_id, envelope_id, 1, 'approved', zeroblob(32), 'register',
                requested_at, requested_at + 1, 'somebody', requested_at
         FROM effect_envelope WHERE envelope_id = ?1",
        [id],
    );
    assert_eq!(written.unwrap(), 1);
    drop(connection);
    // It has no digest: only as a row of before there were any it is somebody's word.
    let of_before = format!(
        "INSERT INTO effect_undigested (mesh_id, table_name, row_id, seq)
         SELECT mesh_id, 'effect_decision', envelope_id, 1 FROM effect_envelope WHERE envelope_id = '{id}'"
    );
    change(home, &of_before);
}

#[test]
fn an_approval_whose_window_is_over_is_expired_and_asking_again_asks_again() {
    let home = Home::new();
    let daemon = home.up();
    let asked = request(&home, "k");
    let id = text(&asked, "request_id").to_owned();
    daemon.stop();
    expired(&home, &id);
    let _daemon = home.up();
    let view = status(&home, "k");
    assert_eq!(
        (view.code, text(&view.json(), "status")),
        (4, "expired"),
        "{view:?}"
    );
    let shown = home.cli(&["effect", "status", "k"]);
    assert!(shown.stdout.contains("heddle effect request"), "{shown:?}");
    assert!(shown.stdout.contains("approved by somebody"), "{shown:?}");
    let tried = home.cli_as("planner", &run("k", &["--nonce", "hn_x"], "true"));
    assert_eq!(tried.code, 6);
    let renewed = request(&home, "k");
    assert_eq!(text(&renewed, "status"), "awaiting_approval");
    assert_eq!(renewed["duplicate"], false);
    assert_ne!(text(&renewed, "request_id"), id);
}

#[test]
fn who_decided_and_when_is_in_status_and_list() {
    let home = Home::new();
    let _daemon = home.up();
    let approved = request(&home, "yes");
    let denied = request(&home, "no");
    home.cli(&["effect", "approve", text(&approved, "request_id"), "--json"])
        .ok();
    home.cli(&["effect", "deny", text(&denied, "request_id"), "--json"])
        .ok();
    let person = text(&home.cli(&["status", "--json"]).json(), "agent").to_owned();
    let list = home.cli(&["effect", "list", "--json"]).ok().json();
    for (key, ruling) in [("yes", "approved"), ("no", "denied")] {
        let view = status(&home, key).json();
        let listed = list["effects"].as_array().unwrap().iter();
        let listed = listed
            .clone()
            .find(|view| text(view, "logical_request_key") == key)
            .unwrap();
        for view in [&view, listed] {
            assert_eq!(text(view, "requested_by"), "planner", "{view}");
            let last = &view["decisions"][0];
            assert_eq!(text(last, "ruling"), ruling, "{view}");
            assert!(person.is_empty() || text(last, "by") == person, "{view}");
            assert!(text(last, "at").ends_with('Z'), "{view}");
        }
        let shown = home.cli(&["effect", "status", key]).stdout;
        assert!(shown.contains(&format!("{ruling} by ")), "{shown}");
        let shown = home.cli(&["effect", "list"]).ok().stdout;
        assert!(shown.contains(&format!("{ruling} by ")), "{shown}");
    }
}

#[test]
fn a_window_is_what_was_asked_for_and_ends_when_it_says() {
    let home = Home::new();
    std::fs::create_dir_all(home.path()).unwrap();
    std::fs::write(home.path().join("effects.toml"), "request_ttl_hours = 1\n").unwrap();
    let _daemon = home.up();
    let asked = request(&home, "k");
    let id = text(&asked, "request_id");
    let odd = home.cli(&["effect", "approve", id, "--window", "90s", "--json"]);
    assert_eq!(odd.code, 2, "{odd:?}");
    assert!(odd.stderr.contains("whole minutes"), "{odd:?}");
    let long = home.cli(&["effect", "approve", id, "--window", "5h", "--json"]);
    assert_eq!(
        text(&long.ok().json(), "expires_at"),
        text(&asked, "expires_at"),
        "a nonce is good for no longer than its request"
    );
}

#[test]
fn a_used_request_gives_no_further_nonce() {
    let home = Home::new();
    let _daemon = home.up();
    let asked = request(&home, "k");
    let id = text(&asked, "request_id");
    let nonce = home.cli(&["effect", "approve", id, "--json"]).ok().json();
    home.cli_as(
        "planner",
        &run("k", &["--nonce", text(&nonce, "nonce")], "true"),
    )
    .ok();
    for option in ["--window=5m", "--compensation"] {
        let late = home.cli(&["effect", "approve", id, option, "--json"]);
        assert_eq!(
            (late.code, text(&late.json(), "code")),
            (3, "EFFECT_STEP_REFUSED"),
            "{option}: {late:?}"
        );
        assert!(late.json()["nonce"].is_null());
    }
    let again = request(&home, "k");
    assert_eq!(
        (text(&again, "status"), again["duplicate"].as_bool()),
        ("closed", Some(true)),
        "what became of it, not that it may be run"
    );
}

#[test]
fn the_policy_is_the_one_in_the_file_now() {
    let home = Home::new();
    let _daemon = home.up();
    let file = home.path().join("effects.toml");
    let rule = |approval: &str, more: &str| {
        format!("[[rule]]\noperation = \"*\"\napproval = \"{approval}\"\n{more}")
    };
    let agent = |key: &str| home.cli_as("planner", &run(key, &[], "true"));
    assert_eq!(agent("a").code, 6);
    std::fs::write(&file, rule("auto", "")).unwrap();
    agent("a").ok();
    std::fs::write(&file, "[[rule]]\noperation = 1\n").unwrap();
    let broken = agent("b");
    assert_eq!(broken.code, 6, "{broken:?}");
    assert!(broken.stderr.contains("effects.toml"), "{broken:?}");
    // What is only looked at is shown all the same.
    status(&home, "a").ok();
    std::fs::write(&file, rule("person", "approvers = [\"planner\"]\n")).unwrap();
    agent("b").ok();
    // The home's own mailboxes under their whole names.
    let member = home.cli(&["mesh", "info", "--json"]).ok().json();
    let member = text(&member, "member").to_owned();
    assert!(!member.is_empty());
    let own = format!("approvers = [\"@{member}/planner\"]\n");
    std::fs::write(&file, rule("person", &own)).unwrap();
    agent("c").ok();
    std::fs::write(&file, rule("person", "approvers = [\"@a b\"]\n")).unwrap();
    assert!(agent("d").stderr.contains("approvers"));
}

/// Of two who ask for one key, what is said to one is not told as what was said to the other.
#[test]
fn the_answer_to_a_denial_is_about_the_request_that_was_denied() {
    let home = Home::new();
    let _daemon = home.up();
    let ask = [
        "effect", "request", "--json", "--key", "k", "--op", "deploy", "--target", "prod",
    ];
    let first = home.cli_as("planner", &ask).ok().json();
    let second = home.cli_as("worker", &ask).ok().json();
    let second = text(&second, "request_id");
    home.cli(&["effect", "approve", second, "--json"]).ok();
    let first = text(&first, "request_id");
    let denied = home.cli(&["effect", "deny", first]).ok();
    assert_eq!(denied.stdout, format!("{first} is denied\n"));
    let revoked = home.cli(&["effect", "deny", second, "--json"]).ok().json();
    assert_eq!(
        (text(&revoked, "status"), text(&revoked, "request_id")),
        ("revoked", second)
    );
    // What is over already names the key where its place was left open.
    let again = home.cli(&["effect", "deny", first]);
    assert_eq!(again.code, 3, "{again:?}");
    assert!(!again.stderr.contains("KEY"), "{again:?}");
}
