//! Requests under a key of their caller's: the same again has no second effect and gets the first answer.

use crate::support;

use serde_json::{Value, json};
use support::repository::Repository;

#[test]
fn an_idempotency_key_makes_a_second_call_the_first_and_refuses_another_one() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    let once = |title: &str, key: &str| {
        let payload = json!({"title": title}).to_string();
        let words = [
            "append",
            "--type",
            "plan",
            "--id",
            "p",
            "--action",
            "create",
            "--payload",
            &payload,
            "--idempotency-key",
            key,
            "--json",
        ];
        repository.journal(&words)
    };
    let first = once("one", "k1").ok().json();
    assert_eq!((&first["seq"], first.get("duplicate")), (&json!(1), None));
    repository.append("p", &json!({"title":"another's"}));
    let mut again = once("one", "k1").ok().json();
    assert_eq!(again["duplicate"], true);
    again.as_object_mut().unwrap().remove("duplicate");
    assert_eq!(again, first, "the very answer of before");
    let refused = once("two", "k1");
    assert_eq!(refused.code, 3, "{refused:?}");
    let told = &refused.stderr;
    assert!(told.contains("k1") && told.contains("fresh id"), "{told}");
    let shown = repository.journal_json(&["show", "plan", "p"]);
    assert_eq!(
        (&shown["entity_rev"], &shown["payload"]["title"]),
        (&json!(2), &json!("another's"))
    );
    // Several at once, as an agent that lost patience: one record.
    let told: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| once("at once", "k2").ok().json()))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let fresh = told.iter().filter(|told| told.get("duplicate").is_none());
    assert_eq!(fresh.count(), 1, "{told:?}");
    assert!(told.iter().all(|one| one["seq"] == 3), "{told:?}");
    let text = repository.journal(&[
        "append",
        "--type",
        "plan",
        "--id",
        "p",
        "--action",
        "create",
        "--payload",
        r#"{"title":"at once"}"#,
        "--idempotency-key",
        "k2",
    ]);
    assert!(text.ok().stdout.contains("nothing was recorded now"));
    assert_eq!(repository.journal_json(&["verify"])["records"], 3);
}

#[test]
fn a_reservation_under_a_key_is_taken_and_given_back_once() {
    let repository = Repository::new();
    repository.journal(&["init"]).ok();
    let key = |key: &'static str| ["--idempotency-key", key];
    let reserve = [&["reserve", "src/**"][..], &key("k1")].concat();
    let first = repository.json(&reserve);
    assert_eq!(first.get("duplicate"), None);
    let again = repository.json(&reserve);
    assert_eq!(
        (&again["duplicate"], &again["expires_at"]),
        (&json!(true), &first["expires_at"])
    );
    let release = [&["release", "src/**"][..], &key("k2")].concat();
    repository.run(&release).ok();
    let told = repository.run(&release).ok();
    assert!(
        told.stdout.contains("nothing was given back now"),
        "{told:?}"
    );
    let told = repository.run(&reserve).ok();
    assert!(told.stdout.contains("nothing was taken now"), "{told:?}");
    let held = repository.json(&["reserve"]);
    assert_eq!(held["reservations"], json!([]), "taken by a late retry");
    let other = [&["reserve", "docs"][..], &key("k1")].concat();
    let refused = repository.run(&other);
    assert_eq!(refused.code, 3, "{refused:?}");
    let bare = repository.run(&["reserve", "--idempotency-key", "k9"]);
    assert_eq!(bare.code, 2, "{bare:?}");
}

/// The record that answered it is damaged: the retry of an old request must not write over what is newer.
#[test]
fn a_key_whose_record_is_damaged_is_not_free_and_the_answer_says_what_to_do() {
    let repository = Repository::new();
    repository.journal_json(&["init"]);
    let words = [
        "append",
        "--type",
        "plan",
        "--id",
        "p",
        "--action",
        "create",
        "--payload",
        r#"{"title":"old"}"#,
        "--idempotency-key",
        "k1",
        "--json",
    ];
    repository.journal(&words).ok();
    repository.append("p", &json!({"title": "newer"}));
    repository.append("q", &json!({"title": "another"}));
    let sound = std::fs::read_to_string(repository.segment()).unwrap();
    let damaged = sound.replacen(r#""title":"old""#, r#""title":"olc""#, 1);
    assert_ne!(sound, damaged);
    std::fs::write(repository.segment(), &damaged).unwrap();
    for _ in 0..2 {
        let told = repository.journal(&words);
        assert_eq!(told.code, 1, "{told:?}");
        let said = &told.stderr;
        assert!(said.contains("the record of seq 1 is lost"), "{said}");
        assert!(said.contains("heddle journal verify"), "{said}");
    }
    assert_eq!(
        std::fs::read_to_string(repository.segment()).unwrap(),
        damaged,
        "nothing was written"
    );
    let shown = repository.journal_json(&["show", "plan", "p"]);
    assert_eq!(shown["payload"]["title"], "newer");
    repository.append("q", &json!({"title": "goes on without a key"}));
}
