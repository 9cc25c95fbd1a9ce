//! The door of a broker under load: daemons, pages and silent connections have places of their own.

use crate::support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use heddle_core::limits::{BROKER_ARRIVALS_MAX, BROKER_DAEMONS_MAX, BROKER_PAGES_MAX};
use support::broker_process::{BrokerProcess, RawLink};
use support::{Home, wait_until};

const REFUSED: &str = "heddle_broker_door_refused_total";

fn start(house: &Home) -> BrokerProcess {
    let data = house.path().parent().unwrap().join("broker");
    BrokerProcess::start(house, &data, "127.0.0.1:0", &[])
}

fn refused(broker: &BrokerProcess, kind: &str) -> usize {
    broker.metric(&format!("{REFUSED}{{kind=\"{kind}\"}}"))
}

/// Hundreds of connections in one process, beside other tests.
fn many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum.map(|most| most.min(65_536)),
        maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// A connection that has sent this, and waits.
fn open(broker: &BrokerProcess, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(broker.listen()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn l_06_a_door_full_of_daemons_still_shows_its_pages_and_tells_one_more_to_ask_again() {
    many_descriptors();
    let house = Home::new();
    let broker = start(&house);
    let mut held = Vec::new();
    let mut more = 0;
    // Those that say no hello are cut after a while: the places are full for as long as that.
    for _ in 0..BROKER_DAEMONS_MAX + 8 {
        match RawLink::open(&broker.listen(), None) {
            Ok(link) => held.push(link),
            Err(status) => {
                assert_eq!(status, 503);
                more += 1;
            }
        }
    }
    assert!(held.len() >= BROKER_DAEMONS_MAX && more > 0, "{more}");
    assert_eq!(broker.page("/healthz", None).0, 200);
    assert_eq!(broker.page("/readyz", None).0, 200);
    assert_eq!(refused(&broker, "daemon"), more);
    drop(held);
    wait_until("a place", || RawLink::open(&broker.listen(), None).is_ok());
}

#[test]
fn l_06_a_door_full_of_slow_pages_lets_daemons_in_and_answers_503_to_one_more() {
    many_descriptors();
    let house = Home::new();
    let broker = start(&house);
    // A head that announces a body which never comes: each is answered in its own time.
    let slow = format!(
        "POST /api/my/meshes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 9\r\n\r\n",
        broker.token().trim()
    );
    let mut held: Vec<TcpStream> = (0..BROKER_PAGES_MAX)
        .map(|_| open(&broker, &slow))
        .collect();
    wait_until("the pages to be full", || {
        let is_full = broker.page("/healthz", None).0 == 503;
        // The look itself has a place for a moment, and may have had the last one.
        if !is_full {
            held.push(open(&broker, &slow));
        }
        is_full
    });
    let mut told = String::new();
    let mut one = open(&broker, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    one.read_to_string(&mut told).unwrap();
    assert!(told.to_lowercase().contains("retry-after: 1"), "{told}");
    let home = Home::new();
    home.config(&broker.config());
    let _up = home.up();
    let sent = ["send", "@tester", "hello", "--id", "A", "--wait"];
    home.cli(&sent).ok();
    drop(held);
    wait_until("the pages", || broker.page("/healthz", None).0 == 200);
    assert!(refused(&broker, "page") > 0);
}

#[test]
fn l_06_connections_that_say_nothing_keep_nobody_out() {
    many_descriptors();
    let house = Home::new();
    let broker = start(&house);
    // More than there are places, and half a head each; they never stop coming.
    let mut silent: Vec<TcpStream> = (0..2 * BROKER_ARRIVALS_MAX)
        .map(|_| open(&broker, "GET /healthz HTTP/1.1\r\nHo"))
        .collect();
    let home = Home::new();
    home.config(&broker.config());
    let _up = home.up();
    let sent = ["send", "@tester", "hello", "--id", "A", "--wait"];
    home.cli(&sent).ok();
    assert_eq!(broker.page("/healthz", None).0, 200);
    assert!(refused(&broker, "arrival") > 0);
    // The first of them was cut, without a word, to make room.
    let first = &mut silent[0];
    first
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    assert_eq!(first.read(&mut [0; 16]).unwrap_or(0), 0);
}
