//! The fold against what it promises: any order, duplicates, forged stamps, and the cases by name.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn peer(name: &str) -> PeerId {
    PeerId::new(name)
}

fn op(lamport: u64, by: &str, id: u128, step: TaskStep) -> TaskOp {
    TaskOp {
        stamp: Stamp {
            lamport,
            peer: peer(by),
            op: OpId(Uuid::from_u128(id)),
        },
        at: WallMs(i64::try_from(id).unwrap() * 1000),
        step,
    }
}

fn create() -> TaskOp {
    let step = TaskStep::Create {
        title: TaskTitle::parse("t").unwrap(),
        description: TaskText::default(),
        blocked_by: Blockers::default(),
    };
    op(1, "ann", 1, step)
}

fn claim() -> TaskStep {
    TaskStep::Claim {
        lease: LeaseMs::new(60_000).unwrap(),
    }
}

fn folded(ops: &[TaskOp]) -> Task {
    fold_task(ops).unwrap()
}

fn kinds(task: &Task) -> Vec<(&str, &str)> {
    let events = task.events.iter();
    events
        .map(|event| (event.peer.as_str(), event.kind.as_str()))
        .collect()
}

/// Steps as people write them: `lamport peer step [number]`.
fn script(lines: &[&str]) -> Vec<TaskOp> {
    let mut ops = vec![create()];
    for (id, line) in (2..).zip(lines) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = || words[3].parse::<u64>().unwrap();
        let step = match words[2] {
            "claim" => claim(),
            "renew" => TaskStep::Renew { fence: number() },
            "release" => TaskStep::Release { fence: number() },
            "done" => TaskStep::Complete {
                fence: words.get(3).map(|fence| fence.parse().unwrap()),
            },
            "cancel" => TaskStep::Cancel,
            "expire" => TaskStep::Expire {
                holder: peer(words[4]),
                fence: number(),
                renewed: words[5].parse().unwrap(),
            },
            other => panic!("{other}"),
        };
        ops.push(op(words[0].parse().unwrap(), words[1], id, step));
    }
    ops
}

#[track_caller]
fn check(lines: &[&str], status: &str, holder: Option<&str>, events: &[(&str, &str)]) {
    let task = folded(&script(lines));
    assert_eq!(task.status.as_str(), status, "{lines:?}");
    let by = task.claim.as_ref().map(|claim| claim.by.as_str());
    assert_eq!(by, holder, "{lines:?}");
    assert_eq!(kinds(&task), events, "{lines:?}");
}

#[test]
fn c7_the_cases_by_name() {
    check(&[], "open", None, &[]);
    check(
        &["2 bob claim"],
        "claimed",
        Some("bob"),
        &[("bob", "claimed")],
    );
    // Two claims: the first in the order wins, and equal counters are told apart by the peer.
    check(
        &["3 bob claim", "2 cat claim"],
        "claimed",
        Some("cat"),
        &[("cat", "claimed"), ("bob", "superseded")],
    );
    check(
        &["2 cat claim", "2 bob claim"],
        "claimed",
        Some("bob"),
        &[("bob", "claimed"), ("cat", "superseded")],
    );
    check(
        &["2 bob claim", "3 bob release 2", "4 cat claim"],
        "claimed",
        Some("cat"),
        &[("bob", "claimed"), ("bob", "released"), ("cat", "claimed")],
    );
    check(
        &["2 bob claim", "3 bob done 2"],
        "completed",
        None,
        &[("bob", "claimed"), ("bob", "completed")],
    );
    check(&["2 bob done"], "completed", None, &[("bob", "completed")]);
    check(
        &["2 bob claim", "3 cat cancel"],
        "cancelled",
        None,
        &[("bob", "claimed"), ("cat", "cancelled")],
    );
}

#[test]
fn lf_23_late_ops_on_a_finished_task_are_recorded_once_and_change_nothing() {
    let before = folded(&script(&["2 bob claim", "3 bob done 2"]));
    let after = folded(&script(&["2 bob claim", "3 bob done 2", "4 cat claim"]));
    let late = after.events.last().unwrap();
    assert_eq!(late.kind, EventKind::RejectedTerminal);
    assert_eq!(late.conflict, Some((peer("bob"), 3)));
    let mut without = after.clone();
    without.events.pop();
    assert_eq!(without, before);
    // The same end again is no news; another end is too late.
    check(
        &["2 bob cancel", "3 bob cancel", "4 cat cancel", "5 cat done"],
        "cancelled",
        None,
        &[
            ("bob", "cancelled"),
            ("cat", "rejected_terminal"),
            ("cat", "rejected_terminal"),
        ],
    );
}

