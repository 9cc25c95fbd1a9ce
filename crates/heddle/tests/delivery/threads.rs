//! Reply threads over the real binary: both sides, by the id of any of their messages.

use crate::support;

use serde_json::json;
use support::Home;

#[test]
fn a_thread_is_listed_with_both_sides_by_the_id_of_any_of_its_messages() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["agent", "register", "ann"]).ok();
    home.cli(&["agent", "register", "bob"]).ok();
    let say = |from: &str, to: &str, id: &str, reply_to: &str| {
        let mut args = vec!["send", to, id, "--id", id, "--agent", from];
        args.push("--wait=delivered");
        if !reply_to.is_empty() {
            args.extend(["--reply-to", reply_to]);
        }
        home.cli(&args).ok();
    };
    say("bob", "@ann", "q1", "");
    say("ann", "@bob", "a1", "q1");
    say("bob", "@ann", "q2", "a1");
    say("ann", "@bob", "a2", "q2");
    say("ann", "@bob", "apart", "");
    home.cli_as("bob", &["inbox", "--ack"]).ok();
    for id in ["q1", "a1", "q2", "a2"] {
        let page = daemon
            .http
            .get(&format!("/v1/inbox/thread?agent=bob&id={id}"))
            .expect(200);
        let items = page["items"].as_array().unwrap();
        let told: Vec<(&str, bool)> = items
            .iter()
            .map(|one| {
                (
                    one["message"]["client_message_id"].as_str().unwrap(),
                    one["sent"].as_bool().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [("q1", true), ("a1", false), ("q2", true), ("a2", false)],
            "{page}"
        );
        assert_eq!(page["more"], false);
    }
    let page = daemon
        .http
        .get("/v1/inbox/thread?agent=bob&id=q1&limit=2")
        .expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 2, "{page}");
    assert_eq!(
        (
            &page["items"][1]["message"]["client_message_id"],
            &page["more"]
        ),
        (&json!("a2"), &json!(true))
    );
    daemon
        .http
        .get("/v1/inbox/thread?agent=bob&id=nobody")
        .expect(404);
    let words = home.cli_as("ann", &["inbox", "--thread", "a2"]).ok().stdout;
    for line in [
        "q1  @tester/bob → @ann",
        "a1  @tester/ann → @bob",
        "re q1",
        "re q2",
    ] {
        assert!(words.contains(line), "{line}: {words}");
    }
    assert!(!words.contains("apart"), "{words}");
    assert_eq!(home.cli(&["inbox", "--thread", "nobody"]).code, 4);
}
