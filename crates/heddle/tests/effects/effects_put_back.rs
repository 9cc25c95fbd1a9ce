//! Another store in the place of the one that was in use decides nothing: a database that is put back under its brokers, a
//! file whose marks are gone with it, a copy that went on by itself.

use crate::support;

use std::path::{Path, PathBuf};

use support::broker_process::BrokerProcess;
use support::effect_pair::{home_of, run};
use support::ledger::status;
use support::servers::Postgres;
use support::{Home, Ran, wait_until};

const POLICY: &str = "[[rule]]\noperation = \"deploy\"\napproval = \"auto\"\n";
const EFFECTS: &str = "mesh_effects";

fn member(brokers: &[&BrokerProcess], name: &str) -> Home {
    let home = home_of(name);
    let mut config = format!("[daemon]\nmember = \"{name}\"\n");
    for (mesh, broker) in ["team", "other"].iter().zip(brokers) {
        config += &format!(
            "[[mesh]]\nname = \"{mesh}\"\nmember = {name:?}\nurl = \"ws://{}/\"\ntoken_file = {:?}\n",
            broker.listen(),
            broker.data.join("broker_token"),
        );
    }
    home.config(&config);
    home
}

fn connected(home: &Home) {
    wait_until("the team's broker", || {
        let list = home.cli(&["mesh", "list", "--json"]).json();
        let meshes = list["meshes"].as_array().unwrap().clone();
        let mut team = meshes.iter().filter(|mesh| mesh["mesh"] == "team");
        team.any(|mesh| mesh["connected"] == true)
    });
}

fn in_team<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["--mesh", "team"], words].concat()
}

fn script(side: &Path) -> String {
    format!("echo x >> {}", side.display())
}

#[track_caller]
fn refused(ran: &Ran, side: &Path) {
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stderr.contains("earlier copy") || ran.stderr.contains("another way"),
        "{ran:?}"
    );
    assert_eq!(std::fs::read_to_string(side).unwrap(), "x\n");
}

fn broker(house: &Home, data: &Path, listen: &str, url: &str) -> BrokerProcess {
    std::fs::create_dir_all(data).unwrap();
    std::fs::write(data.join("effects.toml"), POLICY).unwrap();
    BrokerProcess::start(house, data, listen, &["--database", url])
}

#[test]
fn rg_01_a_database_that_is_put_back_under_its_brokers_is_noticed_by_each_of_them() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let folder = |name: &str| house.path().parent().unwrap().join(name);
    let one = broker(&house, &folder("one"), "127.0.0.1:0", &url);
    let two = broker(&house, &folder("two"), "127.0.0.1:0", &url);
    let (ann, bob) = (member(&[&one], "ann"), member(&[&two], "bob"));
    let _up = [ann.up(), bob.up()];
    [&ann, &bob].into_iter().for_each(connected);
    ann.cli(&in_team(&run("first", &[], "true"))).ok();
    let copy = database.dump_of(EFFECTS);
    let side = folder("side");
    ann.cli(&in_team(&run("k", &[], &script(&side)))).ok();
    // Bob has never asked; his broker has looked by itself, and says so in its folder.
    let mark = folder("two").join("effects.mark");
    let behind = |name: &str| std::fs::read_to_string(folder(name).join("effects.mark"));
    wait_until("the other broker to look", || {
        std::fs::read_to_string(&mark).is_ok() && behind("one").unwrap() == behind("two").unwrap()
    });
    database.restore_of(EFFECTS, &copy);
    // Under both brokers, while they run. What has happened is not to be denied either.
    refused(&ann.cli(&in_team(&run("k", &[], &script(&side)))), &side);
    refused(&bob.cli(&in_team(&run("k", &[], &script(&side)))), &side);
    let denied = bob.cli(&in_team(&["effect", "status", "k"]));
    assert!(!denied.stderr.contains("nobody asked"), "{denied:?}");
    // And by one that has never been here: a member shows what it was told.
    let (listen, token) = (one.listen(), one.token());
    one.kill();
    let three = folder("three");
    std::fs::create_dir_all(&three).unwrap();
    std::fs::write(three.join("broker_token"), token).unwrap();
    let _new = broker(&house, &three, &listen, &url);
    wait_until("ann to be heard", || {
        let asked = ann.cli(&in_team(&run("k", &[], &script(&side))));
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n", "{asked:?}");
        asked.stderr.contains("was told of changes")
    });
}