#[test]
fn lf_24_a_lost_claim_has_one_event_that_names_the_winner() {
    let task = folded(&script(&["2 bob claim", "3 cat claim", "5 dan claim"]));
    for (loser, lamport) in [("cat", 3), ("dan", 5)] {
        let lost: Vec<_> = task
            .events
            .iter()
            .filter(|event| event.peer.as_str() == loser)
            .collect();
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].kind, EventKind::Superseded);
        assert_eq!(lost[0].fence, Some(lamport));
        assert_eq!(lost[0].conflict, Some((peer("bob"), 2)));
    }
}

#[test]
fn lf_25_a_repeated_claim_adds_no_event_keeps_the_fence_and_renews() {
    let task = folded(&script(&["2 bob claim", "7 bob claim"]));
    assert_eq!(kinds(&task), [("bob", "claimed")]);
    let claim = task.claim.unwrap();
    assert_eq!((claim.fence, claim.renewed), (2, 7));
}

#[test]
fn a_stale_fence_decides_nothing() {
    // Bob's lease ended, cat holds it; bob's old number is worth nothing.
    let taken = ["2 bob claim", "3 cat expire 2 bob 2", "4 cat claim"];
    let events = [
        ("bob", "claimed"),
        ("bob", "released"),
        ("cat", "claimed"),
        ("bob", "superseded"),
    ];
    for late in ["5 bob done 2", "5 bob release 2"] {
        let lines: Vec<&str> = taken.into_iter().chain([late]).collect();
        check(&lines, "claimed", Some("cat"), &events);
    }
    // The winner's number in another's mouth.
    check(
        &["2 bob claim", "3 cat done 2"],
        "claimed",
        Some("bob"),
        &[("bob", "claimed"), ("cat", "superseded")],
    );
    // Done without a claim while another held it.
    check(
        &["2 bob claim", "3 cat done"],
        "claimed",
        Some("bob"),
        &[("bob", "claimed"), ("cat", "superseded")],
    );
    // Bob holds it again, under a new number.
    let again = [
        "2 bob claim",
        "3 bob release 2",
        "4 bob claim",
        "5 bob done 2",
    ];
    assert_eq!(folded(&script(&again)).status, TaskStatus::Claimed);
}

#[test]
fn an_expire_counts_only_for_the_claim_as_it_was_seen() {
    let end = |lines: &[&str]| folded(&script(lines)).status.as_str();
    assert_eq!(end(&["2 bob claim", "9 cat expire 2 bob 2"]), "open");
    // Renewed before, unknown to cat.
    let renewed = ["2 bob claim", "5 bob renew 2", "9 cat expire 2 bob 2"];
    assert_eq!(end(&renewed), "claimed");
    // Renewed before, and seen: the lease after the renewal ran out.
    let seen = ["2 bob claim", "5 bob renew 2", "9 cat expire 2 bob 5"];
    assert_eq!(end(&seen), "open");
    // Renewed after the end: too late.
    let late = ["2 bob claim", "9 cat expire 2 bob 2", "10 bob renew 2"];
    assert_eq!(end(&late), "open");
    // Of a claim that is not, or is another's.
    assert_eq!(end(&["2 bob claim", "9 cat expire 3 bob 9"]), "claimed");
    assert_eq!(end(&["2 bob claim", "9 cat expire 2 cat 9"]), "claimed");
}

#[test]
fn c38_without_its_create_there_is_no_task() {
    assert_eq!(fold_task(&[]), None);
    assert_eq!(fold_task(&script(&["2 bob claim"])[1..]), None);
}

#[test]
fn a_step_whose_stamp_is_forged_before_the_create_is_folded_behind_it() {
    let mut ops = script(&["0 bob claim"]);
    assert_eq!(folded(&ops).status, TaskStatus::Claimed);
    ops.reverse();
    assert_eq!(folded(&ops).status, TaskStatus::Claimed);
}

