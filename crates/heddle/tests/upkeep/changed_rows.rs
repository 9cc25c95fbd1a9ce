//! A disk changes a letter or a number of a row of the data, which reads as well as before: every verb says that it was changed, shows
//! everything else, and names what mends it; after that the home is well. Over the real binary.

use crate::support;

use support::{Home, wait_until};

fn filled() -> Home {
    let home = Home::new();
    let outside = tempfile::tempdir().unwrap();
    let daemon = home.up();
    for key in ["alpha", "beta"] {
        home.cli(&["state", "set", key, "1"]).ok();
        home.cli(&["remember", key, "the text of it"]).ok();
        let file = outside.path().join(format!("{key}.txt"));
        std::fs::write(&file, format!("bytes of {key}")).unwrap();
        home.cli(&["file", "share", file.to_str().unwrap(), "--as", key])
            .ok();
        home.cli(&["task", "add", &format!("do {key}")]).ok();
    }
    daemon.stop();
    home
}

fn change(home: &Home, sql: &str) {
    let raw = rusqlite::Connection::open(home.path().join("data.db")).unwrap();
    assert_eq!(raw.execute(sql, []).unwrap(), 1, "{sql}");
}

struct Case {
    sql: &'static str,
    /// What asks for the row itself.
    asks: &'static [&'static str],
    /// What lists it among others.
    lists: &'static [&'static str],
    /// What it is called.
    name: &'static str,
    /// What mends it.
    mends: Option<&'static [&'static str]>,
}

const CASES: [Case; 5] = [
    Case {
        sql: "UPDATE state_kv SET value = '2' WHERE key = 'alpha'",
        asks: &["state", "get", "alpha"],
        lists: &["state", "list"],
        name: "state \"alpha\"",
        mends: Some(&["state", "set", "alpha", "3"]),
    },
    Case {
        sql: "UPDATE state_kv SET lamport = lamport + 5 WHERE key = 'alpha'",
        asks: &["state", "get", "alpha"],
        lists: &["state", "list"],
        name: "state \"alpha\"",
        mends: Some(&["state", "delete", "alpha"]),
    },
    Case {
        sql: "UPDATE memory SET value = '\"another text of it\"' WHERE key = 'alpha'",
        asks: &["recall", "alpha"],
        lists: &["recall", "--search", "text"],
        name: "memory \"alpha\"",
        mends: Some(&["forget", "alpha"]),
    },
    Case {
        sql: "UPDATE files SET mime = 'text/html' WHERE path = 'alpha'",
        asks: &["file", "get", "alpha"],
        lists: &["file", "list"],
        name: "file \"alpha\"",
        mends: Some(&["file", "delete", "alpha"]),
    },
    Case {
        sql: "UPDATE tasks SET title = 'do alphx' WHERE title = 'do alpha'",
        asks: &[],
        lists: &["task", "list"],
        name: "task ",
        mends: None,
    },
];

/// While the daemon runs, whoever asks for the row itself makes the status tell of it.
#[test]
fn lf_39_a_row_that_is_changed_under_a_running_daemon_is_told_by_the_status_once_somebody_met_it() {
    let home = filled();
    let daemon = home.up();
    change(&home, CASES[0].sql);
    assert_eq!(home.cli(CASES[0].asks).code, 1);
    let status = daemon.http.get("/v1/status").expect(200);
    assert_eq!(status["verdict"], "degraded", "{status}");
    assert!(status.to_string().contains("alpha"), "{status}");
}

#[test]
fn lf_39_a_changed_row_is_told_by_every_verb_hides_nothing_and_is_mended() {
    for case in &CASES {
        let home = filled();
        change(&home, case.sql);
        let daemon = home.up();
        if !case.asks.is_empty() {
            let asked = home.cli(case.asks);
            assert_eq!(asked.code, 1, "{}: {asked:?}", case.sql);
            for words in ["not what was written here", "doctor --repair"] {
                assert!(asked.stderr.contains(words), "{words}: {asked:?}");
            }
        }
        let listed = home.cli(case.lists).ok();
        assert!(listed.stdout.contains("beta"), "{listed:?}");
        assert!(!listed.stdout.contains("alph"), "{}: {listed:?}", case.sql);
        assert!(
            listed.stderr.contains(case.name),
            "{}: {listed:?}",
            case.sql
        );
        for verb in [
            &["advanced", "dump"][..],
            &["advanced", "export", "--format", "jsonl"],
        ] {
            let said = home.cli(verb);
            assert_eq!(said.code, 1, "{verb:?}: {said:?}");
            assert!(said.stdout.contains("beta"), "{verb:?}");
            assert!(
                !said.stdout.contains("alphx") && !said.stdout.contains("another text"),
                "{said:?}"
            );
        }
        wait_until("the status to tell", || {
            let status = daemon.http.get("/v1/status").body;
            let name = case.name.replace('"', "\\\"");
            status.contains("holds what cannot be read") && status.contains(&name)
        });
        if let Some(mends) = case.mends {
            home.cli(mends).ok();
            wait_until("the status to be well", || {
                !daemon.http.get("/v1/status").body.contains("alpha")
            });
            daemon.stop();
            assert_eq!(home.cli(&["doctor"]).code, 0, "{}", case.sql);
            continue;
        }
        daemon.stop();
        let says = home.cli(&["doctor"]);
        let named = says.stdout.contains(case.name) && !says.stdout.contains("alphx");
        assert!(says.code != 0 && named, "{says:?}");
        home.cli(&["doctor", "--repair"]).ok();
        assert_eq!(home.cli(&["doctor"]).code, 0, "{}", case.sql);
        let _daemon = home.up();
        assert!(home.cli(case.lists).ok().stdout.contains("do alpha"));
    }
}

/// Under no mesh of the home nobody meets it, so what is meant to be all there is looks for it.
#[test]
fn lf_39_a_row_that_stands_under_no_mesh_any_more_is_named_by_dump_export_and_status() {
    let home = filled();
    let daemon = home.up();
    home.cli(&["advanced", "dump"]).ok();
    change(
        &home,
        "UPDATE state_kv SET mesh_id = zeroblob(16) WHERE key = 'alpha'",
    );
    for verb in [
        &["advanced", "dump"][..],
        &["advanced", "export", "--format", "jsonl"],
    ] {
        let said = home.cli(verb);
        assert_eq!(said.code, 1, "{verb:?}: {said:?}");
        assert!(said.stderr.contains("state \"alpha\""), "{said:?}");
        assert!(said.stdout.contains("beta"), "{verb:?}");
    }
    let status = daemon.http.get("/v1/status").expect(200).to_string();
    for words in ["state \\\"alpha\\\"", "under no mesh of this home"] {
        assert!(status.contains(words), "{words}: {status}");
    }
}
