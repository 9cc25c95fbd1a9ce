//! A large file that one home shares is read in another: carried through the broker, part by part, whole or
//! not at all.

use crate::support;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use support::broker_process::BrokerProcess;
use support::files::noise;
use support::gate_proxy::GateProxy;
use support::servers::Postgres;
use support::{Daemon, Home, wait_until_within};

const SOON: Duration = Duration::from_secs(60);
const LARGE: usize = 5 << 20;

/// A home whose person is called so.
fn home_of(person: &str) -> Home {
    let home = Home::new();
    home.config(&format!("[daemon]\nmember = \"{person}\"\n"));
    home
}

/// `guest` joins the mesh of `host`; what it calls the mesh.
fn join(host: &Home, guest: &Home) -> String {
    let invited = host.cli(&["mesh", "invite", "--json"]).ok().json();
    let link = invited["link"].as_str().unwrap();
    let joined = guest.cli(&["mesh", "join", link, "--json"]).ok().json();
    joined["mesh"].as_str().unwrap().to_owned()
}

/// Shares the bytes as `docs/large.bin` in a mesh of the home; what the CLI says of it.
fn share(home: &Home, mesh: &str, bytes: &[u8]) -> Value {
    let path = home.path().parent().unwrap().join("to_share.bin");
    std::fs::write(&path, bytes).unwrap();
    let (file, name) = (path.to_str().unwrap(), "docs/large.bin");
    let args = [
        "--mesh", mesh, "file", "share", file, "--as", name, "--json",
    ];
    let shared = home.cli(&args).ok().json();
    std::fs::remove_file(&path).unwrap();
    shared
}

/// Where a blob lies, and where its parts gather.
fn places(home: &Home, hash: &str) -> (PathBuf, PathBuf) {
    let blobs = home.path().join("blobs");
    (
        blobs.join(&hash[..2]).join(hash),
        blobs.join("part").join(hash),
    )
}