#[test]
fn all_six_events_occur() {
    let lines = [
        "2 bob claim",
        "3 cat claim",
        "4 bob release 2",
        "5 cat claim",
        "6 cat done 5",
        "7 bob claim",
    ];
    let mut seen: Vec<_> = folded(&script(&lines))
        .events
        .iter()
        .map(|event| event.kind.as_str())
        .collect();
    seen.extend(
        folded(&script(&["2 bob cancel"]))
            .events
            .iter()
            .map(|event| event.kind.as_str()),
    );
    for kind in EventKind::ALL {
        assert!(seen.contains(&kind.as_str()), "{kind:?} of {seen:?}");
    }
}

fn any_step() -> impl Strategy<Value = TaskStep> {
    let number = 0..8_u64;
    prop_oneof![
        3 => Just(claim()),
        1 => number.clone().prop_map(|fence| TaskStep::Renew { fence }),
        2 => number.clone().prop_map(|fence| TaskStep::Release { fence }),
        2 => proptest::option::of(number.clone()).prop_map(|fence| TaskStep::Complete { fence }),
        1 => Just(TaskStep::Cancel),
        2 => (number.clone(), number, 0..3_usize).prop_map(|(fence, renewed, holder)| {
            let holder = peer(["ann", "bob", "cat"][holder]);
            TaskStep::Expire { holder, fence, renewed }
        }),
    ]
}

fn any_ops() -> impl Strategy<Value = Vec<TaskOp>> {
    let one = (0..8_u64, 0..3_usize, any_step());
    proptest::collection::vec(one, 0..14).prop_map(|steps| {
        let steps = (2..).zip(steps);
        let ops =
            steps.map(|(id, (lamport, by, step))| op(lamport, ["ann", "bob", "cat"][by], id, step));
        std::iter::once(create()).chain(ops).collect()
    })
}

proptest! {
    #[test]
    fn lf_08_lf_22_any_order_with_duplicates_gives_the_same_task(
        (ops, shuffled) in any_ops().prop_flat_map(|ops| {
            let twice: Vec<_> = ops.iter().chain(&ops).cloned().collect();
            (Just(ops), Just(twice).prop_shuffle())
        })
    ) {
        prop_assert_eq!(fold_task(&ops), fold_task(&shuffled));
    }

    #[test]
    fn c7_status_claim_and_end_agree_and_each_op_has_one_event_at_most(ops in any_ops()) {
        let task = folded(&ops);
        prop_assert_eq!(task.claim.is_some(), task.status == TaskStatus::Claimed);
        prop_assert_eq!(task.end.is_some(), task.status.is_finished());
        let mut of: Vec<_> = task.events.iter().map(|event| event.op).collect();
        let count = of.len();
        of.sort_unstable();
        of.dedup();
        prop_assert_eq!(of.len(), count);
        // LF-24: a claim that did not win, renew or come too late lost, and says to whom.
        for op in ops.iter().filter(|op| matches!(op.step, TaskStep::Claim { .. })) {
            let event = task.events.iter().find(|event| event.op == op.stamp.op);
            if let Some(event) = event.filter(|event| event.kind == EventKind::Superseded) {
                prop_assert!(event.conflict.as_ref().is_some_and(|(by, _)| *by != op.stamp.peer));
            }
        }
    }

    #[test]
    fn lf_23_once_finished_no_later_op_changes_status_or_end(ops in any_ops(), late in any_step()) {
        let before = folded(&ops);
        prop_assume!(before.status.is_finished());
        let mut more = ops;
        more.push(op(99, "bob", 999, late));
        let after = folded(&more);
        prop_assert_eq!((after.status, after.end, after.lamport), (before.status, before.end, before.lamport));
        prop_assert!(after.events.len() <= before.events.len() + 1);
    }

    #[test]
    fn a_step_that_the_table_admits_now_is_folded_as_admitted(ops in any_ops(), step in any_step(), by in 0..3_usize) {
        // What the daemon asks before it makes an op is what the fold says after.
        let before = folded(&ops);
        let by = ["ann", "bob", "cat"][by];
        let verdict = before.verdict(&peer(by), &step);
        let mut more = ops;
        more.push(op(99, by, 999, step));
        let after = folded(&more);
        let changed = (after.status, &after.claim, &after.end) != (before.status, &before.claim, &before.end);
        prop_assert_eq!(changed, !verdict.is_lost());
    }
}
