//! Priorities: what is urgent overtakes, and no cursor ever skips what was overtaken.

use std::collections::BTreeSet;

use heddle_core::envelope::Priority;
use proptest::prelude::*;

use super::check;
use super::script::{self, Script};
use crate::storage::{Ack, Delivery, DeliveryCursor, PageLimit, Storage};
use crate::test_support::{TestStorage, member, memory, mesh, postgres, sqlite};

#[tokio::test]
async fn urgent_deliveries_come_first_and_what_they_overtook_comes_after() {
    check(
        "
        member a
        agent a/one
        agent a/two
        subscribe a/one #ops
        subscribe a/two #ops
        send from=a/one id=A fp=1 to=#ops priority=low
        send from=a/one id=B fp=1 to=#ops
        send from=a/one id=C fp=1 to=#ops priority=now
        deliveries a -> 1.3/one 1.3/two 1.2/one 1.2/two 1.1/one 1.1/two
        deliveries a rows=3 -> 1.3/one 1.3/two 1.2/one
        deliveries a after_now=1.3/two after=1.2/one -> 1.2/two 1.1/one 1.1/two
        -- Read to the end; then something urgent and something ordinary come in.
        send from=a/one id=D fp=1 to=#ops
        send from=a/one id=E fp=1 to=#ops priority=now
        deliveries a after_now=1.3/two after=1.2/two after_low=1.1/two -> 1.5/one 1.5/two 1.4/one 1.4/two
        ack a 1.5/one 1.1/two 1.4/one -> 3
        deliveries a -> 1.3/one 1.3/two 1.5/two 1.2/one 1.2/two 1.4/two 1.1/one
        ",
    )
    .await;
}

#[derive(Debug, Clone)]
enum Step {
    Send(Priority),
    /// Reads a page of at most so many, and holds every second row of it.
    Read(usize),
    /// A new connection: everything that is not held comes again.
    Reconnect,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::sample::select(Priority::ALL.to_vec()).prop_map(Step::Send),
        4 => (1..5_usize).prop_map(Step::Read),
        1 => Just(Step::Reconnect),
    ]
}

/// Two mailboxes of one member; every message goes to both.
const SETUP: &str = "
    member a
    agent a/one
    agent a/two
    subscribe a/one #ops
    subscribe a/two #ops
";

/// The judge: it knows what was sent, what was held and what this connection was given.
#[derive(Default)]
struct Judge {
    sent: Vec<Priority>,
    held: BTreeSet<Ack>,
    given: BTreeSet<Ack>,
}

impl Judge {
    /// What should come next, in order.
    fn waiting(&self) -> Vec<Ack> {
        let mut rows: Vec<(u8, Ack)> = Vec::new();
        for (index, priority) in self.sent.iter().enumerate() {
            for agent in ["one", "two"] {
                let row = script::place(&format!("1.{}/{agent}", index + 1));
                if !self.held.contains(&row) && !self.given.contains(&row) {
                    rows.push((priority.rank(), row));
                }
            }
        }
        rows.sort();
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

async fn follow<S: TestStorage>(storage: &S, steps: &[Step]) {
    script::run(storage, SETUP).await;
    let mut script = Script { storage, sent: 0 };
    let mut judge = Judge::default();
    let mut cursor = DeliveryCursor::START;
    for step in steps.iter().chain(&[Step::Read(10_000)]) {
        match step {
            Step::Send(priority) => {
                judge.sent.push(*priority);
                let id = judge.sent.len();
                let priority = priority.as_str();
                let line = format!("send from=a/one id={id} fp=1 to=#ops priority={priority}");
                assert_eq!(script.line(&line).await, format!("created 1.{id}"));
            }
            Step::Reconnect => {
                judge.given.clear();
                cursor = DeliveryCursor::START;
            }
            Step::Read(rows_max) => {
                let page = read(storage, &cursor, *rows_max).await;
                let mut expected = judge.waiting();
                expected.truncate(*rows_max);
                let got: Vec<Ack> = page.iter().map(ack_of).collect();
                assert_eq!(got, expected);
                for delivery in &page {
                    cursor.pass(delivery);
                }
                let held: Vec<Ack> = got.iter().step_by(2).cloned().collect();
                let at = script::AT;
                storage
                    .ack(mesh(1), member("a"), held.clone(), at)
                    .await
                    .unwrap();
                judge.given.extend(got);
                judge.held.extend(held);
            }
        }
    }
}

async fn read<S: Storage>(storage: &S, cursor: &DeliveryCursor, rows_max: usize) -> Vec<Delivery> {
    let limit = PageLimit {
        rows_max,
        bytes_max: usize::MAX,
    };
    let page = storage.deliveries_after(mesh(1), member("a"), cursor.clone(), limit);
    page.await.unwrap()
}

fn ack_of(delivery: &Delivery) -> Ack {
    Ack {
        history_id: delivery.history_id,
        agent: delivery.agent.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_of_sends_reads_acks_and_reconnects_skips_or_repeats_a_row(
        steps in prop::collection::vec(steps(), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            follow(memory().as_ref(), &steps).await;
            follow(&sqlite().storage, &steps).await;
        });
    }
}

proptest! {
    // Each of them makes tables of its own.
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 32, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_skips_or_repeats_a_row_of_postgres(
        steps in prop::collection::vec(steps(), 1..40)
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async { follow(&postgres().await, &steps).await });
    }
}
