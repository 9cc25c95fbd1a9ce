//! A cell that a disk has made no text of is a changed one: it is told as that by everybody, and hides nothing else.

use crate::support;

use support::effect_file::change;
use support::effect_pair::run;
use support::{Home, wait_until};

/// Three effects in a home that is stopped.
fn three() -> Home {
    let home = Home::new();
    let daemon = home.up();
    for key in ["t1", "t2", "t3"] {
        home.cli(&run(key, &[], "echo out2")).ok();
    }
    daemon.stop();
    home
}

const NO_TEXT: &str = "CAST(x'7bfffe7d' AS TEXT)";

#[test]
fn rg_05_a_cell_that_is_no_text_any_more_is_told_as_changed_by_every_door() {
    let home = three();
    let cells = [
        "UPDATE effect_step SET body = {} WHERE logical_request_key = 't1' AND step = 'finished'",
        "UPDATE effect_registration SET receipt = {} WHERE logical_request_key = 't2'",
        "UPDATE effect_envelope SET canonical_operation = {} WHERE logical_request_key = 't3'",
    ];
    for cell in cells {
        change(&home, &cell.replace("{}", NO_TEXT));
    }
    let _daemon = home.up();
    for key in ["t1", "t2", "t3"] {
        for words in [
            run(key, &[], "echo out2"),
            vec!["effect", "status", key, "--json"],
            vec!["explain", key, "--json"],
        ] {
            let told = home.cli(&words);
            assert_eq!(told.code, 1, "{told:?}");
            let problem = told.json();
            assert_eq!(problem["changed"], true, "{told:?}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.starts_with(&format!("{key}: ")), "{told:?}");
        }
    }
    let surface = home.cli(&["effect", "surface-check", "--json"]);
    let changed = surface.json()["changed"].as_array().unwrap().len();
    assert_eq!((surface.code, changed), (1, 3), "{surface:?}");
}

#[test]
fn rg_05_a_key_that_is_no_text_any_more_hides_no_other_damage() {
    let home = three();
    let key = "UPDATE effect_consume SET logical_request_key = {} WHERE logical_request_key = 't1'";
    change(&home, &key.replace("{}", NO_TEXT));
    let result = "UPDATE effect_step SET body = replace(body, 'out2', 'OUT2') WHERE logical_request_key = 't2'";
    change(&home, result);
    let count =
        "UPDATE effect_tally SET row_count = 9223372036854775807 WHERE logical_request_key = 't3'";
    change(&home, count);
    let doctor = home.cli(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let _daemon = home.up();
    wait_until("status to say so", || {
        let status = home.cli(&["status", "--json"]).json();
        status["degraded"].to_string().contains("effect")
    });
    let surface = home.cli(&["effect", "surface-check", "--json"]);
    assert_eq!(surface.code, 1, "{surface:?}");
    let changed = surface.json()["changed"].to_string();
    for key in ["t1", "t2", "t3"] {
        assert!(changed.contains(&format!("{key}: ")), "{surface:?}");
    }
    // No command runs a second time, and the list still has all of them.
    for key in ["t1", "t2", "t3"] {
        let again = home.cli(&run(key, &[], "echo again"));
        assert_eq!(again.code, 1, "{again:?}");
        assert!(!again.stdout.contains("again\\n"), "{again:?}");
    }
    home.cli(&["effect", "list"]).ok();
}

#[test]
fn a_line_of_the_log_that_is_no_text_any_more_hides_no_other() {
    let home = three();
    let line = "UPDATE effect_audit SET detail = {} WHERE logical_request_key = 't1'";
    change(&home, &line.replace("{}", NO_TEXT));
    let _daemon = home.up();
    let log = home.cli(&["effect", "log"]).ok();
    for key in ["t1", "t2", "t3"] {
        assert!(log.stdout.contains(key), "{log:?}");
    }
    home.cli(&["effect", "status", "t1"]).ok();
    home.cli(&["explain", "t1"]).ok();
}
