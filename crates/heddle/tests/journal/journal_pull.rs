//! `git pull` between two clones that each have a journal: what git brings is told, never becomes this store's truth, and is
//! taken in by the commands that are advised. With the real git.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::{Home, Ran};

struct Team {
    home: Home,
    folder: tempfile::TempDir,
}

impl Team {
    /// A bare repository, ann's clone with a journal, and bob's, which has recorded something of his own.
    fn new() -> Self {
        let team = Self {
            home: Home::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        let top = team.folder.path();
        git(top, &["init", "-q", "--bare", "-b", "main", "hub.git"]);
        git(top, &["clone", "-q", "hub.git", "ann"]);
        let ann = team.of("ann");
        git(&ann, &["checkout", "-q", "-b", "main"]);
        team.ok(&ann, &["journal", "init"]);
        team.put(&ann, "p1", "begun");
        team.put(&ann, "p2", "begun");
        team.ok(&ann, &["journal", "checkpoint"]);
        share(&ann);
        git(top, &["clone", "-q", "hub.git", "bob"]);
        let bob = team.of("bob");
        team.put(&bob, "own", "by bob");
        assert_eq!(team.verify(&bob).code, 0);
        team
    }

    fn of(&self, who: &str) -> PathBuf {
        self.folder.path().join(who)
    }

    fn run(&self, folder: &Path, args: &[&str]) -> Ran {
        let mut command = self.home.command(args);
        Ran::from(command.current_dir(folder).output().unwrap())
    }

    fn ok(&self, folder: &Path, args: &[&str]) -> Ran {
        self.run(folder, args).ok()
    }

    fn json(&self, folder: &Path, args: &[&str]) -> Value {
        let words: Vec<&str> = args.iter().chain(&["--json"]).copied().collect();
        self.ok(folder, &words).json()
    }

    fn put(&self, folder: &Path, id: &str, title: &str) {
        let payload = json!({"title": title}).to_string();
        let words = ["journal", "append", "--type", "plan", "--id", id];
        let more = ["--action", "update", "--payload", &payload];
        self.ok(folder, &[&words[..], &more[..]].concat());
    }

    fn title(&self, folder: &Path, id: &str) -> Value {
        self.json(folder, &["journal", "show", "plan", id])["payload"]["title"].clone()
    }

    fn verify(&self, folder: &Path) -> Ran {
        self.run(folder, &["journal", "verify"])
    }
}

#[track_caller]
fn git(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    let who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder);
    let told = command.args(who).args(words).current_dir(folder).output();
    let told = told.unwrap();
    assert!(told.status.success(), "git {words:?}: {told:?}");
    String::from_utf8(told.stdout).unwrap()
}

fn share(folder: &Path) {
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-q", "-m", "plans"]);
    git(folder, &["push", "-q", "origin", "main"]);
}

/// Ann changes one plan, makes another and deletes a third; bob pulls.
fn pulled(team: &Team) -> (PathBuf, PathBuf) {
    let (ann, bob) = (team.of("ann"), team.of("bob"));
    team.put(&ann, "p1", "by ann");
    team.put(&ann, "new", "by ann");
    share(&ann);
    git(&bob, &["pull", "-q", "--no-rebase", "origin", "main"]);
    (ann, bob)
}

#[test]
fn git_takes_entities_and_checkpoints_along_and_neither_segments_nor_caches() {
    let team = Team::new();
    let tracked = git(&team.of("ann"), &["ls-files", ".heddle"]);
    let mut tracked: Vec<&str> = tracked.lines().collect();
    tracked.retain(|name| !name.starts_with(".heddle/entities/plan/"));
    let expected = [
        ".heddle/.gitignore",
        ".heddle/events/checkpoints/ckpt-00000000000000000002.json",
        ".heddle/journal.json",
    ];
    assert_eq!(tracked, expected);
}

#[test]
fn t_60_what_a_pull_brings_is_told_and_the_journal_is_shown() {
    let team = Team::new();
    let (_, bob) = pulled(&team);
    let shown = team.ok(&bob, &["journal", "show", "plan", "p1"]);
    assert!(shown.stdout.contains("begun"), "{shown:?}");
    assert!(shown.stdout.contains("another clone"), "{shown:?}");
    let absent = team.run(&bob, &["journal", "show", "plan", "new"]);
    assert_eq!(absent.code, 4, "{absent:?}");
    assert!(absent.stderr.contains("another clone"), "{absent:?}");
    let told = team.verify(&bob);
    assert_eq!(told.code, 1, "{told:?}");
    for word in ["plan p1", "plan new", "export-slice --out", "import-slice"] {
        assert!(told.stderr.contains(word), "{word}: {told:?}");
    }
    let doctor = team.run(&bob, &["doctor", "--verify-journal"]);
    assert!(
        doctor.code == 1 && doctor.stderr.contains("import-slice"),
        "{doctor:?}"
    );
    // Nothing of it was touched by all these looks: git sees no change but bob's own.
    let dirty = git(&bob, &["status", "--porcelain", "--", ".heddle"]);
    assert_eq!(dirty.trim(), "?? .heddle/entities/plan/own.json");
}