/// Neither broker remembers anything, and only one of them is asked by somebody who does: the other knows from then on as
/// well. A person's word, in the folder of either, lets both go on.
#[test]
fn rg_01_what_one_broker_is_shown_stops_every_broker_of_the_database_until_a_person_says_go_on() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let folder = |name: &str| house.path().parent().unwrap().join(name);
    let one = broker(&house, &folder("one"), "127.0.0.1:0", &url);
    let two = broker(&house, &folder("two"), "127.0.0.1:0", &url);
    let (ann, bob) = (member(&[&one], "ann"), member(&[&two], "bob"));
    let _up = [ann.up(), bob.up()];
    [&ann, &bob].into_iter().for_each(connected);
    ann.cli(&in_team(&run("first", &[], "true"))).ok();
    let copy = database.dump_of(EFFECTS);
    let side = folder("side");
    ann.cli(&in_team(&run("k", &[], &script(&side)))).ok();
    let at = [one.listen(), two.listen()];
    for broker in [one, two] {
        assert_eq!(broker.terminate(), 0);
    }
    database.restore_of(EFFECTS, &copy);
    for name in ["one", "two"] {
        // One that has not looked yet has none.
        let _ = std::fs::remove_file(folder(name).join("effects.mark"));
        let _ = std::fs::remove_file(folder(name).join("effects/mark"));
    }
    let start = |name: &str, at: &str| broker(&house, &folder(name), at, &url);
    let both = [start("one", &at[0]), start("two", &at[1])];
    let heard = |ran: &Ran| {
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n", "{ran:?}");
        ran.stderr.contains("was told of changes")
    };
    wait_until("ann to be heard", || {
        heard(&ann.cli(&in_team(&run("k", &[], &script(&side)))))
    });
    let status = ann.cli(&["status"]);
    assert!(
        status.stdout.contains("decides about no effect"),
        "{status:?}"
    );
    for read in [&["effect", "list"][..], &["effect", "log", "k"]] {
        let told = ann.cli(&in_team(read));
        assert_ne!(told.code, 0, "{told:?}");
    }
    // Bob has never been told of it, and his broker neither.
    wait_until("bob to be heard", || {
        heard(&bob.cli(&in_team(&run("k", &[], &script(&side)))))
    });
    for broker in both {
        assert_eq!(broker.terminate(), 0);
    }
    let both = [start("one", &at[0]), start("two", &at[1])];
    wait_until("both to know it still", || {
        let mut ran = [&ann, &bob].map(|home| home.cli(&in_team(&run("k", &[], &script(&side)))));
        ran.iter_mut().all(|ran| heard(ran))
    });
    let [one, _two] = both;
    assert_eq!(one.terminate(), 0);
    std::fs::write(folder("one").join("effects-begin-anew"), "").unwrap();
    let _one = start("one", &at[0]);
    for (home, key) in [(&ann, "after-a"), (&bob, "after-b")] {
        wait_until("it to be decided about again", || {
            home.cli(&in_team(&run(key, &[], "true"))).code == 0
        });
    }
}

/// What a start refuses, the migration before it says as well.
#[test]
fn rg_17_a_migration_does_not_call_an_unfit_database_up_to_date() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let migrate = ["broker", "migrate", "--database", &url];
    house.cli(&migrate).ok();
    house.cli(&migrate).ok();
    database.sql("ALTER TABLE mesh_effects.effect_consume DISABLE TRIGGER ALL");
    let unfit = house.cli(&migrate);
    assert_eq!(unfit.code, 1, "{unfit:?}");
    assert!(unfit.stderr.contains("mesh_effects"), "{unfit:?}");
}

/// The broker's whole folder goes back in time, marks and all: whoever was told of more says so.
#[test]
fn rg_01_a_broker_whose_whole_folder_is_put_back_is_told_by_a_member_who_knows_more() {
    let house = Home::new();
    let data = house.path().with_file_name("broker");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("effects.toml"), POLICY).unwrap();
    let started = BrokerProcess::start(&house, &data, "127.0.0.1:0", &[]);
    let (ann, bob) = (member(&[&started], "ann"), member(&[&started], "bob"));
    let _up = [ann.up(), bob.up()];
    [&ann, &bob].into_iter().for_each(connected);
    ann.cli(&in_team(&run("first", &[], "true"))).ok();
    let listen = started.listen();
    assert_eq!(started.terminate(), 0);
    let names = ["effects.db", "effects.mark", "effects/mark"];
    let kept: Vec<(PathBuf, Vec<u8>)> = names
        .iter()
        .map(|name| (data.join(name), std::fs::read(data.join(name)).unwrap()))
        .collect();
    let side = house.path().with_file_name("side");
    let started = BrokerProcess::start(&house, &data, &listen, &[]);
    connected(&ann);
    wait_until("ann to run it", || {
        ann.cli(&in_team(&run("k", &[], &script(&side)))).code == 0
    });
    assert_eq!(started.terminate(), 0);
    let put_back = || {
        for (path, bytes) in &kept {
            std::fs::write(path, bytes).unwrap();
        }
        for name in ["effects.db-wal", "effects.db-shm"] {
            let _ = std::fs::remove_file(data.join(name));
        }
    };
    put_back();
    let started = BrokerProcess::start(&house, &data, &listen, &[]);
    wait_until("ann to be heard", || {
        let asked = ann.cli(&in_team(&run("k", &[], &script(&side))));
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n", "{asked:?}");
        asked.stderr.contains("was told of changes")
    });
    // From then on it is so for everybody.
    connected(&bob);
    refused(&bob.cli(&in_team(&run("k", &[], &script(&side)))), &side);
    // Until a person says to go on with it; then whoever was told of more is not heard any more.
    assert_eq!(started.terminate(), 0);
    std::fs::write(data.join("effects-begin-anew"), "").unwrap();
    let started = BrokerProcess::start(&house, &data, &listen, &[]);
    for (home, key) in [(&ann, "after-a"), (&bob, "after-b"), (&ann, "after-c")] {
        wait_until("it to be decided about again", || {
            home.cli(&in_team(&run(key, &[], "true"))).code == 0
        });
    }
    let later = house.path().with_file_name("later");
    ann.cli(&in_team(&run("later", &[], &script(&later)))).ok();
    // The same copy once more, from before that word: it knows by what was proven since that it is an earlier one.
    assert_eq!(started.terminate(), 0);
    put_back();
    let _started = BrokerProcess::start(&house, &data, &listen, &[]);
    wait_until("ann to be heard once more", || {
        let asked = ann.cli(&in_team(&run("later", &[], &script(&later))));
        assert_eq!(std::fs::read_to_string(&later).unwrap(), "x\n", "{asked:?}");
        asked.stderr.contains("was told of changes")
    });
}

