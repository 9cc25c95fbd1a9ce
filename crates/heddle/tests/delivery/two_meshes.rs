//! Brokers that hang, in every way a broker can, beside one that works: the order of events, no clock.
//!
//! A broker that refuses connections is in `outbox_meshes.rs`.

use crate::support;

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::http::Kept;
use support::stub_broker::{Script, StubBroker};
use support::{Daemon, Home, wait_until};

/// More than one batch, and more than one look at the table takes.
const STUCK: [(&str, usize); 2] = [("silent", 1100), ("hole", 100)];
const WORKING: usize = 50;

fn send(door: &mut Kept, mesh: &str, number: usize) {
    let id = format!("{mesh}-{number}");
    let body = json!({"to": "@tester", "message": id, "client_message_id": id, "mesh": mesh});
    door.post("/v1/send", &body).unwrap().expect(202);
}

/// Takes connections and says nothing, ever.
fn black_hole() -> (String, Arc<Mutex<Vec<TcpStream>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap().to_string();
    let held = Arc::new(Mutex::new(Vec::new()));
    let holding = Arc::clone(&held);
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            holding.lock().unwrap().push(stream);
        }
    });
    (listen, held)
}

fn count(daemon: &Daemon, mesh: &str, states: &[&str]) -> usize {
    let mut rows = 0;
    let mut cursor = String::new();
    loop {
        let target = format!("/v1/outbox?limit=500&mesh={mesh}{cursor}");
        let page = daemon.http.get(&target).expect(200);
        let is_in = |row: &&Value| states.contains(&row["status"].as_str().unwrap());
        rows += page["rows"]
            .as_array()
            .unwrap()
            .iter()
            .filter(is_in)
            .count();
        match &page["cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => return rows,
        }
    }
}

#[test]
fn one_mesh_whose_broker_hangs_or_keeps_silent_delays_no_other() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &["--mesh", "work"]);
    let silent = StubBroker::start();
    silent.script(Script::Hold);
    let (hole, held) = black_hole();
    home.config(&format!(
        "[[mesh]]\nname = \"hole\"\nurl = \"ws://{hole}/\"\n{}[[mesh]]\nname = \"work\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
        silent.mesh_config("silent"),
        broker.listen(),
        data.join("broker_token"),
    ));
    let daemon = home.up();
    let mut door = daemon.http.keep().unwrap();
    for (mesh, messages) in STUCK {
        for number in 0..messages {
            send(&mut door, mesh, number);
        }
    }
    wait_until("the stuck ones to be under way", || {
        silent.send_count() > 0 && !held.lock().unwrap().is_empty()
    });
    for number in 0..WORKING {
        send(&mut door, "work", number);
    }
    wait_until("the mesh that works", || {
        count(&daemon, "work", &["done"]) == WORKING
    });
    // All that came later went through; of what came before, nothing has.
    for (mesh, messages) in STUCK {
        let stuck = count(&daemon, mesh, &["pending", "inflight"]);
        assert_eq!(stuck, messages, "{mesh}");
    }
    wait_until("the messages", || {
        let page = daemon
            .http
            .get("/v1/inbox?mesh=work&agent=tester&limit=500");
        page.expect(200)["items"].as_array().unwrap().len() == WORKING
    });
}

/// A window of an hour that one mesh has used up: what is sent in another is done while the first still waits.
#[test]
fn c6_one_mesh_whose_rate_window_is_full_delays_no_other() {
    let home = Home::new();
    let data = home.path().parent().unwrap().join("broker");
    std::fs::create_dir_all(&data).unwrap();
    let limit = "[broker]\nrate_limit = 5\nrate_window_seconds = 3600\n";
    std::fs::write(data.join("config.toml"), limit).unwrap();
    let broker = BrokerProcess::start(&home, &data, "127.0.0.1:0", &[]);
    home.config(&format!(
        "[[mesh]]\nname = \"tight\"\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
        broker.listen(),
        data.join("broker_token")
    ));
    let daemon = home.up();
    let mut door = daemon.http.keep().unwrap();
    for number in 0..WORKING {
        send(&mut door, "tight", number);
    }
    wait_until("the limit", || count(&daemon, "tight", &["done"]) == 5);
    for number in 0..WORKING {
        send(&mut door, "home", number);
    }
    wait_until("the other mesh", || {
        count(&daemon, "home", &["done"]) == WORKING
    });
    assert_eq!(count(&daemon, "tight", &["done"]), 5);
    assert_eq!(count(&daemon, "tight", &["dead"]), 0);
}
