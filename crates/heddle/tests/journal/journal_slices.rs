//! `heddle journal export-slice` and `import-slice` between two repositories, over the real binary.

use crate::support;

use std::process::Stdio;

use serde_json::{Value, json};
use support::Ran;
use support::repository::Repository;

/// A repository with a journal.
fn begun() -> Repository {
    let repository = Repository::new();
    repository.journal(&["init"]).ok();
    repository
}

/// Exports into a file of its own name.
fn export(from: &Repository, name: &str, more: &[&str]) -> (String, Value) {
    let file = from.at(name).display().to_string();
    let words = ["export-slice", "--out", &file];
    let told = from.journal_json(&[&words[..], more].concat());
    (file, told)
}

fn show(of: &Repository, item_type: &str, id: &str) -> Value {
    of.journal_json(&["show", item_type, id])
}

#[test]
fn jn_36_two_repositories_exchange_slices_and_a_conflict_is_shown_with_both_images() {
    let (a, b) = (begun(), begun());
    a.append("e", &json!({"title": "begun"}));
    let (file, told) = export(&a, "one.slice", &[]);
    assert_eq!(
        (&told["records"], &told["more"]),
        (&json!(1), &json!(false))
    );
    let origin = told["origin_id"].as_str().unwrap().to_owned();
    let taken = b.journal_json(&["import-slice", &file]);
    assert_eq!(
        (&taken["applied"], &taken["origin_id"]),
        (&json!(1), &json!(origin))
    );
    assert_eq!(show(&b, "plan", "e")["payload"]["title"], "begun");
    a.append("e", &json!({"title": "by a"}));
    b.append("e", &json!({"title": "by b"}));
    let since = told["seq_range"][1].to_string();
    let (second, _) = export(&a, "two.slice", &["--since", &since]);
    let (back, _) = export(&b, "back.slice", &[]);
    let at_b = b.journal_json(&["import-slice", &second]);
    let at_a = a.journal_json(&["import-slice", &back]);
    assert_eq!(at_a["conflicts"], at_b["conflicts"]);
    let id = at_a["conflicts"][0].as_str().unwrap();
    for repository in [&a, &b] {
        let candidate = show(repository, "candidate", id)["payload"].clone();
        let title = |n: usize| candidate["images"][n]["document"]["title"].clone();
        let mut titles = [title(0), title(1)];
        titles.sort_by_key(ToString::to_string);
        assert_eq!(titles, [json!("by a"), json!("by b")]);
        assert_eq!(repository.journal_json(&["verify"])["ok"], true);
    }
    let winner = show(&a, "plan", "e");
    assert_eq!(winner["payload"], show(&b, "plan", "e")["payload"]);
    assert_eq!(winner["entity_rev"], 2);
    // In words: what happened, and how to look at it.
    let words = b.journal(&["import-slice", &second]).ok();
    assert!(words.stdout.contains("1 known"), "{words:?}");
}

#[test]
fn a_slice_file_is_for_its_owner_holds_nothing_private_and_is_never_overwritten() {
    let a = begun();
    let inside = a.path().join("src/lib.rs").display().to_string();
    a.append(
        "x",
        &json!({"title": format!("{inside} and /home/tester/secret"), "pid": 4711}),
    );
    let (file, told) = export(&a, "x.slice", &[]);
    assert!(told["stripped"].as_u64().unwrap() >= 3, "{told}");
    let text = std::fs::read_to_string(&file).unwrap();
    let folder = a.path().display().to_string();
    for private in ["tester", "4711", "/home", folder.as_str()] {
        assert!(!text.contains(private), "{private} in {text}");
    }
    assert!(text.contains("src/lib.rs and <path>"), "{text}");
    let mode = {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(&file).unwrap().permissions().mode()
    };
    assert_eq!(mode & 0o777, 0o600);
    let again = a.journal(&["export-slice", "--out", &file]);
    assert_eq!(again.code, 3, "{again:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn a_slice_goes_through_a_pipe_and_a_broken_or_own_one_is_refused_with_a_sentence() {
    let (a, b) = (begun(), begun());
    a.append("x", &json!({"title": "t"}));
    let slice = a.journal(&["export-slice", "--out", "-"]).ok().stdout;
    let import = |bytes: &[u8]| {
        use std::io::Write;
        let mut command = b.home.command(&["journal", "import-slice", "-", "--json"]);
        let command = command.current_dir(b.path());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        Ran::from(child.wait_with_output().unwrap())
    };
    let cut = import(&slice.as_bytes()[..slice.len() - 9]);
    assert_eq!(cut.code, 2, "{cut:?}");
    assert!(cut.stderr.contains("nothing was taken in"), "{cut:?}");
    assert_eq!(b.journal(&["show", "plan", "x"]).code, 4);
    assert_eq!(import(slice.as_bytes()).ok().json()["applied"], 1);
    let (own, _) = export(&a, "own.slice", &[]);
    let refused = a.journal(&["import-slice", &own]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--new-origin"), "{refused:?}");
    assert_eq!(a.journal(&["import-slice", "no-such-file"]).code, 2);
    let (_, renewed) = export(&a, "new.slice", &["--new-epoch"]);
    assert_eq!(renewed["origin_epoch"], 2);
}

#[test]
fn c15_a_redaction_travels_with_the_next_slice() {
    let (a, b) = (begun(), begun());
    a.append("s", &json!({"title": "CANARY-7f3a9c-4711"}));
    let (first, told) = export(&a, "one.slice", &[]);
    b.journal_json(&["import-slice", &first]);
    let redact = ["doctor", "redact", "--item", "s", "--reason", "asked for"];
    let mut command = a.home.command(&redact);
    Ran::from(command.current_dir(a.path()).output().unwrap()).ok();
    let since = told["seq_range"][1].to_string();
    let (second, _) = export(&a, "two.slice", &["--since", &since]);
    let taken = b.journal_json(&["import-slice", &second]);
    assert_eq!(
        (&taken["erased"], &taken["leftovers"]),
        (&json!(1), &json!([]))
    );
    assert_eq!(b.journal(&["show", "plan", "s"]).code, 4);
    b.journal_json(&["import-slice", &first]);
    assert_eq!(
        b.journal(&["show", "plan", "s"]).code,
        4,
        "it does not come back"
    );
    assert_eq!(b.journal_json(&["verify"])["ok"], true);
}
