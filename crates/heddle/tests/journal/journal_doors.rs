//! The journal's other doors: slices that travel over the mesh's log, and the tools of an agent.

use crate::support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::mcp::McpClient;
use support::{Home, Ran, wait_until};

const MESH: &str = "alice-home";

fn home_of(name: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{name}\"\n"));
    home
}

/// A repository called `shop`, with a journal.
fn repository(home: &Home) -> PathBuf {
    let folder = home.path().parent().unwrap().join("work/shop");
    std::fs::create_dir_all(&folder).unwrap();
    inside(home, &folder, &["journal", "init"]).ok();
    folder
}

fn inside(home: &Home, folder: &Path, args: &[&str]) -> Ran {
    let mut command = home.command(args);
    command.current_dir(folder);
    Ran::from(command.output().unwrap())
}

fn join(alice: &Home, bob: &Home) {
    let link = alice.cli(&["mesh", "invite", "--json"]).ok().json();
    bob.cli_told(
        &["mesh", "join", "-", "--json"],
        link["link"].as_str().unwrap(),
    )
    .ok();
}

fn plan(home: &Home, folder: &Path, id: &str, title: &str) {
    let payload = json!({"title": title}).to_string();
    let args = [
        "journal",
        "append",
        "--type",
        "plan",
        "--id",
        id,
        "--action",
        "create",
        "--payload",
        &payload,
        "--json",
    ];
    inside(home, folder, &args).ok();
}

const POST: [&str; 4] = ["journal", "export-slice", "--to-mesh", "--json"];
const FETCH: [&str; 6] = [
    "--mesh",
    MESH,
    "journal",
    "import-slice",
    "--from-mesh",
    "--json",
];

fn shown(home: &Home, folder: &Path, id: &str) -> Ran {
    inside(home, folder, &["journal", "show", "plan", id, "--json"])
}

#[test]
fn slices_travel_over_the_mesh_and_each_record_is_taken_once() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let _up = (alice.up(), bob.up());
    join(&alice, &bob);
    let (ours, theirs) = (repository(&alice), repository(&bob));
    plan(&alice, &ours, "pln_1", "the first");
    let posted = inside(&alice, &ours, &POST).ok().json();
    assert_eq!(posted["name"], "shop");
    assert_eq!(posted["shared"].as_array().unwrap().len(), 1, "{posted}");
    let nothing = inside(&alice, &ours, &POST).ok().json();
    assert_eq!(nothing["shared"], json!([]), "what was shared stays shared");
    let fetched = || inside(&bob, &theirs, &FETCH).ok().json();
    wait_until("the slice", || {
        fetched()["slices"][0]["origin_id"].is_string()
    });
    assert_eq!(
        shown(&bob, &theirs, "pln_1").ok().json()["payload"]["title"],
        "the first"
    );
    // Later records alone, and what is known changes nothing.
    plan(&alice, &ours, "pln_2", "the second");
    let posted = inside(&alice, &ours, &POST).ok().json();
    assert_eq!(posted["records"], 1, "{posted}");
    wait_until("the second", || {
        fetched();
        shown(&bob, &theirs, "pln_2").code == 0
    });
    let again = fetched();
    let applied: Vec<&Value> = again["slices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slice| &slice["applied"])
        .collect();
    assert_eq!(applied, [&json!(0), &json!(0)], "{again}");
    let verified = inside(&bob, &theirs, &["journal", "verify", "--json"]).ok();
    assert_eq!(verified.json()["ok"], true);
    // Under another name there is nothing, and that is said.
    let args = [
        "--mesh",
        MESH,
        "journal",
        "import-slice",
        "--from-mesh=other",
    ];
    let nobody = inside(&bob, &theirs, &args).ok();
    assert!(nobody.stdout.contains("--to-mesh"), "{nobody:?}");
}

#[test]
fn c15_what_was_erased_is_withdrawn_from_the_mesh_and_erased_there() {
    let (alice, bob) = (home_of("alice"), home_of("bob"));
    let _up = (alice.up(), bob.up());
    join(&alice, &bob);
    let (ours, theirs) = (repository(&alice), repository(&bob));
    plan(&alice, &ours, "pln_1", "canary-4711");
    plan(&alice, &ours, "pln_2", "harmless");
    inside(&alice, &ours, &POST).ok();
    wait_until("the slice", || {
        inside(&bob, &theirs, &FETCH).ok();
        shown(&bob, &theirs, "pln_1").code == 0
    });
    let redact = [
        "doctor", "redact", "--item", "pln_1", "--reason", "a secret", "--json",
    ];
    let told = inside(&alice, &ours, &redact).ok().json();
    let says = |told: &Value| told["warnings"].to_string().contains("--to-mesh=shop");
    assert!(says(&told), "{told}");
    let posted = inside(&alice, &ours, &POST).ok().json();
    assert_eq!(posted["withdrawn"], 1, "{posted}");
    let told = inside(&alice, &ours, &redact).ok().json();
    assert!(!says(&told), "{told}");
    let files = alice
        .cli(&["file", "list", "journal/", "--json"])
        .ok()
        .json();
    assert_eq!(files["items"].as_array().unwrap().len(), 1, "{files}");
    wait_until("it is erased there", || {
        inside(&bob, &theirs, &FETCH).ok();
        !shown(&bob, &theirs, "pln_1").stdout.contains("canary-4711")
    });
    assert_eq!(
        shown(&bob, &theirs, "pln_2").ok().json()["payload"]["title"],
        "harmless"
    );
}

