//! Random histories of the outbox against a model.

use proptest::prelude::*;

use crate::fixture::Fixture;
use crate::pair::Pair;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Accept {
        agent: u8,
        id: u8,
        print: u8,
        refused: bool,
    },
    Take {
        now: u64,
        items_max: usize,
        bytes_max: usize,
    },
    TakeOne {
        row: usize,
    },
    Settle {
        row: usize,
        verdict: u8,
        due: u64,
    },
    Requeue {
        row: usize,
        id: u8,
    },
    Recover,
}

fn step() -> impl Strategy<Value = Step> {
    let row = 0..12_usize;
    prop_oneof![
        5 => (0..2_u8, 0..6_u8, 1..3_u8, prop::bool::weighted(0.2))
            .prop_map(|(agent, id, print, refused)| Step::Accept { agent, id, print, refused }),
        3 => (0..4_u64, 1..5_usize, 0..20_usize).prop_map(|(now, items_max, bytes_max)| {
            Step::Take { now: now * 700, items_max, bytes_max }
        }),
        2 => row.clone().prop_map(|row| Step::TakeOne { row }),
        5 => (row.clone(), 0..3_u8, 0..4_u64)
            .prop_map(|(row, verdict, due)| Step::Settle { row, verdict, due: due * 500 }),
        3 => (row, 0..9_u8).prop_map(|(row, id)| Step::Requeue { row, id }),
        1 => Just(Step::Recover),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn ob_dr_any_history_of_the_outbox_is_the_one_that_the_model_tells(
        steps in prop::collection::vec(step(), 1..50)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut pair = Pair { fixture: Fixture::new(), rows: Vec::new() };
        runtime.block_on(async {
            for step in steps {
                pair.run(step).await;
            }
        });
    }
}
