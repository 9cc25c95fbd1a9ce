//! `heddle reserve`, `release` and `guard` over the real binary and a real git repository.

use crate::support;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::{Home, Ran};

struct Repository {
    home: Home,
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self {
            home: Home::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        repository.git("ann", &["init", "-q"]);
        repository.heddle("ann", &["journal", "init"]).ok();
        repository
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn heddle(&self, agent: &str, args: &[&str]) -> Ran {
        self.heddle_in(self.path(), agent, args)
    }

    fn heddle_in(&self, folder: &Path, agent: &str, args: &[&str]) -> Ran {
        let mut command = self.home.command(args);
        command.env("HEDDLE_AGENT", agent).current_dir(folder);
        Ran::from(command.output().unwrap())
    }

    fn git(&self, agent: &str, args: &[&str]) -> Output {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HEDDLE_HOME", self.home.path())
            .env("HEDDLE_AGENT", agent);
        command.output().unwrap()
    }

    fn stage(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        assert!(self.git("ann", &["add", "--", name]).status.success());
    }

    fn commit(&self, agent: &str) -> Result<(), String> {
        let output = self.git(agent, &["commit", "-q", "-m", "work"]);
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or_else(said)
    }

    fn hook(&self) -> std::path::PathBuf {
        self.path().join(".git/hooks/pre-commit")
    }
}

/// Whoever reads the JSON finds what it finds of any failure, and what is of this one beside it.
#[track_caller]
fn says_as_any_failure(told: &Value, code: &str) {
    assert_eq!(told["code"], code, "{told}");
    for field in ["detail", "next"] {
        assert!(!told[field].as_str().unwrap().is_empty(), "{told}");
    }
}

#[test]
fn a_commit_that_touches_anothers_paths_is_refused_and_says_who_holds_them() {
    let repository = Repository::new();
    repository.heddle("ann", &["guard", "install"]).ok();
    let mine = repository.heddle(
        "ann",
        &["reserve", "src/parser/**", "--ttl", "1h", "--json"],
    );
    assert_eq!(mine.ok().json()["owner"], "ann");
    let held = repository.heddle("bob", &["reserve", "src/**", "--json"]);
    assert_eq!(held.code, 3, "{held:?}");
    assert_eq!(held.json()["held"]["owner"], "ann");
    says_as_any_failure(&held.json(), "conflict");
    repository.stage("docs/a.md", "x");
    repository.commit("bob").unwrap();
    repository.stage("src/parser/odd name;$(touch pwned).rs", "x");
    let told = repository.heddle("bob", &["guard", "check", "--json"]);
    assert!(told.json()["blocked"].is_array(), "{told:?}");
    says_as_any_failure(&told.json(), "failed");
    let refused = repository.commit("bob").unwrap_err();
    for word in ["src/parser/odd name", "ann", "--no-verify"] {
        assert!(refused.contains(word), "{refused}");
    }
    assert!(!repository.path().join("pwned").exists());
    repository.commit("ann").unwrap();
    // Moving a file away touches it as well.
    let moved = ["mv", "src/parser/odd name;$(touch pwned).rs", "free.rs"];
    assert!(repository.git("bob", &moved).status.success());
    assert!(repository.commit("bob").is_err());
    repository.heddle("ann", &["release", "src/parser/**"]).ok();
    repository.commit("bob").unwrap();
    let again = repository.heddle("ann", &["release", "src/parser/**"]);
    assert_eq!(again.code, 4, "{again:?}");
}

#[test]
fn patterns_are_from_where_one_stands_and_hostile_ones_are_refused() {
    let repository = Repository::new();
    let inside = repository.path().join("src");
    std::fs::create_dir(&inside).unwrap();
    let told = repository.heddle_in(&inside, "ann", &["reserve", "*.rs", "--json"]);
    assert_eq!(told.ok().json()["glob"], "src/*.rs");
    let listed = repository.heddle("bob", &["reserve", "--json"]).ok().json();
    assert_eq!(listed["reservations"].as_array().map(Vec::len), Some(1));
    for bad in ["../x", "a//b", ""] {
        let refused = repository.heddle("ann", &["reserve", bad]);
        assert_eq!(refused.code, 2, "{refused:?}");
    }
}

#[test]
fn a_hook_that_is_there_is_never_overwritten() {
    let repository = Repository::new();
    let hook = repository.hook();
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let theirs = "#!/bin/sh\necho theirs >> ran.txt\n[ ! -e refuse ]\n";
    std::fs::write(&hook, theirs).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, mode).unwrap();
    let refused = repository.heddle("ann", &["guard", "install"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("--chain"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&hook).unwrap(), theirs);
    repository
        .heddle("ann", &["guard", "install", "--chain"])
        .ok();
    let kept = hook.with_file_name("pre-commit.before-heddle");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), theirs);
    // Both run: theirs first, and its refusal counts.
    repository.heddle("ann", &["reserve", "src"]).ok();
    repository.stage("a.txt", "x");
    repository.commit("bob").unwrap();
    assert!(repository.path().join("ran.txt").exists());
    repository.stage("src/b.txt", "x");
    assert!(repository.commit("bob").is_err());
    std::fs::write(repository.path().join("refuse"), "").unwrap();
    assert!(repository.commit("ann").is_err());
    let again: Value = repository
        .heddle("ann", &["guard", "install", "--json"])
        .ok()
        .json();
    assert_eq!(again["state"], json!("already there"));
}

