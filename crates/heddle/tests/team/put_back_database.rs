//! A database is put back from an older copy, by hand and without `broker epoch bump`, and goes on before those come back who
//! have seen more.

use crate::support;

use support::broker_process::BrokerProcess;
use support::servers::Postgres;
use support::{Home, wait_until, wait_until_within};

const TABLES: &str = "mesh";

fn member(broker: &BrokerProcess, name: &str) -> Home {
    let home = Home::new();
    home.config(&format!(
        "[daemon]\nmember = {name:?}\n[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
        broker.listen(),
        broker.data.join("broker_token"),
    ));
    home
}

/// Until the sender's home has heard of the recipient: the same id is sent once.
fn send(home: &Home, to: &str, id: &str, wait: &str) {
    let args = [
        "--mesh", "team", "send", to, id, "--agent", "one", "--id", id, wait,
    ];
    wait_until("its recipient is known", || home.cli(&args).code == 0);
}

fn has_each_once(home: &Home, expected: &[&str]) -> bool {
    let inbox = ["--mesh", "team", "inbox", "--agent", "one", "--json"];
    let answer = home.cli(&inbox).json();
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    let count = |id: &str| items.iter().filter(|item| item["body"] == id).count();
    items.len() == expected.len() && expected.iter().all(|id| count(id) == 1)
}

fn goes_on(has_marks: bool) {
    let house = Home::new();
    let database = Postgres::start();
    let data = house.path().parent().unwrap().join("broker");
    let start = |listen: &str| {
        let url = database.url();
        BrokerProcess::start(&house, &data, listen, &["--database", &url])
    };
    let broker = start("127.0.0.1:0");
    let (ann, bob) = (member(&broker, "ann"), member(&broker, "bob"));
    let (ann_up, bob_up) = (ann.up(), bob.up());
    for home in [&ann, &bob] {
        let register = ["--mesh", "team", "agent", "register", "one"];
        wait_until("the broker", || home.cli(&register).code == 0);
    }
    send(&ann, "@bob/one", "before", "--wait=delivered");
    let copy = database.dump_of(TABLES);
    for id in ["r1", "r2", "r3"] {
        send(&bob, "@bob/one", id, "--wait=delivered");
    }
    bob_up.stop();
    // Told as committed, and lost with the tables.
    send(&ann, "@bob/one", "lost", "--wait=committed");
    ann_up.stop();
    let listen = broker.listen();
    assert_eq!(broker.terminate(), 0);
    database.restore_of(TABLES, &copy);
    let marks = data.join("broker.marks");
    assert!(marks.exists());
    if !has_marks {
        std::fs::remove_file(&marks).unwrap();
    }
    let broker = start(&listen);
    // Somebody who has seen nothing of what was lost comes first.
    let carl = member(&broker, "carl");
    let _carl_up = carl.up();
    let register = ["--mesh", "team", "agent", "register", "one"];
    wait_until("the broker", || carl.cli(&register).code == 0);
    for id in ["s1", "s2", "s3", "s4", "s5"] {
        send(&carl, "@bob/one", id, "--wait=committed");
    }
    let _up = [bob.up(), ann.up()];
    let all = [
        "before", "r1", "r2", "r3", "lost", "s1", "s2", "s3", "s4", "s5",
    ];
    wait_until_within(std::time::Duration::from_secs(120), "each once", || {
        has_each_once(&bob, &all)
    });
    clean(&house, &database);
}

/// Under a broker that runs, and members who stay connected and go on.
#[test]
fn lf_16_a_database_that_is_put_back_under_its_broker_is_noticed_while_it_runs() {
    let house = Home::new();
    let database = Postgres::start();
    let data = house.path().parent().unwrap().join("broker");
    let url = database.url();
    let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &["--database", &url]);
    let (ann, bob) = (member(&broker, "ann"), member(&broker, "bob"));
    let carl = member(&broker, "carl");
    let (_up, carl_up) = ([ann.up(), bob.up()], carl.up());
    let register = ["--mesh", "team", "agent", "register", "one"];
    for home in [&ann, &bob, &carl] {
        wait_until("the broker", || home.cli(&register).code == 0);
    }
    send(&ann, "@bob/one", "before", "--wait=delivered");
    send(&ann, "@carl/one", "early", "--wait=delivered");
    carl_up.stop();
    let copy = database.dump_of(TABLES);
    for id in ["r1", "r2", "r3"] {
        send(&ann, "@bob/one", id, "--wait=delivered");
    }
    send(&ann, "@carl/one", "lost", "--wait=committed");
    let place = ann.cli(&["explain", "lost", "--json"]).json()["broker"]["history_id"].clone();
    let place = format!("{}=", place.as_str().unwrap());
    let marks = data.join("broker.marks");
    wait_until("a mark of it", || {
        std::fs::read_to_string(&marks).is_ok_and(|marks| marks.contains(&place))
    });
    database.restore_of(TABLES, &copy);
    let new = ["s1", "s2", "s3", "s4", "s5", "s6"];
    for id in new {
        send(&ann, "@bob/one", id, "--wait=local");
    }
    let all = [&["before", "r1", "r2", "r3"], &new[..]].concat();
    let patience = std::time::Duration::from_secs(120);
    wait_until_within(patience, "each once", || has_each_once(&bob, &all));
    let _carl_up = carl.up();
    wait_until_within(patience, "what was lost", || {
        has_each_once(&carl, &["early", "lost"])
    });
    clean(&house, &database);
}

