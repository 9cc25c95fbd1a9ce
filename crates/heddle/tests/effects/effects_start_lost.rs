//! A start whose answer was lost by the daemon itself: the command was not begun, and that is what everybody is told.

use crate::support;

use serde_json::json;
use support::Ran;
use support::effect_proxy::{ask_daemon, run_through, said};
use support::effect_side::Side;

const START: &str = "/v1/effect/start";

/// The daemon has recorded the start, and nobody hears of it.
fn dies_of_its_answer(side: &Side) -> Ran {
    let mut daemon = Some(side.home.up());
    run_through(&side.home, &side.args(&[]), |path, request| {
        let answer = ask_daemon(&side.home, request)?;
        if path != START {
            return Some(answer);
        }
        daemon.take().unwrap().kill();
        None
    })
}

#[test]
fn a_daemon_that_dies_of_its_answer_leaves_nothing_unknown() {
    let side = Side::new();
    let ran = dies_of_its_answer(&side);
    assert_eq!((ran.code, side.lines()), (5, 0), "{ran:?}");
    let told = ran.json();
    assert_eq!(
        (&told["status"], &told["outcome"]),
        (&json!("unanswered"), &json!("not_started")),
        "{ran:?}"
    );
    for word in [
        "was not begun",
        "kept beside the lock",
        "heddle effect status k",
    ] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
    // Whoever looks first: nothing has happened, nobody has to look at the target, and it is run once.
    let _daemon = side.home.up();
    assert_eq!(side.status(), "registered");
    let second = side.run(&[]).ok();
    assert_eq!((said(&second).as_str(), side.lines()), ("closed", 1));
    assert_eq!(second.json()["duplicate"], false);
    assert_eq!(side.run(&[]).ok().json()["duplicate"], true);
    assert_eq!(side.lines(), 1);
}

#[test]
fn a_daemon_that_comes_back_in_time_is_told_and_the_run_goes_on() {
    let side = Side::new();
    let mut daemon = Some(side.home.up());
    let mut starts = 0;
    let ran = run_through(&side.home, &side.args(&[]), |path, request| {
        let answer = ask_daemon(&side.home, request)?;
        starts += u32::from(path == START);
        if path != START || starts > 1 {
            return Some(answer);
        }
        daemon.take().unwrap().kill();
        daemon = Some(side.home.up());
        None
    });
    assert_eq!((ran.code, side.lines()), (0, 1), "{ran:?}");
    assert_eq!(
        (said(&ran).as_str(), &ran.json()["duplicate"], starts),
        ("closed", &json!(false), 2)
    );
}

#[test]
fn a_start_that_is_heard_late_is_given_back_and_not_called_unknown() {
    let side = Side::new();
    let _daemon = side.home.up();
    let (mut starts, mut late) = (0, None);
    let ran = run_through(&side.home, &side.args(&[]), |path, request| {
        starts += u32::from(path == START);
        match starts {
            1 if path == START => {
                // On its way for long: who decides has not heard it when it is told that nothing was begun.
                late = Some(request.to_vec());
                None
            }
            2 if path == START => {
                ask_daemon(&side.home, &late.take().unwrap());
                ask_daemon(&side.home, request)
            }
            _ => ask_daemon(&side.home, request),
        }
    });
    assert_eq!((ran.code, side.lines()), (0, 1), "{ran:?}");
    assert_eq!(said(&ran), "closed");
    assert!(starts >= 3, "{starts}");
}

/// An attempt that was given up is never begun, so what lies beside the lock about it can do no harm, however late it is read.
#[test]
fn what_was_written_of_a_lost_start_does_not_give_a_later_run_back() {
    let mut side = Side::new();
    let ran = dies_of_its_answer(&side);
    assert_eq!((ran.code, side.lines()), (5, 0), "{ran:?}");
    let effects = side.home.path().join("effects");
    let end = || {
        let files = std::fs::read_dir(&effects).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        files.find(|path| path.extension().is_some_and(|it| it == "end"))
    };
    let path = end().expect("what was not begun");
    let kept = std::fs::read(&path).unwrap();
    let _daemon = side.home.up();
    assert_eq!(side.status(), "registered");
    assert_eq!(end(), None, "what was taken is not kept twice");
    // The next run loses its runner in the middle; then the old file is there once more.
    let go = side.lose_the_runner();
    std::fs::write(&path, kept).unwrap();
    assert_eq!(side.status(), "running");
    side.let_it_end(&go);
    assert_eq!(side.status(), "unknown");
    assert_eq!((side.run(&[]).code, side.lines()), (3, 1));
}