/// `git worktree add`: one repository, one journal, whichever checkout one stands in.
#[test]
fn a_linked_worktree_shares_the_reservations_of_its_repository() {
    let repository = Repository::new();
    repository.heddle("ann", &["guard", "install"]).ok();
    repository.stage("src/a.rs", "x");
    repository.commit("ann").unwrap();
    let other = tempfile::tempdir().unwrap();
    let tree = other.path().join("tree");
    let name = tree.to_str().unwrap();
    let added = repository.git("ann", &["worktree", "add", "-q", name, "-b", "side"]);
    assert!(added.status.success(), "{added:?}");
    repository.heddle("ann", &["reserve", "src/**"]).ok();
    std::fs::write(tree.join("src/a.rs"), "y").unwrap();
    let inside = |words: &[&str]| {
        let words: Vec<&str> = ["-C", name].iter().chain(words).copied().collect();
        repository.git("bob", &words)
    };
    assert!(inside(&["add", "src/a.rs"]).status.success());
    let refused = inside(&["commit", "-q", "-m", "work"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("ann"), "{said}");
    // Reserved there, held here; and a pattern is from where one stands there too.
    let told = repository.heddle_in(&tree.join("src"), "bob", &["reserve", "*.rs"]);
    assert_eq!(told.code, 3, "{told:?}");
    repository.heddle("ann", &["release", "src/**"]).ok();
    let told = repository.heddle_in(&tree.join("src"), "bob", &["reserve", "*.rs", "--json"]);
    assert_eq!(told.ok().json()["glob"], "src/*.rs");
    let held = repository.heddle("ann", &["reserve", "src", "--json"]);
    assert_eq!(held.code, 3, "{held:?}");
    assert!(!tree.join(".heddle").exists(), "a second journal");
    let begun = repository.heddle_in(&tree, "bob", &["journal", "init", "--json"]);
    let store = begun.ok().json()["store"].as_str().unwrap().to_owned();
    assert!(!store.starts_with(name), "{store}");
}

#[test]
fn the_guard_says_when_there_is_nothing_to_check_against() {
    let repository = Repository::new();
    repository.heddle("ann", &["guard", "install"]).ok();
    std::fs::remove_dir_all(repository.path().join(".heddle")).unwrap();
    let told = repository.heddle("ann", &["guard", "check"]).ok();
    assert!(told.stderr.contains("nothing was checked"), "{told:?}");
}

#[test]
fn absolute_paths_inside_are_understood_and_others_and_choices_are_refused_with_words() {
    let repository = Repository::new();
    let top = repository.path().canonicalize().unwrap();
    let whole = format!("{}/src/**", top.display());
    let told = repository.heddle("ann", &["reserve", &whole, "--json"]);
    assert_eq!(told.ok().json()["glob"], "src/**");
    for (bad, word) in [("/etc/passwd", "inside"), ("src/{a,b}.rs", "each of them")] {
        let refused = repository.heddle("ann", &["reserve", bad]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(word), "{refused:?}");
    }
}

#[test]
fn a_lost_record_of_a_reservation_stops_a_commit_and_is_never_called_free() {
    let repository = Repository::new();
    repository
        .heddle("bob", &["reserve", "lib/**", "--agent", "bob"])
        .ok();
    repository.stage("lib/a", "1");
    let segment = repository
        .path()
        .join(".heddle/events/seg-00000000000000000001.jsonl");
    std::fs::write(&segment, "").unwrap();
    let told = repository.heddle("carl", &["guard", "check"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("lib/** by bob"), "{told:?}");
    let listed = repository.heddle("carl", &["reserve"]).ok();
    assert!(listed.stdout.contains("bob"), "{listed:?}");
    assert!(
        listed.stderr.contains("heddle journal verify"),
        "{listed:?}"
    );
    // Its file is gone as well: nobody knows what is reserved, and that is what everybody hears.
    std::fs::remove_dir_all(repository.path().join(".heddle/entities/claim")).unwrap();
    let asks: [&[&str]; 3] = [&["guard", "check"], &["reserve"], &["reserve", "lib/q"]];
    for ask in asks {
        let told = repository.heddle("carl", ask);
        assert_eq!(told.code, 1, "{ask:?}: {told:?}");
        assert!(told.stderr.contains("heddle journal verify"), "{told:?}");
    }
}

/// The list of reservations is all that is left of the journal.
#[test]
fn a_list_of_reservations_without_a_journal_stops_a_commit() {
    let repository = Repository::new();
    repository
        .heddle("bob", &["reserve", "lib/**", "--agent", "bob"])
        .ok();
    repository.stage("lib/a", "1");
    let events = repository.path().join(".heddle/events");
    let list = std::fs::read(events.join("reserved.json")).unwrap();
    std::fs::remove_dir_all(&events).unwrap();
    std::fs::remove_dir_all(repository.path().join(".heddle/entities")).unwrap();
    std::fs::create_dir(&events).unwrap();
    std::fs::write(events.join("reserved.json"), list).unwrap();
    let told = repository.heddle("carl", &["guard", "check"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("--accept-gaps"), "{told:?}");
    let accept = ["journal", "verify", "--accept-gaps", "the disk"];
    repository.heddle("carl", &accept).ok();
    repository.heddle("carl", &["guard", "check"]).ok();
}

#[test]
fn a_newline_in_a_name_forges_no_line_of_the_guards_answer() {
    let repository = Repository::new();
    repository.heddle("bob", &["reserve", "lib/**"]).ok();
    repository.stage("lib/a\nnothing is reserved", "1");
    let told = repository.heddle("carl", &["guard", "check"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(
        told.stderr.contains("lib/a\\nnothing is reserved: lib/**"),
        "{told:?}"
    );
    let ttl = repository.heddle("carl", &["reserve", "q", "--ttl", "0s"]);
    assert!(ttl.stderr.contains("from 1s up to 30d"), "{ttl:?}");
}

/// Git takes it away with a branch that has none, or a person does: the reservations are here, and nobody may look past them.
#[test]
fn a_guard_without_journal_json_fails_closed_and_says_how_to_put_it_back() {
    let repository = Repository::new();
    repository.heddle("ann", &["guard", "install"]).ok();
    repository.heddle("ann", &["reserve", "src/**"]).ok();
    repository.stage("src/a.rs", "x");
    let config = repository.path().join(".heddle/journal.json");
    let before = std::fs::read(&config).unwrap();
    std::fs::remove_file(&config).unwrap();
    let refused = repository.commit("bob").unwrap_err();
    for word in ["journal.json is gone", "heddle journal init"] {
        assert!(refused.contains(word), "{refused}");
    }
    for verb in [
        &["guard", "check"][..],
        &["reserve", "src/**"][..],
        &["journal", "verify"][..],
        &["journal", "log"][..],
        &["journal", "migrate", "--mode", "dual"][..],
    ] {
        let told = repository.heddle("bob", verb);
        assert_eq!(told.code, 1, "{told:?}");
        assert!(told.stderr.contains("journal.json is gone"), "{told:?}");
    }
    assert!(!config.exists(), "nobody begins a journal over another");
    let told = repository
        .heddle("bob", &["journal", "init", "--json"])
        .ok();
    assert_eq!(told.json()["entities"], 1, "{told:?}");
    assert_eq!(std::fs::read(&config).unwrap(), before);
    let refused = repository.commit("bob").unwrap_err();
    assert!(refused.contains("ann"), "{refused}");
    // A folder in which nothing was ever recorded is no journal, as before.
    std::fs::remove_dir_all(repository.path().join(".heddle")).unwrap();
    repository.commit("bob").unwrap();
}

/// The words between the last two backticks, as a shell takes them apart.
fn advised(said: &str) -> Vec<String> {
    let command = said.rsplit('`').nth(1).unwrap();
    let words = command.split(' ').skip(1);
    words
        .map(|word| word.trim_matches('\'').to_owned())
        .collect()
}

#[test]
fn the_release_that_is_advised_works_in_the_folder_in_which_it_is_advised() {
    let repository = Repository::new();
    let (src, docs) = (
        repository.path().join("src"),
        repository.path().join("docs"),
    );
    for folder in [&src, &docs] {
        std::fs::create_dir(folder).unwrap();
    }
    for (folder, wanted) in [
        (repository.path(), "src/x/**"),
        (&src, "x/**"),
        (&docs, "../src/x/**"),
    ] {
        repository.heddle_in(&src, "bob", &["reserve", "x/**"]).ok();
        let wanted = if folder == docs {
            let whole = std::fs::canonicalize(repository.path()).unwrap();
            whole.join("src/x/**").to_string_lossy().into_owned()
        } else {
            wanted.to_owned()
        };
        let held = repository.heddle_in(folder, "ann", &["reserve", &wanted]);
        assert_eq!(held.code, 3, "{held:?}");
        // What the list prints, typed where it means something else.
        let wrong = repository.heddle_in(&src, "bob", &["release", "src/x/**"]);
        assert_eq!(wrong.code, 4, "{wrong:?}");
        assert_eq!(advised(&wrong.stderr)[..2], ["release", "x/**"]);
        let words = advised(&held.stderr);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let released = repository.heddle_in(folder, "ann", &words);
        assert!(released.ok().stdout.contains("is free again"));
    }
}

/// What an agent pastes must not give back what another one holds.
#[test]
fn a_release_of_what_another_holds_says_whom_to_ask() {
    let repository = Repository::new();
    repository.heddle("bob", &["reserve", "src/**"]).ok();
    let told = repository.heddle("ann", &["release", "src/**"]);
    assert_eq!(told.code, 4, "{told:?}");
    assert!(
        told.stderr.contains("ask bob for `heddle release"),
        "{told:?}"
    );
    let blocked = repository.heddle("ann", &["reserve", "src/a"]);
    assert_eq!(blocked.code, 3, "{blocked:?}");
}

#[test]
fn a_release_says_free_only_where_nothing_else_holds_the_paths() {
    let repository = Repository::new();
    let claim = json!({
        "scope": "lib/**", "agent": "ann", "kind": "reservation", "status": "claimed",
        "until": "2999-01-01T00:00:00Z",
    });
    let append = |payload: &Value| {
        let payload = payload.to_string();
        let args = ["journal", "append", "--type", "claim", "--id", "rsv_f4"];
        let rest = ["--action", "claim", "--payload", &payload];
        repository.heddle("ann", &[&args[..], &rest].concat())
    };
    let mut endless = claim.clone();
    endless["until"] = json!("garbage");
    let refused = append(&endless);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("`until`"), "{refused:?}");
    append(&claim).ok();
    repository.heddle("ann", &["reserve", "lib/a"]).ok();
    let told = repository.heddle("ann", &["release", "lib/a"]);
    let told = told.ok().stdout.clone();
    assert!(told.contains("not free: ann holds lib/**"), "{told}");
    let told = repository.heddle("ann", &["release", "lib/**"]);
    assert!(told.ok().stdout.contains("is free again"));
    let told = repository.heddle("bob", &["reserve"]);
    assert!(told.ok().stdout.contains("nothing is reserved"));
}