/// The file as the CLI gives it, once it can.
fn get(home: &Home, mesh: &str, id: &str) -> Vec<u8> {
    let out = home.path().parent().unwrap().join("got.bin");
    let args = [
        "--mesh",
        mesh,
        "file",
        "get",
        id,
        "--output",
        out.to_str().unwrap(),
    ];
    wait_until_within(SOON, "the file to be here", || home.cli(&args).code == 0);
    let bytes = std::fs::read(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    bytes
}

fn knows(daemon: &Daemon, mesh: &str, id: &str) -> bool {
    let list = daemon
        .http
        .get(&format!("/v1/file/list?scope=all&mesh={mesh}"));
    list.expect(200)["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|file| file["id"] == json!(id))
}

fn metric(daemon: &Daemon, line: &str) -> u64 {
    let text = daemon.http.get("/v1/metrics").body;
    let found = text.lines().find_map(|l| l.strip_prefix(line));
    found.unwrap_or("0").trim().parse().unwrap()
}

#[test]
fn a_large_file_of_one_home_has_the_same_bytes_in_another_either_way() {
    let (host, guest) = (home_of("anna"), home_of("bert"));
    let host_up = host.up();
    let _guest_up = guest.up();
    // Shared before anybody joined: the published row brings its bytes along as well.
    let bytes = noise(7, LARGE);
    let before = share(&host, "home", &bytes);
    let mesh = join(&host, &guest);
    let id = before["id"].as_str().unwrap();
    assert_eq!(get(&guest, &mesh, id), bytes);
    let hash = before["sha256"].as_str().unwrap();
    assert!(places(&guest, hash).0.exists());
    assert!(!places(&guest, hash).1.exists(), "no part is left over");
    // And from the guest to the host.
    let bytes = noise(8, LARGE + 12_345);
    let shared = share(&guest, &mesh, &bytes);
    assert_eq!(get(&host, "home", shared["id"].as_str().unwrap()), bytes);
    assert!(
        metric(
            &host_up,
            "heddle_blob_parts_served_total{outcome=\"given\"}"
        ) >= 20
    );
}

/// Many brokers on one database, behind any load balancer: whoever is connected where.
#[test]
fn a_file_that_a_home_at_one_broker_shares_is_read_in_a_home_at_another() {
    let database = Postgres::start();
    let house = Home::new();
    let broker = |name: &str| {
        let data = house.path().parent().unwrap().join(name);
        let more = ["--database", &database.url()];
        BrokerProcess::start(&house, &data, "127.0.0.1:0", &more)
    };
    let brokers = [broker("one"), broker("two")];
    let enter = |name: &str, broker: &BrokerProcess| {
        let (url, tables) = (format!("ws://{}/", broker.listen()), database.url());
        let args = [
            "--json",
            "--mesh",
            "team",
            "broker",
            "invite",
            "--database",
            &tables,
        ];
        let invited = house
            .cli(&[&args[..], &["--url", &url]].concat())
            .ok()
            .json();
        let home = home_of(name);
        let up = home.up();
        let link = invited["link"].as_str().unwrap();
        home.cli(&["mesh", "join", link, "--as", "team"]).ok();
        (home, up)
    };
    let (anna, anna_up) = enter("anna", &brokers[0]);
    let (bert, _bert_up) = enter("bert", &brokers[1]);
    let bytes = noise(21, LARGE);
    let shared = share(&anna, "team", &bytes);
    assert_eq!(get(&bert, "team", shared["id"].as_str().unwrap()), bytes);
    let given = metric(
        &anna_up,
        "heddle_blob_parts_served_total{outcome=\"given\"}",
    );
    assert!(given >= 20, "{given}");
    let left = database.sql("SELECT count(*) FROM mesh.blob_part");
    assert_eq!(left, ["0"], "nothing is kept on the way");
}

#[test]
fn a_home_killed_in_the_middle_of_a_file_shows_no_half_and_goes_on_where_it_was() {
    let (host, guest) = (home_of("anna"), home_of("bert"));
    let _host_up = host.up();
    let mut guest_up = guest.up();
    let mesh = join(&host, &guest);
    guest_up.kill();
    // From now on the guest reaches the host through a gate.
    let config = guest.path().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let url = text.split("ws://").nth(1).unwrap();
    let broker = url.split(['/', '"']).next().unwrap().to_owned();
    let gate = GateProxy::start(broker.clone(), 2 << 20);
    std::fs::write(&config, text.replace(&broker, &gate.listen)).unwrap();

    let bytes = noise(9, LARGE);
    let shared = share(&host, "home", &bytes);
    let (id, hash) = (
        shared["id"].as_str().unwrap(),
        shared["sha256"].as_str().unwrap(),
    );
    let (blob, part) = places(&guest, hash);
    guest_up = guest.up();
    wait_until_within(SOON, "a part of the file", || {
        std::fs::metadata(&part).is_ok_and(|found| found.len() > 1 << 20)
    });
    assert!(
        knows(&guest_up, &mesh, id),
        "the row is here before its bytes"
    );
    guest_up.kill();
    let so_far = std::fs::metadata(&part).unwrap().len();
    assert!(
        so_far < LARGE as u64 && !blob.exists(),
        "nothing half is visible"
    );

    let before = gate.passed();
    gate.allow(u64::MAX);
    let guest_up = guest.up();
    assert_eq!(get(&guest, &mesh, id), bytes);
    assert!(!part.exists());
    // Base64 makes four bytes of three; what had come did not come again.
    let came = gate.passed() - before;
    let whole = (LARGE as u64) * 4 / 3;
    assert!(came < whole, "{came} bytes came after {so_far} were here");
    assert_eq!(
        metric(&guest_up, "heddle_blob_fetches_total{outcome=\"arrived\"}"),
        1
    );
}

#[test]
fn bytes_that_are_not_the_file_are_refused_and_the_right_ones_are_taken_later() {
    let (host, guest) = (home_of("anna"), home_of("bert"));
    let host_up = host.up();
    let guest_up = guest.up();
    let mesh = join(&host, &guest);
    guest_up.kill();
    let bytes = noise(11, LARGE);
    let shared = share(&host, "home", &bytes);
    let (id, hash) = (
        shared["id"].as_str().unwrap(),
        shared["sha256"].as_str().unwrap(),
    );
    let (kept, _) = places(&host, hash);
    // The host has become hostile: the same length, other bytes.
    let mut lie = bytes.clone();
    lie[LARGE / 2] ^= 1;
    std::fs::write(&kept, &lie).unwrap();
    let guest_up = guest.up();
    wait_until_within(SOON, "the lie to be found out", || {
        metric(&guest_up, "heddle_blob_fetches_total{outcome=\"damaged\"}") > 0
    });
    let (blob, part) = places(&guest, hash);
    assert!(!blob.exists(), "nothing of it is visible");
    assert_eq!(std::fs::metadata(&part).map_or(0, |found| found.len()), 0);
    let target = format!("/v1/file/get?id={id}&mesh={mesh}&raw=true");
    let refused = guest_up.http.get(&target).expect(404);
    assert_eq!(refused["code"], "file_elsewhere");
    drop(host_up);
    // Whoever lied is not asked again by this process; the next one begins without a grudge.
    guest_up.kill();
    std::fs::write(&kept, &bytes).unwrap();
    let _host_up = host.up();
    let _guest_up = guest.up();
    assert_eq!(get(&guest, &mesh, id), bytes);
}

/// The place of a file as a list says it.
fn content_of(daemon: &Daemon, mesh: &str, id: &str) -> Value {
    let list = daemon
        .http
        .get(&format!("/v1/file/list?scope=all&mesh={mesh}"))
        .expect(200);
    let items = list["items"].as_array().unwrap().clone();
    let file = items.into_iter().find(|file| file["id"] == json!(id));
    file.map_or(Value::Null, |file| file["content"].clone())
}

#[test]
fn lf_27_the_lost_or_flipped_bytes_of_anothers_file_are_fetched_again() {
    let (host, guest) = (home_of("anna"), home_of("bert"));
    let host_up = host.up();
    let guest_up = guest.up();
    let bytes = noise(9, LARGE);
    let shared = share(&host, "home", &bytes);
    let mesh = join(&host, &guest);
    let (id, hash) = (
        shared["id"].as_str().unwrap(),
        shared["sha256"].as_str().unwrap(),
    );
    assert_eq!(get(&guest, &mesh, id), bytes);
    let blob = places(&guest, hash).0;
    // Lost while it runs: whoever asks for it has it fetched again.
    std::fs::remove_file(&blob).unwrap();
    assert_eq!(get(&guest, &mesh, id), bytes);
    // Other bytes under its name, and its owner away: the list says so, and the bad bytes are kept aside.
    let mut flipped = bytes.clone();
    flipped[LARGE / 2] ^= 0x10;
    std::fs::write(&blob, &flipped).unwrap();
    host_up.stop();
    let asked = guest_up
        .http
        .get(&format!("/v1/file/get?id={id}&mesh={mesh}&raw=true"));
    assert_eq!(asked.expect(404)["code"], "file_elsewhere");
    assert_eq!(content_of(&guest_up, &mesh, id), "elsewhere");
    let aside = guest.path().join("blobs/bad").join(hash);
    assert_eq!(std::fs::read(&aside).unwrap(), flipped);
    let _host_up = host.up();
    assert_eq!(get(&guest, &mesh, id), bytes);
    assert_eq!(content_of(&guest_up, &mesh, id), "blob");
    // Lost while nothing ran: a start finds it, and nobody has to ask.
    guest_up.stop();
    std::fs::remove_file(&blob).unwrap();
    let guest_up = guest.up();
    wait_until_within(SOON, "the file to be fetched again", || {
        std::fs::read(&blob).is_ok_and(|found| found == bytes)
    });
    // And flipped while nothing ran: a repair finds it.
    guest_up.stop();
    std::fs::write(&blob, &flipped).unwrap();
    let said = guest.cli(&["doctor", "--repair"]).ok().stdout;
    assert!(said.contains("docs/large.bin"), "{said}");
    let _guest_up = guest.up();
    wait_until_within(SOON, "the file to be fetched again", || {
        std::fs::read(&blob).is_ok_and(|found| found == bytes)
    });
}

/// Shares another file under the path, and loses its bytes; its id, and where they lay.
fn share_and_lose(host: &Home, bytes: &[u8]) -> (String, PathBuf) {
    let shared = share(host, "home", bytes);
    let kept = places(host, shared["sha256"].as_str().unwrap()).0;
    std::fs::remove_file(&kept).unwrap();
    (shared["id"].as_str().unwrap().to_owned(), kept)
}

/// Waits until the home knows that nobody answers, and sweeps what nobody names.
fn is_cut_off(guest: &Daemon, mesh: &str) {
    let info = format!("/v1/mesh/info?mesh={mesh}");
    wait_until_within(SOON, "the host to be gone", || {
        guest.http.get(&info).expect(200)["stale"] == json!(true)
    });
    let at_once = json!({"grace_seconds": 0});
    guest.http.post("/v1/file/sweep", &at_once).expect(200);
}

const BY_PATH: &str = "path=docs/large.bin&scope=@anna/anna";

/// What the CLI writes for whoever asks by path, and what it says.
fn get_by_path(guest: &Home, mesh: &str) -> (Vec<u8>, String) {
    let out = guest.path().parent().unwrap().join("was.bin");
    let (path, owner, file) = ("docs/large.bin", "@anna/anna", out.to_str().unwrap());
    let args = [
        "--mesh", mesh, "file", "get", path, "--scope", owner, "-o", file, "--force",
    ];
    let told = guest.cli(&args).ok();
    (std::fs::read(&out).unwrap(), told.stderr)
}

/// The owner shares another file under the same path, and is gone before its bytes come: what can be read is the last that
/// came, and it says so (seed §14, C29).
#[test]
fn c29_the_last_known_bytes_of_a_file_are_read_while_cut_off_and_said_to_be_stale() {
    let (host, guest) = (home_of("anna"), home_of("bert"));
    let host_up = host.up();
    let guest_up = guest.up();
    let (old, new) = (b"a line of it\n".repeat(400_000), noise(22, LARGE));
    let first = share(&host, "home", &old);
    let mesh = join(&host, &guest);
    let first = first["id"].as_str().unwrap();
    assert_eq!(get(&guest, &mesh, first), old);
    let ask = |daemon: &Daemon, query: &str| {
        let target = format!("/v1/file/get?{query}&mesh={mesh}");
        daemon.http.get(&target)
    };
    let fresh = ask(&guest_up, BY_PATH).expect(200);
    assert!(fresh["stale"].is_null() && fresh["newer"].is_null());
    host_up.stop();
    is_cut_off(&guest_up, &mesh);
    // Nobody knows of another one, and nobody can say that there is none.
    let cut_off = ask(&guest_up, BY_PATH).expect(200);
    assert_eq!(cut_off["stale"], json!(true), "{cut_off}");
    assert!(cut_off["as_of"].is_string() && cut_off["newer"].is_null());
    guest_up.stop();

    let host_up = host.up();
    let (second, kept) = share_and_lose(&host, &new);
    let guest_up = guest.up();
    wait_until_within(SOON, "the new file to be known", || {
        knows(&guest_up, &mesh, &second)
    });
    host_up.kill();
    is_cut_off(&guest_up, &mesh);
    let was = ask(&guest_up, BY_PATH).expect(200);
    assert_eq!((&was["id"], &was["stale"]), (&json!(first), &json!(true)));
    assert_eq!(was["newer"]["id"], json!(second), "{was}");
    assert!(was["as_of"].is_string(), "{was}");
    let raw = ask(&guest_up, &format!("{BY_PATH}&raw=true"));
    let head = raw.head.to_lowercase();
    assert!(head.contains("heddle-stale-as-of: 20"), "{head}");
    let (bytes, said) = get_by_path(&guest, &mesh);
    assert!(bytes == old && said.contains("stale"), "{said}");
    // An id is these bytes and no others.
    let newest = ask(&guest_up, &format!("id={second}")).expect(404);
    assert_eq!(newest["before"], json!(first));
    let of_first = format!("id={first}");
    assert_eq!(ask(&guest_up, &of_first).status, 200);

    std::fs::write(&kept, &new).unwrap();
    let _host_up = host.up();
    assert_eq!(get(&guest, &mesh, &second), new);
    let gone = ask(&guest_up, &of_first).expect(404);
    assert_eq!(gone["code"], "unknown_file");
}