#[test]
fn what_a_pull_brought_is_taken_in_by_a_slice_as_advised() {
    let team = Team::new();
    let (ann, bob) = pulled(&team);
    team.ok(&ann, &["journal", "export-slice", "--out", "../ann.slice"]);
    let taken = team.json(&bob, &["journal", "import-slice", "../ann.slice"]);
    assert_eq!(taken["conflicts"], json!([]), "{taken}");
    assert_eq!(team.title(&bob, "p1"), "by ann");
    assert_eq!(team.title(&bob, "new"), "by ann");
    assert_eq!(team.title(&bob, "own"), "by bob");
    let told = team.verify(&bob);
    assert_eq!(told.code, 0, "{told:?}");
    // And the files are those that git has.
    let dirty = git(&bob, &["status", "--porcelain", "--", ".heddle"]);
    assert_eq!(dirty.trim(), "?? .heddle/entities/plan/own.json");
}

#[test]
fn one_file_of_a_pull_is_taken_in_by_an_append_as_advised() {
    let team = Team::new();
    let (_, bob) = pulled(&team);
    for id in ["p1", "new"] {
        let file = format!("@.heddle/entities/plan/{id}.json");
        let words = ["journal", "append", "--type", "plan", "--id", id];
        let more = ["--action", "update", "--payload", &file];
        let told = team.ok(&bob, &[&words[..], &more[..]].concat());
        assert!(!told.stderr.contains("quarantine"), "{told:?}");
        assert_eq!(team.title(&bob, id), "by ann");
    }
    assert_eq!(team.verify(&bob).code, 0);
}

#[test]
fn a_write_over_what_a_pull_brought_keeps_it_aside_and_says_where() {
    let team = Team::new();
    let (_, bob) = pulled(&team);
    let words = ["journal", "append", "--type", "plan", "--id", "p1"];
    let more = ["--action", "update", "--payload", r#"{"title":"by bob"}"#];
    let told = team.ok(&bob, &[&words[..], &more[..]].concat());
    assert!(told.stderr.contains("another clone"), "{told:?}");
    let folder = std::fs::read_dir(bob.join(".heddle/events/quarantine")).unwrap();
    let kept: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let text = std::fs::read_to_string(&kept[0]).unwrap();
    assert!(text.contains("by ann"), "{text}");
    assert_eq!(team.title(&bob, "p1"), "by bob");
}

/// Ann's reservation comes along as a file. It holds nothing at bob's, no rebuild takes it from ann, and a slice explains it.
#[test]
fn a_claim_of_another_clone_is_explained_by_a_slice_and_left_where_git_has_it() {
    let team = Team::new();
    let (ann, bob) = (team.of("ann"), team.of("bob"));
    team.ok(&ann, &["reserve", "src/**", "--agent", "ann"]);
    share(&ann);
    git(&bob, &["pull", "-q", "--no-rebase", "origin", "main"]);
    let claims = |folder: &Path| {
        let files = std::fs::read_dir(folder.join(".heddle/entities/claim")).unwrap();
        files.count()
    };
    assert_eq!(claims(&bob), 1);
    let told = team.verify(&bob);
    assert!(
        told.code == 1 && told.stderr.contains("import-slice"),
        "{told:?}"
    );
    team.ok(&ann, &["journal", "export-slice", "--out", "../ann.slice"]);
    team.ok(&bob, &["journal", "import-slice", "../ann.slice"]);
    let told = team.verify(&bob);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stderr.contains("of another clone"), "{told:?}");
    team.ok(&bob, &["journal", "rebuild"]);
    assert_eq!(claims(&bob), 2, "ann's, and what bob's journal calls it");
    team.ok(&bob, &["reserve", "src/**", "--agent", "bob"]);
    // And back: what bob's store calls it is no riddle to ann's.
    share(&bob);
    git(&ann, &["pull", "-q", "--no-rebase", "origin", "main"]);
    team.ok(&bob, &["journal", "export-slice", "--out", "../bob.slice"]);
    team.ok(&ann, &["journal", "import-slice", "../bob.slice"]);
    let told = team.verify(&ann);
    assert_eq!(told.code, 0, "{told:?}");
    let dirty = git(
        &ann,
        &["status", "--porcelain", "--", ".heddle/entities/plan"],
    );
    assert_eq!(dirty.trim(), "");
}

