//! A mend of a log that is killed between its pieces.

use std::sync::Arc;

use heddle_core::ids::HistoryId;
use heddle_core::sync::LogHole;

use super::super::mend::piece;
use crate::storage::log::{Mended, Mending};
use crate::storage::{Log as _, Upkeep as _};
use crate::test_support::{Gate, mesh, postgres};

const LOST: &str = "DELETE FROM message WHERE client_message_id = '2' OR client_message_id = '3';
    DELETE FROM log_row WHERE seq = 7;";

/// What it was found by is mended last, with the epoch that tells the homes: killed behind any piece, it is done anew.
#[tokio::test]
async fn lf_15_a_mend_that_is_killed_behind_any_piece_is_done_by_the_next_reader() {
    let at = HistoryId { epoch: 1, seq: 4 };
    for pieces in 0.. {
        let storage = postgres().await;
        let gate = Gate::open(Arc::new(storage.clone())).await;
        gate.subscribe_all(&["a/one"]).await;
        for number in 1..=8 {
            gate.send("a/one", &number.to_string(), "log:ops", "{}")
                .await;
        }
        storage.batch(LOST).await;
        let (mut mending, mut is_done) = (Mending::at(at), false);
        for _ in 0..pieces {
            let done = storage.write(mesh(1), mending.clone(), |tx, mending| {
                Box::pin(piece(tx, mesh(1), mending.clone()))
            });
            match done.await.unwrap() {
                Mended::More(next) => mending = next,
                Mended::Done(_) => is_done = true,
                Mended::Not => panic!("{pieces}"),
            }
        }
        let again = storage.mend_log(mesh(1), at).await.unwrap();
        assert_eq!(again.is_none(), is_done, "{pieces}: {again:?}");
        let epochs = storage.epochs(mesh(1)).await.unwrap();
        let hole = LogHole {
            after: HistoryId { epoch: 1, seq: 1 },
            through: HistoryId { epoch: 1, seq: 3 },
        };
        assert_eq!((epochs.epoch, epochs.holes), (2, vec![hole]), "{pieces}");
        let orphans = storage.orphan_check(mesh(1)).await.unwrap();
        assert_eq!(orphans, [], "{pieces}");
        if is_done {
            assert!(pieces > 8, "more than one piece each: {pieces}");
            break;
        }
    }
}
