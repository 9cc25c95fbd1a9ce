//! What a command printed, and how it ended, as far as anybody can know it.

use crate::support;

use support::{Home, Ran};

fn run(home: &Home, key: &str, script: &str) -> Ran {
    let args = [
        "effect", "run", "--key", key, "--op", "deploy", "--target", "prod", "--", "sh", "-c",
        script,
    ];
    home.cli(&args)
}

#[test]
fn what_it_printed_is_printed_however_it_ended_and_again_on_a_retry() {
    let home = Home::new();
    let _daemon = home.up();
    let beside = home.path().with_file_name("runs");
    let script = format!(
        "echo once >> {}; echo half done; echo oops >&2; exit 9",
        beside.display()
    );
    for _ in 0..2 {
        let failed = run(&home, "k", &script);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert_eq!(failed.stdout, "half done\n");
        assert!(failed.stderr.contains("oops"), "{failed:?}");
    }
    assert_eq!(support::text_of(&beside), "once\n");
    // A machine reads one answer, and nothing before it.
    let args = [
        "effect", "run", "--json", "--key", "k", "--op", "deploy", "--target", "prod", "--", "sh",
        "-c", &script,
    ];
    assert_eq!(home.cli(&args).json()["stdout"], "half done\n");
}

/// Whoever reads it by a pipe gets the command's own bytes, the second time as well; what became of it stands beside them.
#[test]
fn a_program_reads_what_the_command_printed_byte_for_byte() {
    let home = Home::new();
    let _daemon = home.up();
    for said in ["k: closed", "nothing was run"] {
        let ran = run(&home, "k", r"printf 'l1\r\nt\tab \033[1mB'");
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, "l1\r\nt\tab \u{1b}[1mB")
        );
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
}

/// The daemon is gone when the command ends, and its end cannot be written beside the lock either.
#[test]
fn an_end_that_nobody_has_is_not_said_to_be_kept() {
    let home = Home::new();
    let daemon = home.up();
    let pid = daemon.child.id();
    let locks = home.path().join("effects");
    let kept = |script: &str| {
        let script = format!("{script} kill -9 {pid}; echo done");
        run(&home, "k", &script)
    };
    let block = format!(
        // The runner notes the process in the same way, a moment after it began.
        "for f in {}/*.lock; do while [ ! -e \"${{f%.lock}}.run\" ]; do sleep 0.01; done; mkdir \"${{f%.lock}}.new\"; done;",
        locks.display()
    );
    let lost = kept(&block);
    assert_eq!(lost.code, 5, "{lost:?}");
    assert_eq!(lost.stdout, "done\n", "the only copy there is");
    assert!(lost.stderr.contains("neither be told nor kept"), "{lost:?}");
    assert!(!lost.stderr.contains("kept beside"), "{lost:?}");
    drop(daemon);
    for entry in std::fs::read_dir(&locks).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "new") {
            std::fs::remove_dir(path).unwrap();
        }
    }
    let _daemon = home.up();
    let status = home.cli(&["effect", "status", "k", "--json"]).ok().json();
    assert_eq!(status["status"], "unknown");
}
