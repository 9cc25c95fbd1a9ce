//! Another model: what a search says of vectors that are under the one before, and what is said of a move whose daemon is
//! killed in the middle.

use crate::support;
use crate::vectors_providers::script;

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::{Daemon, Home, Ran, wait_until};

fn model(home: &Home, name: &str, command: &Path) {
    home.config(&format!(
        "[vectors]\nprovider = 'command'\nmodel = '{name}'\ndim = 2\ncommand = ['{}']\n",
        command.display()
    ));
}

fn store(daemon: &Daemon, count: u32) {
    for number in 0..count {
        let body = json!({"key": format!("k{number:02}"), "content": "text", "embedding": [1, 1, number], "model": "old"});
        daemon.http.post("/v1/vector/store", &body).expect(200);
    }
}

/// How many are under the model that the home makes now.
fn moved(daemon: &Daemon) -> usize {
    let list = daemon.http.get("/v1/vector/list?limit=500").expect(200);
    let items = list["items"].as_array().unwrap();
    let is_new = |item: &&Value| item["model"].as_str().unwrap().starts_with("command:");
    items.iter().filter(is_new).count()
}

#[test]
fn a_search_under_another_model_names_what_is_under_the_one_before_and_what_moves_it() {
    let home = Home::new();
    let command = script(&home, "echo '[1, 2]'");
    model(&home, "first", &command);
    let daemon = home.up();
    for key in ["a", "b", "c"] {
        home.cli(&["vector", "store", key, "a text"]).ok();
    }
    let found = home.cli(&["vector", "search", "a text"]).ok().stdout;
    assert!(!found.contains("re-embed"), "{found}");
    daemon.stop();
    model(&home, "second", &command);
    let daemon = home.up();
    let none = home.cli(&["vector", "search", "a text"]).ok().stdout;
    let next = "heddle advanced re-embed --to command:second:";
    for words in ["nothing is stored under", "3 vectors are", next] {
        assert!(none.contains(words), "{words}: {none}");
    }
    assert!(!none.contains("store something"), "{none}");
    let view = home.cli(&["vector", "search", "a text", "--json"]).ok();
    assert_eq!(view.json()["under_other_models"], 3, "{view:?}");
    // Some under each: what is missing is told with what was found.
    home.cli(&["vector", "store", "d", "a text"]).ok();
    let some = home.cli(&["vector", "search", "a text"]).ok().stdout;
    assert!(some.contains("3 vectors are") && some.contains(next));
    // The advice can be followed as it stands.
    let from = some.find("heddle advanced").unwrap() + "heddle ".len();
    let advice: Vec<&str> = some[from..].split('`').next().unwrap().split(' ').collect();
    home.cli(&advice).ok();
    let all = home.cli(&["vector", "search", "a text", "--json"]).ok();
    assert_eq!(all.json()["items"].as_array().unwrap().len(), 4);
    assert!(all.json()["under_other_models"].is_null(), "{all:?}");
    daemon.stop();
}

/// No provider of this home makes such numbers: a move to their model is refused.
#[test]
fn a_search_by_numbers_that_were_brought_along_advises_what_works() {
    let home = Home::new();
    let daemon = home.up();
    home.cli(&["vector", "store", "n", "a text"]).ok();
    let none = home.cli(&["vector", "search", "--embedding", "[1,2,3]"]);
    let none = none.ok().stdout;
    assert!(
        none.contains("1 vector is") && !none.contains("re-embed"),
        "{none}"
    );
    let from = none.find("heddle vector store").unwrap() + "heddle ".len();
    let advice = none[from..].split('`').next().unwrap().split(' ');
    let advice: Vec<&str> = advice
        .map(|word| match word {
            "KEY" => "n",
            "NUMBERS" => "[1,2,3]",
            word => word,
        })
        .collect();
    home.cli(&advice).ok();
    let all = home.cli(&["vector", "search", "--embedding", "[1,2,3]", "--json"]);
    assert_eq!(all.ok().json()["items"].as_array().unwrap().len(), 1);
    daemon.stop();
}

#[test]
fn a_move_whose_daemon_is_killed_says_how_many_were_moved() {
    let home = Home::new();
    let command = script(&home, "sleep 0.1; echo '[1, 2]'");
    model(&home, "sh", &command);
    let daemon = home.up();
    store(&daemon, 60);
    let moving = home
        .command(&["advanced", "re-embed", "--to", "sh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("some to be moved", || moved(&daemon) >= 12);
    daemon.kill();
    let stopped = Ran::from(moving.wait_with_output().unwrap());
    assert_eq!(stopped.code, 5, "{stopped:?}");
    for words in ["moved, for good, and", "were left", "same command again"] {
        assert!(stopped.stderr.contains(words), "{words}: {stopped:?}");
    }
    assert!(!stopped.stderr.contains(" 0 vectors were moved"));
}
