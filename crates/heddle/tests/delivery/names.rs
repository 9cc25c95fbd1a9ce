//! Who is who, over real processes: namesakes, names that change, and what a start says of them.

use crate::support;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::ledger::connected;
use support::{Daemon, Home, wait_until};

fn broker_of(home: &Home) -> BrokerProcess {
    let data = home.path().parent().unwrap().join("broker");
    BrokerProcess::start(home, &data, "127.0.0.1:0", &[])
}

fn mesh(broker: &BrokerProcess, more: &str) -> String {
    format!(
        "[[mesh]]\nname = \"team\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n{more}",
        broker.listen(),
        broker.data.join("broker_token")
    )
}

fn addresses(list: &Value) -> Vec<String> {
    let peers = list["peers"].as_array().unwrap();
    let mut all: Vec<String> = peers
        .iter()
        .map(|peer| peer["address"].as_str().unwrap().to_owned())
        .collect();
    all.sort();
    all
}

#[test]
fn c30_two_homes_of_one_login_are_told_apart_and_can_write_to_each_other() {
    let place = Home::new();
    let broker = broker_of(&place);
    let (one, two) = (Home::new(), Home::new());
    one.config(&mesh(&broker, ""));
    two.config(&mesh(&broker, ""));
    let (first, second) = (one.up(), two.up());
    connected(&first);
    connected(&second);
    let peers = || first.http.get("/v1/peers?mesh=team").expect(200);
    wait_until("both", || addresses(&peers()).len() == 2);
    let both = addresses(&peers());
    assert_ne!(both[0], both[1]);
    assert!(both.iter().all(|address| address.starts_with("@tester.")));
    assert_eq!(
        both,
        addresses(&second.http.get("/v1/peers?mesh=team").expect(200)),
        "the two homes call them differently"
    );
    // The short name could be either; each long one is exactly one.
    let short = json!({"to": "@tester/tester", "message": "x", "mesh": "team"});
    let refused = first.http.post("/v1/send", &short);
    let refused: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(refused["code"], "ambiguous_recipient", "{refused}");
    let peers = peers();
    let mut others = peers["peers"].as_array().unwrap().iter();
    let other = others.find(|peer| peer["own"] == false).unwrap();
    let to = other["address"].as_str().unwrap();
    let ran = one.cli(&["--mesh", "team", "send", to, "hello", "--id", "a"]);
    ran.ok();
    wait_until("the message", || {
        let page = second
            .http
            .get("/v1/inbox?agent=tester&mesh=team")
            .expect(200);
        let items = page["items"].as_array().unwrap();
        // What it says of its sender can be answered.
        items.len() == 1 && both.contains(&items[0]["from"].as_str().unwrap().to_owned())
    });
}

#[test]
fn a_member_of_a_mesh_elsewhere_takes_the_name_that_the_config_gives_it_later() {
    let place = Home::new();
    let broker = broker_of(&place);
    let home = Home::new();
    home.config(&mesh(&broker, ""));
    let daemon = home.up();
    connected(&daemon);
    let before = daemon.http.get("/v1/peers?mesh=team").expect(200);
    assert_eq!(addresses(&before), ["@tester/tester"]);
    daemon.stop();
    home.config(&mesh(&broker, "member = \"alice\"\n"));
    let daemon = home.up();
    connected(&daemon);
    wait_until("the new name", || {
        let peers = daemon.http.get("/v1/peers?mesh=team").expect(200);
        // One member, renamed: not a second one beside it.
        addresses(&peers) == ["@alice/tester"] && peers["stale"] == false
    });
    daemon.stop();
    // Without the line the name stays: it is only the config that was silent.
    home.config(&mesh(&broker, ""));
    let daemon = home.up();
    let peers = daemon.http.get("/v1/peers?mesh=team").expect(200);
    assert_eq!(addresses(&peers), ["@alice/tester"]);
}

