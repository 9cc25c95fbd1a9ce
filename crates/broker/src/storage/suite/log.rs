//! The log: order, the op before each, what stays, what an epoch changes.

use heddle_core::ids::HistoryId;

use super::check;
use super::script::{Script, fields, join, number};
use crate::storage::PageLimit;
use crate::test_support::{TestStorage, mesh};

/// ```text
/// log after=1.2 rows=2 bytes=9 -> 1.3<1.1 1.5<1.3       place < the op before it
/// epochs -> 2: 1.7 2.1                                  bump -> 3
/// ```
impl<S: TestStorage> Script<'_, S> {
    pub(super) async fn log(&self, verb: &str, rest: &[&str]) -> String {
        if verb == "bump" {
            return self.storage.bump_epoch(mesh(1)).await.unwrap().to_string();
        }
        if verb == "epochs" {
            let epochs = self.storage.epochs(mesh(1)).await.unwrap();
            let ends = join(epochs.ends.iter().map(ToString::to_string));
            return format!("{}: {ends}", epochs.epoch);
        }
        let fields = fields(rest);
        let after = fields
            .get("after")
            .map_or(HistoryId::ZERO, |text| text.parse().unwrap());
        let limit = PageLimit {
            rows_max: number(&fields, "rows", 100),
            bytes_max: number(&fields, "bytes", 100_000),
        };
        let page = self.storage.log_after(mesh(1), after, limit).await.unwrap();
        assert_eq!(Ok(page.epoch), self.storage.epoch(mesh(1)).await);
        join(page.rows.iter().map(|row| {
            let (at, previous) = (row.history_id, row.previous);
            format!("{at}<{previous}")
        }))
    }
}

#[tokio::test]
async fn c4_ops_are_read_in_order_and_each_names_the_one_before_it() {
    check(
        "
        member a
        agent a/one
        subscribe a/one #ops
        log -> none
        send from=a/one id=A fp=1 to=log bytes=4 -> created 1.1
        send from=a/one id=B fp=1 to=#ops -> created 1.2
        send from=a/one id=C fp=1 to=log bytes=4 ; send from=a/one id=D fp=1 to=log bytes=4 -> created 1.3 ; created 1.4
        -- Nobody is delivered an op; everybody reads it.
        deliveries a -> 1.2/one
        log -> 1.1<0.0 1.3<1.1 1.4<1.3
        log after=1.1 rows=1 -> 1.3<1.1
        log after=1.2 -> 1.3<1.1 1.4<1.3
        log bytes=8 -> 1.1<0.0 1.3<1.1
        log bytes=1 -> 1.1<0.0
        log after=1.4 -> none
        orphans -> none
        rows -> dedupe=4 message=4 history=4 delivery=1 mention=0
        ",
    )
    .await;
}

#[tokio::test]
async fn lf_13_an_op_that_comes_again_gets_the_first_answer_and_no_second_place() {
    check(
        "
        member a
        agent a/one
        send from=a/one id=A fp=1 to=log epoch=1 -> created 1.1
        send from=a/one id=A fp=1 to=log epoch=1 -> duplicate 1.1
        bump -> 2
        -- A known id is answered whatever epoch it names.
        send from=a/one id=A fp=1 to=log epoch=1 -> duplicate 1.1
        send from=a/one id=A fp=2 to=log epoch=2 -> conflict 1
        log -> 1.1<0.0
        ",
    )
    .await;
}

#[tokio::test]
async fn lf_16_an_op_of_another_epoch_is_not_accepted_and_its_id_stays_free() {
    check(
        "
        member a
        agent a/one
        send from=a/one id=A fp=1 to=log epoch=1 -> created 1.1
        send from=a/one id=B fp=1 to=#none -> unknown_recipient
        bump -> 2
        send from=a/one id=B fp=1 to=log epoch=1 -> other_epoch 2
        send from=a/one id=B fp=1 to=log epoch=3 -> other_epoch 2
        known from=a/one id=B -> absent
        send from=a/one id=B fp=1 to=log epoch=2 -> created 2.1
        send from=a/one id=C fp=1 to=log -> created 2.2
        log -> 1.1<0.0 2.1<1.1 2.2<2.1
        epochs -> 2: 1.1 2.2
        bump -> 3
        bump -> 4
        epochs -> 4: 1.1 2.2
        orphans -> none
        ",
    )
    .await;
}

#[tokio::test]
async fn retention_takes_messages_and_leaves_the_log() {
    check(
        "
        member a
        agent a/one
        topic #ops
        send from=a/one id=A fp=1 to=log at=1
        send from=a/one id=B fp=1 to=#ops at=2
        send from=a/one id=C fp=1 to=log at=3 expires=4
        age 10 -> 10
        prune 100 -> 1
        sweep 50 -> 1
        -- Its id was forgotten; it is still read.
        log -> 1.1<0.0 1.3<1.1
        history -> 1.1=A 1.2=p 1.3=C
        orphans -> none
        ",
    )
    .await;
}