/// Ann archives her old checkpoints, and git deletes the one that bob's clone began with.
fn pulled_after_gc(team: &Team) -> PathBuf {
    let (ann, bob) = (team.of("ann"), team.of("bob"));
    git(&bob, &["add", "-A"]);
    git(&bob, &["commit", "-q", "-m", "own"]);
    for title in ["one", "two", "three"] {
        team.put(&ann, "p3", title);
        team.ok(&ann, &["journal", "checkpoint"]);
    }
    team.ok(&ann, &["journal", "gc"]);
    share(&ann);
    git(&bob, &["pull", "-q", "--no-rebase", "origin", "main"]);
    let base = ".heddle/events/checkpoints/ckpt-00000000000000000002.json";
    assert!(!bob.join(base).exists());
    bob
}

#[test]
fn what_another_clone_has_archived_takes_nothing_from_this_one() {
    let team = Team::new();
    let bob = pulled_after_gc(&team);
    assert_eq!(team.title(&bob, "p1"), "begun");
    let told = team.verify(&bob);
    assert!(!told.stderr.contains("missing"), "{told:?}");
    assert!(!told.stderr.contains("accept-gaps"), "{told:?}");
    team.ok(&bob, &["reserve", "src/**", "--agent", "bob"]);
    team.ok(&bob, &["journal", "checkpoint"]);
    assert_eq!(team.title(&bob, "p2"), "begun");
}

#[test]
fn a_checkpoint_that_a_pull_took_away_is_brought_back_by_the_command_that_is_printed() {
    let team = Team::new();
    let bob = pulled_after_gc(&team);
    // As a clone that an older heddle began.
    std::fs::remove_dir_all(bob.join(".heddle/events/archive")).unwrap();
    let told = team.verify(&bob);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(!told.stderr.contains("accept-gaps"), "{told:?}");
    let command = told.stderr.split('`').find(|text| text.starts_with("git "));
    let command = command.unwrap_or_else(|| panic!("{told:?}"));
    let rebuild = team.run(&bob, &["journal", "rebuild"]);
    assert!(
        rebuild.code == 1 && rebuild.stderr.contains("git "),
        "{rebuild:?}"
    );
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).current_dir(&bob);
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
    assert_eq!(team.title(&bob, "p1"), "begun");
    team.ok(&bob, &["journal", "checkpoint"]);
}

/// Ann turns her journal off and commits that. Bob's goes on holding what it holds.
#[test]
fn a_mode_off_that_a_pull_brings_frees_no_path_and_is_not_called_parked() {
    let team = Team::new();
    let (ann, bob) = (team.of("ann"), team.of("bob"));
    team.ok(&bob, &["reserve", "src/**", "--agent", "carol"]);
    git(&bob, &["add", "-A"]);
    git(&bob, &["commit", "-q", "-m", "own"]);
    team.ok(&ann, &["journal", "rollback"]);
    share(&ann);
    git(&bob, &["pull", "-q", "--no-rebase", "origin", "main"]);
    std::fs::create_dir(bob.join("src")).unwrap();
    std::fs::write(bob.join("src/a.rs"), "a").unwrap();
    git(&bob, &["add", "src"]);
    for words in [
        &["guard", "check"][..],
        &["journal", "log"],
        &["journal", "verify"],
        &["reserve"],
    ] {
        let told = team.run(&bob, words);
        assert_eq!(told.code, 1, "{words:?}: {told:?}");
        assert!(told.stderr.contains("another clone"), "{told:?}");
        assert!(!told.stderr.contains("parked in"), "{told:?}");
    }
    let told = team.verify(&bob);
    let command = told.stderr.split('`').find(|text| text.starts_with("mv "));
    let command = command.unwrap_or_else(|| panic!("{told:?}"));
    let (aside, init) = command.split_once(" && ").unwrap();
    let ran = Command::new("sh")
        .arg("-c")
        .arg(aside)
        .current_dir(&bob)
        .output();
    assert!(ran.unwrap().status.success());
    assert_eq!(init, "heddle journal init");
    team.ok(&bob, &["journal", "init"]);
    let held = team.run(&bob, &["guard", "check"]);
    assert!(held.code == 1 && held.stderr.contains("carol"), "{held:?}");
    assert_eq!(team.title(&bob, "own"), "by bob");
}
