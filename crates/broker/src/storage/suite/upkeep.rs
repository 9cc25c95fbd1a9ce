//! Expiry, retention, counters, claims.

use std::sync::Arc;

use heddle_core::clock::WallMs;

use super::check;
use crate::storage::{Job, JobClaim};
use crate::test_support::{TestStorage, mesh, mesh_name, on_every_storage};

#[tokio::test]
async fn br_12_c36_an_id_is_there_until_the_sweep_deletes_it_and_only_after_its_time() {
    check(
        "
        member a
        agent a/one
        subscribe a/one #ops
        send from=a/one id=A fp=1 to=#ops at=1000 expires=1010
        send from=a/one id=B fp=1 to=#ops at=1000 expires=1020
        send from=a/one id=C fp=1 to=#ops at=1000 expires=never
        -- Nobody has kept how old they are.
        sweep 9999 -> 0
        age 0 -> 0
        sweep 10 -> 0
        -- Past its time, and still there: it is answered as known (C36).
        send from=a/one id=A fp=1 to=#ops -> duplicate 1.1
        sweep 11 -> 1
        sweep 11 -> 0
        known from=a/one id=A -> absent
        orphans -> none
        -- The id is free again, and its old message has kept its place and its deliveries.
        history -> 1.1=A 1.2=B 1.3=C
        send from=a/one id=A fp=2 to=#ops -> created 1.4
        sweep 9999 -> 1
        -- The last note is older than the new one: it is born with the next.
        age 10000 -> 10000
        sweep 11000 -> 0
        sweep 11001 -> 1
        rows -> dedupe=1 message=4 history=4 delivery=4 mention=0
        ",
    )
    .await;
}

#[tokio::test]
async fn br_13_br_20_a_pruned_body_is_said_at_its_id_and_what_waits_is_kept() {
    check(
        "
        member a
        agent a/one
        subscribe a/one #ops
        send from=a/one id=A fp=1 to=#ops at=10
        send from=a/one id=B fp=1 to=#ops at=11
        send from=a/one id=C fp=1 to=queue:q at=12
        age 20 -> 20
        send from=a/one id=D fp=1 to=#ops at=30 expires=31
        age 90 -> 90
        -- Nobody is younger than before, whatever another broker's clock says.
        age 50 -> 90
        ack a 1.1/one 1.4/one -> 2
        prune 19 -> 0
        prune 20 -> 1
        prune 20 -> 0
        history -> 1.1=p 1.2=B 1.3=C 1.4=D
        explain from=a/one id=A -> 1.1 to=ops until=2000 window=9 counted=true pruned a/one:5000,-,-
        -- A retry is answered as ever.
        send from=a/one id=A fp=1 to=#ops -> duplicate 1.1
        send from=a/one id=A fp=2 to=#ops -> conflict 1
        orphans -> none
        take a/one q -> 1.3#1*1
        prune 20 -> 0
        done a/one q 1.3#1 -> apply
        prune 20 -> 1
        -- Its id was forgotten before its body.
        sweep 91 -> 0
        sweep 92 -> 1
        ack a 1.2/one -> 1
        prune 99 -> 2
        orphans -> none
        rows -> dedupe=3 message=0 history=4 delivery=3 mention=0
        ",
    )
    .await;
}

/// Times of accept jump by years in both directions: what is deleted goes by the ages that were kept, and by nothing else.
#[tokio::test]
async fn xc_05_br_12_no_wall_clock_forgets_an_id_or_a_body() {
    check(
        "
        member a
        agent a/one
        subscribe a/one #ops
        age 0 -> 0
        send from=a/one id=A fp=1 to=#ops at=9000000000000 expires=9000000000100
        send from=a/one id=B fp=1 to=#ops at=5 expires=105
        send from=a/one id=C fp=1 to=queue:q at=-9000000 expires=-8999900
        ack a 1.1/one 1.2/one -> 2
        age 10 -> 10
        sweep 110 -> 0
        prune 9 -> 0
        send from=a/one id=A fp=1 to=#ops -> duplicate 1.1
        send from=a/one id=C fp=1 to=queue:q -> duplicate 1.3
        sweep 111 -> 3
        prune 10 -> 2
        orphans -> none
        ",
    )
    .await;
}

/// Notes that nobody needs any more go, and what they stood for looks younger, never older.
#[tokio::test]
async fn a_note_that_is_thrown_away_makes_nothing_older() {
    check(
        "
        member a
        agent a/one
        topic #ops
        send from=a/one id=A fp=1 to=#ops at=0 expires=10
        age 100 -> 100
        send from=a/one id=B fp=1 to=#ops at=0 expires=10
        age 200 -> 200
        send from=a/one id=C fp=1 to=#ops at=0 expires=10
        age 300 250 -> 300
        -- A was born at 100; what is left says 200.
        sweep 111 -> 0
        sweep 210 -> 0
        sweep 211 -> 2
        sweep 311 -> 1
        ",
    )
    .await;
}

#[tokio::test]
async fn traffic_is_counted_once_by_the_hour() {
    check(
        "
        member a
        agent a/one
        topic #ops
        count -> 0: none
        send from=a/one id=A fp=1 to=#ops at=1
        send from=a/one id=B fp=1 to=#ops at=3600000
        count -> 2: 0=1 3600000=1
        count -> 0: 0=1 3600000=1
        send from=a/one id=C fp=1 to=#ops at=3600001
        count -> 1: 0=1 3600000=2
        ",
    )
    .await;
}

on_every_storage!(one_of_n_claims_a_job_and_a_claim_under_another_clock_counts_for_nothing);

async fn one_of_n_claims_a_job_and_a_claim_under_another_clock_counts_for_nothing<
    S: TestStorage,
>(
    storage: Arc<S>,
) {
    let name = mesh_name("home");
    storage.ensure_mesh(mesh(1), &name).await.unwrap();
    let claim = async |who: &'static str, now: i64, until: i64| {
        let claimed = storage.claim_job(JobClaim {
            mesh: mesh(1),
            job: Job::Sweep,
            holder: who.to_owned(),
            now: WallMs(now),
            until: WallMs(until),
        });
        claimed.await.unwrap().map(|(holder, _)| holder)
    };
    assert_eq!(claim("a", 0, 100).await, None);
    assert_eq!(claim("b", 50, 150).await, Some("a".to_owned()));
    assert_eq!(claim("a", 60, 160).await, None, "its own");
    assert_eq!(claim("b", 160, 260).await, None, "it ended");
    storage.release_job(mesh(1), Job::Sweep, "a").await.unwrap();
    assert_eq!(claim("a", 161, 261).await, Some("b".to_owned()));
    storage.release_job(mesh(1), Job::Sweep, "b").await.unwrap();
    assert_eq!(claim("a", 161, 1 << 40).await, None);
    assert_eq!(claim("b", 162, 262).await, None, "the clock went back");
}