/// Under two brokers that run, before any of them has made a mark: the one by which it was sent knows what it gave out, the
/// other what it pushed.
fn under_two(sends_at_once: bool) {
    let house = Home::new();
    let database = Postgres::start();
    let folder = house.path().parent().unwrap().to_owned();
    let url = database.url();
    let token = folder.join("one/broker_token");
    let start = |name: &str| {
        let more = ["--database", &url, "--token-file", token.to_str().unwrap()];
        let more = if name == "one" { &more[..2] } else { &more };
        BrokerProcess::start(&house, &folder.join(name), "127.0.0.1:0", more)
    };
    let [one, two] = ["one", "two"].map(start);
    let home = |broker: &BrokerProcess, name: &str| {
        let home = Home::new();
        home.config(&format!(
            "[daemon]\nmember = {name:?}\n[[mesh]]\nname = \"team\"\nmember = {name:?}\nurl = \"ws://{}/\"\ntoken_file = {token:?}\n",
            broker.listen()
        ));
        home
    };
    let (ann, bob) = (home(&one, "ann"), home(&two, "bob"));
    let _up = [ann.up(), bob.up()];
    let register = ["--mesh", "team", "agent", "register", "one"];
    for home in [&ann, &bob] {
        wait_until("the broker", || home.cli(&register).code == 0);
    }
    send(&ann, "@bob/one", "before", "--wait=delivered");
    let copy = database.dump_of(TABLES);
    for id in ["r1", "r2", "r3"] {
        send(&ann, "@bob/one", id, "--wait=delivered");
    }
    let place = |home: &Home, id: &str| {
        let told = home.cli(&["explain", id, "--json"]).json();
        told["broker"]["history_id"].as_str().map(str::to_owned)
    };
    let given: Vec<_> = ["r1", "r2", "r3"].map(|id| place(&ann, id)).into();
    assert!(given.iter().all(Option::is_some), "{given:?}");
    database.restore_of(TABLES, &copy);
    let patience = std::time::Duration::from_secs(60);
    if !sends_at_once {
        let is_new = || database.sql("SELECT epoch FROM mesh.mesh") == ["2"];
        wait_until_within(patience, "a new epoch, though nobody says anything", is_new);
        let is_there = || database.sql("SELECT count(*) FROM mesh.message") == ["4"];
        wait_until_within(patience, "what was lost, given back", is_there);
    }
    send(&ann, "@bob/one", "s1", "--wait=local");
    send(&bob, "@ann/one", "t1", "--wait=local");
    let new = ["s2", "s3", "s4", "s5", "s6"];
    for id in new {
        send(&ann, "@bob/one", id, "--wait=local");
    }
    // Both stay connected all the time.
    let all = [&["before", "r1", "r2", "r3", "s1"], &new[..]].concat();
    wait_until_within(patience, "each once", || has_each_once(&bob, &all));
    wait_until_within(patience, "an answer", || has_each_once(&ann, &["t1"]));
    for (home, id) in new
        .map(|id| (&ann, id))
        .into_iter()
        .chain([(&ann, "s1"), (&bob, "t1")])
    {
        let at = place(home, id);
        assert!(
            at.is_some() && !given.contains(&at),
            "{id} {at:?} {given:?}"
        );
    }
    let epochs =
        database.sql("SELECT count(*) FROM mesh.message_history WHERE epoch = 1 AND seq > 1");
    assert_eq!(epochs, ["0"], "a place was given out twice");
    let error = |broker: &BrokerProcess| broker.metric("heddle_broker_histories_parted_total");
    assert!(error(&one) + error(&two) > 0);
    clean(&house, &database);
}

#[test]
fn lf_16_under_brokers_that_run_and_go_on_at_once_no_place_is_given_out_twice() {
    under_two(true);
}

#[test]
fn lf_16_under_brokers_that_run_an_older_database_is_noticed_before_anybody_sends() {
    under_two(false);
}

fn clean(house: &Home, database: &Postgres) {
    let url = database.url();
    let check = ["broker", "orphan-check", "--json", "--database", &url];
    let answer = house.cli(&check).ok().json();
    assert_eq!(answer["orphans"], serde_json::json!([]), "{answer}");
}

#[test]
fn lf_16_a_database_that_was_put_back_is_known_by_the_marks_of_its_broker() {
    goes_on(true);
}

#[test]
fn lf_16_a_database_that_was_put_back_and_went_on_is_told_by_who_has_seen_more() {
    goes_on(false);
}