#[test]
fn another_name_for_the_home_itself_is_refused_with_what_to_do() {
    let home = Home::new();
    home.config("[daemon]\nmember = \"alice\"\n");
    let daemon = home.up();
    assert_eq!(daemon.ready["member"], "alice");
    daemon.stop();
    home.config("[daemon]\nmember = \"bob\"\n");
    for args in [&["up"][..], &["up", "--detach"]] {
        let ran = home.cli(args);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("\"bob\""), "{ran:?}");
        assert!(
            ran.stderr.contains("\"alice\" since its first start"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("next: Take the line out"), "{ran:?}");
    }
    // The step that it names.
    home.config("");
    assert_eq!(home.up().ready["member"], "alice");
}

#[test]
fn a_start_says_who_you_are_in_the_mesh_that_it_names() {
    let place = Home::new();
    let broker = broker_of(&place);
    let home = Home::new();
    home.config(&mesh(&broker, "member = \"alice\"\n"));
    let words = home.cli(&["daemon", "up", "--detach"]).ok().stdout;
    assert!(
        words.contains("mesh    team, you are @alice/tester"),
        "{words}"
    );
    home.cli(&["down"]).ok();
    let words = home.cli(&["up", "--detach"]).ok().stdout;
    assert!(
        words.contains("mesh    home, you are @tester/tester"),
        "{words}"
    );
    home.cli(&["down"]).ok();
}

#[test]
fn c30_namesakes_have_their_suffix_wherever_somebody_is_named() {
    let place = Home::new();
    let broker = broker_of(&place);
    let (one, two) = (Home::new(), Home::new());
    one.config(&mesh(&broker, ""));
    two.config(&mesh(&broker, ""));
    let (first, second) = (one.up(), two.up());
    connected(&first);
    connected(&second);
    let peers = || first.http.get("/v1/peers?mesh=team").expect(200);
    wait_until("both", || addresses(&peers()).len() == 2);
    let find = |own: bool| {
        let peers = peers();
        let mut all = peers["peers"].as_array().unwrap().iter();
        let peer = all.find(|peer| peer["own"] == own).unwrap();
        peer["address"].as_str().unwrap().to_owned()
    };
    let (mine, theirs) = (find(true), find(false));
    let member = mine.trim_start_matches('@').split('/').next().unwrap();
    let status = first.http.get("/v1/status").expect(200);
    let meshes = status["meshes"].as_array().unwrap();
    let team = meshes.iter().find(|mesh| mesh["mesh"] == "team").unwrap();
    assert_eq!(team["member"], member);
    let ran = one
        .cli(&["agent", "register", "planner", "--mesh", "team"])
        .ok();
    assert!(
        ran.stdout.contains(&format!("@{member}/planner")),
        "{ran:?}"
    );
    let body = json!({"to": theirs, "message": "x", "mesh": "team", "client_message_id": "e"});
    first.http.post("/v1/send", &body).expect(202);
    wait_until("its delivery", || {
        let story = first.http.get("/v1/explain/e").expect(200);
        story["deliveries"][0]["delivered_at"].is_string()
    });
    let story = first.http.get("/v1/explain/e").expect(200);
    assert_eq!(story["deliveries"][0]["recipient"], theirs);
}

#[test]
fn a_home_of_many_agents_comes_back_to_its_broker() {
    let home = Home::new();
    let daemon = home.up();
    let known = |daemon: &Daemon| {
        let agents = daemon.http.get("/v1/agent/list").expect(200);
        agents["agents"].as_array().unwrap().len()
    };
    // As many as there are sessions in a year, each under a name of its own.
    for number in 0..1100 {
        let body = json!({"agent": format!("session-{number}")});
        daemon.http.post("/v1/agent/register", &body).expect(200);
    }
    let before = known(&daemon);
    assert!(before >= 1100);
    daemon.kill();
    let daemon = home.up();
    connected(&daemon);
    assert_eq!(known(&daemon), before);
    let body = json!({"to": "@session-1099", "message": "x", "agent": "session-7", "client_message_id": "m"});
    daemon.http.post("/v1/send", &body).expect(202);
    wait_until("its message", || {
        let story = daemon.http.get("/v1/explain/m?agent=session-7").expect(200);
        story["deliveries"][0]["delivered_at"] != Value::Null
    });
}