fn snapshot(home: &Home) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let names = [
        "effects.db",
        "effects.db-wal",
        "effects.db-shm",
        "effects.mark",
        "effects/mark",
        "data.db",
        "data.db-wal",
        "data.db-shm",
    ];
    let all = names.iter().map(|name| home.path().join(name));
    all.map(|path| (path.clone(), std::fs::read(path).ok()))
        .collect()
}

fn put(files: &[(PathBuf, Option<Vec<u8>>)]) {
    for (path, bytes) in files {
        match bytes {
            Some(bytes) => std::fs::write(path, bytes).unwrap(),
            None => drop(std::fs::remove_file(path)),
        }
    }
}

#[test]
fn rg_01_a_copy_that_went_on_by_itself_is_noticed_though_it_has_as_many_rows() {
    let home = home_of("alice");
    let daemon = home.up();
    home.cli(&run("first", &[], "true")).ok();
    daemon.stop();
    let before = snapshot(&home);
    let side = home.path().with_file_name("side");
    let daemon = home.up();
    home.cli(&run("k", &[], &script(&side))).ok();
    daemon.stop();
    let after = snapshot(&home);
    // The copy of before goes another way, with as many steps.
    put(&before);
    let daemon = home.up();
    home.cli(&run("other", &[], "true")).ok();
    daemon.stop();
    let other: Vec<_> = snapshot(&home).into_iter().take(3).collect();
    put(&after);
    put(&other);
    for forgotten in [None, Some("effects.mark")] {
        if let Some(name) = forgotten {
            std::fs::remove_file(home.path().join(name)).unwrap();
        }
        let daemon = home.up();
        refused(&home.cli(&run("k", &[], &script(&side))), &side);
        let degraded = status(&daemon)["degraded"].to_string();
        assert!(degraded.contains("effects.db"), "{degraded}");
        daemon.stop();
        let doctor = home.cli(&["doctor"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
    }
}

/// A row that is gone is not a database of before: the key that it was written of stops, and no other one, at every broker.
#[test]
fn rg_01_one_row_that_is_gone_from_the_database_stops_its_key_and_no_other() {
    let house = Home::new();
    let database = Postgres::start();
    let url = database.url();
    let folder = |name: &str| house.path().parent().unwrap().join(name);
    let one = broker(&house, &folder("one"), "127.0.0.1:0", &url);
    let two = broker(&house, &folder("two"), "127.0.0.1:0", &url);
    let (ann, bob) = (member(&[&one], "ann"), member(&[&two], "bob"));
    let _up = [ann.up(), bob.up()];
    [&ann, &bob].into_iter().for_each(connected);
    let side = folder("side");
    ann.cli(&in_team(&run("first", &[], "true"))).ok();
    ann.cli(&in_team(&run("k", &[], &script(&side)))).ok();
    database.sql("SET session_replication_role = replica; DELETE FROM mesh_effects.effect_step WHERE logical_request_key = 'k' AND step = 'verified'");
    let is_stopped = |home: &Home| {
        let again = home.cli(&in_team(&run("k", &[], &script(&side))));
        assert_eq!(again.code, 1, "{again:?}");
        assert_eq!(again.json()["changed"], true, "{again:?}");
        assert!(again.stderr.contains("k: 1 of the rows"), "{again:?}");
        assert!(!again.stderr.contains("earlier copy"), "{again:?}");
        assert_eq!(std::fs::read_to_string(&side).unwrap(), "x\n");
        let first = home.cli(&in_team(&run("first", &[], "true"))).ok();
        assert_eq!(first.json()["duplicate"], true);
    };
    [&ann, &bob].into_iter().for_each(is_stopped);
    bob.cli(&in_team(&run("new", &[], "true"))).ok();
    // Also by a broker that has looked at it before and starts again.
    let listen = one.listen();
    one.kill();
    let _again = broker(&house, &folder("one"), &listen, &url);
    connected(&ann);
    wait_until("ann to be answered", || {
        ann.cli(&in_team(&run("newer", &[], "true"))).code == 0
    });
    is_stopped(&ann);
}
