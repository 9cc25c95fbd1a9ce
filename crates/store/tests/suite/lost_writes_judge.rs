//! Who is told that its write was lost, judged by causes: in any order of writing, sending and reading.

use std::collections::{BTreeMap, BTreeSet};

use heddle_core::ids::OpId;
use heddle_core::lamport::Stamp;
use heddle_core::op::{OpBody, Over};
use heddle_store::Loss;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

use crate::lost_writes::Log;
use crate::sync_home::{Home, op_of};

/// A step of one of three homes.
#[derive(Debug, Clone, Copy)]
enum Step {
    Set(usize),
    Delete(usize),
    Push,
    Pull(usize),
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        4 => (0..2_usize).prop_map(Step::Set),
        1 => (0..2_usize).prop_map(Step::Delete),
        2 => Just(Step::Push),
        3 => (1..4_usize).prop_map(Step::Pull),
    ];
    (0..3_usize, step)
}

/// The judge's own idea: which writes a home has seen, and which each write was made in sight of.
#[derive(Default)]
struct Judged {
    seen: BTreeSet<OpId>,
    row: BTreeMap<String, Made>,
    told: Vec<(u64, u64, String)>,
    read: usize,
}

#[derive(Clone)]
struct Made {
    stamp: Stamp,
    home: usize,
    value: Option<String>,
    key: String,
    past: BTreeSet<OpId>,
}

impl Judged {
    fn take(&mut self, home: usize, made: &Made) {
        if !self.seen.insert(made.stamp.op) {
            return;
        }
        if let Some(row) = self.row.get(&made.key) {
            if row.stamp > made.stamp {
                return;
            }
            let is_unseen = !made.past.contains(&row.stamp.op);
            if row.home == home && is_unseen && row.value != made.value {
                let by = made.stamp.peer.as_str().to_owned();
                self.told.push((row.stamp.lamport, made.stamp.lamport, by));
            }
        }
        self.row.insert(made.key.clone(), made.clone());
    }
}

#[tokio::test]
async fn in_any_order_of_arrival_the_warned_are_those_that_a_judge_of_causes_names() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut losses = 0;
    for _ in 0..16 {
        let plan = proptest::collection::vec(step(), 20..60);
        let plan = plan.new_tree(&mut runner).unwrap().current();
        losses += judged(&plan).await;
    }
    assert!(losses > 10, "the plans make losses: {losses}");
}

async fn judged(plan: &[(usize, Step)]) -> usize {
    let homes = [
        Home::shared(1).await,
        Home::shared(2).await,
        Home::shared(3).await,
    ];
    let mut judges: [Judged; 3] = Default::default();
    let mut made: BTreeMap<OpId, Made> = BTreeMap::new();
    let mut log = Log::default();
    let quiet = (0..3).map(|home| (home, Step::Push));
    let quiet = quiet.chain((0..3).map(|home| (home, Step::Pull(usize::MAX))));
    for (number, (who, step)) in plan.iter().copied().chain(quiet).enumerate() {
        let (home, judge) = (&homes[who], &mut judges[who]);
        match step {
            Step::Set(_) | Step::Delete(_) => {
                let (at, new) = match step {
                    Step::Set(at) => (at, Some(json!(number))),
                    Step::Delete(at) => (at, None),
                    Step::Push | Step::Pull(_) => continue,
                };
                let at = format!("k{at}");
                if !home.write(&at, new.clone()).await {
                    continue;
                }
                let op = op_of(home.due().await.last().unwrap());
                assert!(op.body.says_over() && op.over != Over::Unsaid);
                let OpBody::State(_) = &op.body else {
                    panic!("{op:?}");
                };
                let new = Made {
                    stamp: op.stamp.clone(),
                    home: who,
                    value: new.map(|new| new.to_string()),
                    key: at,
                    past: judge.seen.clone(),
                };
                judge.take(who, &new);
                made.insert(op.stamp.op, new);
            }
            Step::Push => log.push(home).await,
            Step::Pull(most) => {
                let end = log.pull(home, most).await;
                for place in judge.read..end {
                    let id: OpId = log.0[place].client_message_id.as_str().parse().unwrap();
                    judge.take(who, &made[&id]);
                }
                judge.read = end;
            }
        }
    }
    let mut losses = 0;
    for (home, judge) in homes.iter().zip(&judges) {
        let told = told_by(home).await;
        assert_eq!(told, judge.told, "{plan:?}");
        losses += told.len();
        let dump = home.store.dump(home.mesh, 0, usize::MAX).await.unwrap();
        let first = homes[0].store.dump(home.mesh, 0, usize::MAX).await.unwrap();
        assert_eq!(dump.lines, first.lines, "LF-09");
    }
    losses
}

/// Everything that the home's agent is told: who lost, to which number, of whom.
async fn told_by(home: &Home) -> Vec<(u64, u64, String)> {
    let mut told = Vec::new();
    loop {
        let page = home.told().await;
        if page.is_empty() {
            return told;
        }
        told.extend(page.into_iter().map(|loss| {
            let Loss { yours, theirs, .. } = loss;
            (yours.lamport, theirs.lamport, theirs.peer)
        }));
    }
}