#[test]
fn agents_record_and_read_the_journal_of_their_repository() {
    let home = Home::new();
    let _daemon = home.up();
    let folder = repository(&home);
    let mut ada = McpClient::start(&home, "ada", &folder, &["--tools", "full"]);
    let mut bob = McpClient::start(&home, "bob", &folder, &["--tools", "full"]);
    let record = |id: &str, title: &str| json!({"type": "plan", "item": id, "payload": {"title": title}, "summary": title});
    let written = ada.data("journal_record", record("pln_1", "split the parser"));
    assert_eq!(written["entity_rev"], 1);
    assert!(written["seq"].is_u64());
    let seen = bob.data("journal_events", json!({}));
    assert_eq!(seen["events"][0]["item_id"], "pln_1", "{seen}");
    assert_eq!(seen["events"][0]["payload"]["title"], "split the parser");
    let again = bob.data("journal_events", json!({}));
    assert_eq!(again["events"], json!([]), "each event once");
    let own = ada.data("journal_events", json!({}));
    assert_eq!(own["events"], json!([]), "nobody is told its own words");
    // JN-23: under a reader's name of its own neither.
    let own = ada.data("journal_events", json!({"reader": "ada-goes-on"}));
    assert_eq!(own["events"], json!([]), "{own}");
    // What does not fit comes with the next call; nothing is lost.
    for nth in 2..6 {
        ada.data(
            "journal_record",
            record(&format!("pln_{nth}"), &"x".repeat(400)),
        );
    }
    let mut ids = Vec::new();
    for _ in 0..4 {
        let page = bob.data("journal_events", json!({"budget": 200}));
        let events = page["events"].as_array().unwrap().clone();
        assert_eq!(events.len(), 1, "{page}");
        ids.push(events[0]["item_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids, ["pln_2", "pln_3", "pln_4", "pln_5"]);
    let bad = ada.call(
        "journal_record",
        json!({"type": "plan", "item": "p", "action": "dance"}),
    );
    assert!(bad.is_error && bad.answer["detail"].as_str().unwrap().contains("create"));
    // An effect that an agent asks for is a record, as with the CLI.
    let asked = ada.data(
        "request_effect",
        json!({"key": "mig-1", "op": "migrate", "target": "prod"}),
    );
    assert_eq!(asked["journal"]["recorded"], 1, "{asked}");
    let log = inside(&home, &folder, &["journal", "log"]).ok();
    assert!(log.stdout.contains("effect mig-1: requested"), "{log:?}");
    // Without a journal that is said, with the next step.
    let bare = home.path().parent().unwrap().join("bare");
    std::fs::create_dir_all(&bare).unwrap();
    let mut eve = McpClient::start(&home, "eve", &bare, &["--tools", "full"]);
    let none = eve.call("journal_events", json!({}));
    assert_eq!(none.answer["code"], "not_found");
    assert!(
        none.answer["next"]
            .as_str()
            .unwrap()
            .contains("journal init")
    );
}

#[test]
fn an_agent_that_calls_again_under_its_id_records_once_and_a_filter_uses_nothing_up() {
    let home = Home::new();
    let _daemon = home.up();
    let folder = repository(&home);
    let mut ada = McpClient::start(&home, "ada", &folder, &["--tools", "full"]);
    let mut bob = McpClient::start(&home, "bob", &folder, &["--tools", "full"]);
    let record = |kind: &str, item: &str, id: &str| json!({"type": kind, "item": item, "payload": {"title": item}, "id": id});
    let first = ada.data("journal_record", record("plan", "pln_1", "k1"));
    assert_eq!((&first["seq"], first.get("duplicate")), (&json!(1), None));
    let mut again = ada.data("journal_record", record("plan", "pln_1", "k1"));
    assert_eq!(again["duplicate"], true);
    again.as_object_mut().unwrap().remove("duplicate");
    assert_eq!(again, first);
    // Whoever it is now: a session of before was another process.
    let mut ada = {
        drop(ada);
        McpClient::start(&home, "ada", &folder, &["--tools", "full"])
    };
    let again = ada.data("journal_record", record("plan", "pln_1", "k1"));
    assert_eq!(
        (&again["seq"], &again["duplicate"]),
        (&json!(1), &json!(true))
    );
    let other = ada.call("journal_record", record("plan", "pln_2", "k1"));
    assert_eq!(
        (other.is_error, &other.answer["code"]),
        (true, &json!("conflict"))
    );
    ada.data("journal_record", record("decision", "dec_1", "k2"));
    ada.data("journal_record", record("plan", "pln_2", "k3"));
    let ids = |page: Value| -> Vec<String> {
        let events = page["events"].as_array().unwrap().clone();
        events
            .iter()
            .map(|event| event["item_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let plans = bob.data("journal_events", json!({"type": "plan"}));
    assert!(plans["events"][0].get("request").is_none(), "{plans}");
    assert_eq!(ids(plans), ["pln_1", "pln_2"]);
    let plans = bob.data("journal_events", json!({"type": "plan"}));
    assert_eq!(ids(plans), [""; 0]);
    let all = bob.data("journal_events", json!({}));
    assert_eq!(ids(all), ["pln_1", "dec_1", "pln_2"], "nothing was used up");
}
