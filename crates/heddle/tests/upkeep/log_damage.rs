//! The log of a killed daemon is all that holds what was saved last. A disk that changes it, or somebody who removes it, takes
//! nothing in silence (OB-01): a wrong bit is put right, and what cannot be read any more is told before anybody goes on.

use std::fs;
use std::path::PathBuf;

use crate::support::{Home, Ran};

const FRAME: usize = 24 + 4096;

fn log_of(home: &Home, name: &str) -> PathBuf {
    home.path().join(format!("{name}-wal"))
}

fn set(home: &Home, range: std::ops::Range<u32>) {
    for n in range {
        let (key, id) = (format!("k{n}"), format!("id{n}"));
        home.cli(&["state", "set", &key, "v", "--id", &id]).ok();
    }
}

fn kept(home: &Home) -> usize {
    let listed = home.cli(&["state", "list"]).ok().stdout;
    listed.lines().filter(|line| line.starts_with('k')).count()
}

/// The frames of the log that is in use, without what an older one has left behind it.
fn live(log: &[u8]) -> usize {
    let salts = |at: usize| &log[at..at + 8];
    let frames = (log.len() - 32) / FRAME;
    (0..frames)
        .take_while(|n| salts(32 + n * FRAME + 8) == salts(16))
        .count()
}

#[test]
fn ob_01_one_wrong_bit_in_the_log_of_a_killed_daemon_takes_nothing() {
    let home = Home::new();
    for round in 0..4_u32 {
        let daemon = home.up();
        assert_eq!(kept(&home), round as usize * 8);
        set(&home, round * 8..round * 8 + 8);
        daemon.kill();
        let path = log_of(&home, "data.db");
        let mut log = fs::read(&path).unwrap();
        let frame = live(&log) * (round as usize + 1) / 6;
        log[32 + frame * FRAME + 24 + 100] ^= 1;
        fs::write(&path, log).unwrap();
    }
    let daemon = home.up();
    assert_eq!(kept(&home), 32);
    // Its id is not free again.
    let again = home.cli(&["state", "set", "k30", "other", "--id", "id30"]);
    assert_eq!(again.code, 3, "{again:?}");
    home.cli(&["doctor"]).ok();
    daemon.stop();
}

#[test]
fn rg_01_one_wrong_bit_in_the_log_of_the_effects_runs_nothing_again() {
    let home = Home::new();
    let ran = home.path().with_file_name("ran");
    let line = format!("echo once >> {}", ran.display());
    let run = || {
        home.cli(&[
            "effect", "run", "--key", "k", "--op", "deploy", "--target", "prod", "--", "sh", "-c",
            &line,
        ])
    };
    let daemon = home.up();
    run().ok();
    daemon.kill();
    let path = log_of(&home, "effects.db");
    let mut log = fs::read(&path).unwrap();
    let frame = live(&log) - 3;
    log[32 + frame * FRAME + 24 + 100] ^= 1;
    fs::write(&path, log).unwrap();
    let daemon = home.up();
    run().ok();
    assert_eq!(fs::read_to_string(&ran).unwrap(), "once\n");
    daemon.stop();
}

fn told(ran: &Ran) {
    assert_eq!(ran.code, 1, "{ran:?}");
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(all.contains("what was saved last is lost"), "{ran:?}");
    assert!(all.contains("doctor"), "{ran:?}");
}

#[test]
fn ob_01_a_log_that_is_removed_or_cut_is_told_until_a_repair_goes_on_without_it() {
    for is_removed in [true, false] {
        let home = Home::new();
        let daemon = home.up();
        set(&home, 0..4);
        // Ends in order: all of it is in the file.
        daemon.stop();
        let daemon = home.up();
        set(&home, 4..8);
        daemon.kill();
        let path = log_of(&home, "data.db");
        if is_removed {
            fs::remove_file(&path).unwrap();
        } else {
            let log = fs::read(&path).unwrap();
            fs::write(&path, &log[..32 + live(&log) / 2 * FRAME]).unwrap();
        }
        // However often somebody looks, and whatever is tried.
        for _ in 0..2 {
            let status = home.cli(&["status"]);
            assert!(
                status.stdout.contains("what was saved last is lost"),
                "{status:?}"
            );
            told(&home.cli(&["doctor"]));
            told(&home.try_up().err().unwrap());
        }
        let repaired = home.cli(&["doctor", "--repair"]);
        assert!(
            repaired.stdout.contains("what was saved last is lost"),
            "{repaired:?}"
        );
        let daemon = home.up();
        assert!((4..8).contains(&kept(&home)));
        set(&home, 4..8);
        assert_eq!(kept(&home), 8);
        home.cli(&["doctor"]).ok();
        daemon.stop();
    }
}

#[test]
fn ob_01_a_repair_that_finds_nothing_without_the_log_leaves_the_loss_told() {
    let home = Home::new();
    let daemon = home.up();
    set(&home, 0..4);
    // All there is stands in the log.
    daemon.kill();
    let path = log_of(&home, "data.db");
    let log = fs::read(&path).unwrap();
    let cut = 32 + 20 * FRAME;
    assert!(log.len() > 2 * cut);
    fs::write(&path, &log[..cut]).unwrap();
    for _ in 0..2 {
        told(&home.try_up().err().unwrap());
        let repaired = home.cli(&["doctor", "--repair"]);
        assert_ne!(repaired.code, 0, "{repaired:?}");
        assert!(
            repaired.stderr.contains("nothing was changed"),
            "{repaired:?}"
        );
    }
    // With its log it is whole again.
    fs::write(&path, &log).unwrap();
    let daemon = home.up();
    assert_eq!(kept(&home), 4);
    daemon.stop();
}
