//! Two brokers on one database: races, the line, hints, sessions, and a server that goes away.

use std::collections::BTreeSet;
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::ids::HistoryId;

use super::super::line::GROUP_JOBS_MAX;
use super::super::{PostgresOptions, PostgresStorage};
use super::{furnish, message, two};
use crate::storage::{
    Accepted, Hint, HintLook, Job, JobClaim, LeaseMs, Presence as _, SendId, Storage as _,
    StorageError, Upkeep as _, Wakes as _,
};
use crate::test_support::{member, mesh, postgres_options};

/// The id of `a/one` as a store looks it up.
fn send_id(id: &str) -> SendId {
    message(id, 1, 1).id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c4_commit_order_is_seq_order_across_brokers_and_no_reader_sees_a_gap() {
    let options = postgres_options().await;
    let brokers = two(&options).await;
    let reader = PostgresStorage::open(&options).await.unwrap();
    let watching = tokio::spawn(async move {
        let (mut last, mut seen) = (HistoryId::ZERO, 0);
        while seen < 320 {
            for row in reader.history_after(mesh(1), last, 50).await.unwrap() {
                assert_eq!(row.history_id.seq, last.seq + 1, "a gap became visible");
                last = row.history_id;
                seen += 1;
            }
        }
    });
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..16_u128 {
        let storage = brokers[usize::try_from(sender % 2).unwrap()].clone();
        senders.spawn(async move {
            for n in 0..20 {
                let one = message(&format!("{sender}-{n}"), 1, sender * 1_000 + n + 1);
                let accepted = storage.accept(mesh(1), vec![one]).await.unwrap();
                assert!(
                    matches!(accepted[0], Accepted::Created { .. }),
                    "{accepted:?}"
                );
            }
        });
    }
    senders.join_all().await;
    watching.await.unwrap();
    assert_eq!(brokers[0].orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// L-22: a thousand racing retries of one id, over two brokers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l_22_br_07_a_thousand_racing_retries_of_one_id_are_one_message() {
    let brokers = two(&postgres_options().await).await;
    let mut retries = tokio::task::JoinSet::new();
    for n in 1..=1_000_u128 {
        let storage = brokers[usize::try_from(n % 2).unwrap()].clone();
        retries.spawn(async move { storage.accept(mesh(1), vec![message("hot", 1, n)]).await });
    }
    let mut places = BTreeSet::new();
    let mut created = 0;
    while let Some(answer) = retries.join_next().await {
        match &answer.unwrap().unwrap()[0] {
            Accepted::Created { history_id, .. } => {
                created += 1;
                places.insert(*history_id);
            }
            Accepted::Duplicate(consumed) => drop(places.insert(consumed.history_id)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((created, places.len()), (1, 1));
    // No pile-up: whoever comes stands in line for as many groups as its broker's 500 fill, and for the one that is
    // under way; each group is one transaction with a fixed number of statements
    // (`a_set_takes_the_same_number_of_statements_however_large_it_is`), and the lock of the mesh's row is handed
    // from broker to broker in the order in which they asked. So a wait is bounded in commits, on any machine.
    let groups_max = 500_usize.div_ceil(GROUP_JOBS_MAX);
    for broker in &brokers {
        let waited = broker.lines.groups_waited_max();
        assert!((1..=groups_max as u64).contains(&waited), "{waited}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn br_08_racing_requests_that_differ_have_exactly_one_winner() {
    let brokers = two(&postgres_options().await).await;
    let mut racers = tokio::task::JoinSet::new();
    for n in 1..=200_u8 {
        let storage = brokers[usize::from(n % 2)].clone();
        let one = message("hot", n, u128::from(n));
        racers.spawn(async move { (n, storage.accept(mesh(1), vec![one]).await) });
    }
    let (mut winners, mut told) = (Vec::new(), BTreeSet::new());
    while let Some(answer) = racers.join_next().await {
        let (n, answer) = answer.unwrap();
        match &answer.unwrap()[0] {
            Accepted::Created { .. } => winners.push(n),
            Accepted::Conflict(consumed) => drop(told.insert(consumed.wire_fingerprint.0[0])),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(told, BTreeSet::from([winners[0]]));
    assert_eq!(brokers[0].orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// C5 with two brokers: what a newer session was told is absent, an older one cannot commit any more.
#[tokio::test]
async fn c5_a_message_of_an_older_session_is_void_once_a_newer_has_begun_elsewhere() {
    let brokers = two(&postgres_options().await).await;
    let begin =
        |broker: usize| brokers[broker].begin_session(mesh(1), member("a"), WallMs(1), LeaseMs(9));
    let older = begin(0).await.unwrap();
    let mut late = message("late", 1, 7);
    late.session = Some(older);
    let newer = begin(1).await.unwrap();
    let absent = brokers[1].status(mesh(1), send_id("late")).await;
    assert_eq!(absent, Ok(None));
    let answer = brokers[0]
        .accept(mesh(1), vec![late.clone()])
        .await
        .unwrap();
    assert_eq!(answer, [Accepted::Superseded]);
    late.session = Some(newer);
    let answer = brokers[1]
        .accept(mesh(1), vec![late.clone()])
        .await
        .unwrap();
    assert!(matches!(answer[0], Accepted::Created { .. }), "{answer:?}");
    // A known id is answered, whoever asks.
    late.session = Some(older);
    let answer = brokers[0].accept(mesh(1), vec![late]).await.unwrap();
    assert!(matches!(answer[0], Accepted::Duplicate(_)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_reaches_the_other_broker_and_not_its_own() {
    let brokers = two(&postgres_options().await).await;
    // Each begins with a look at everything: before it listened it may have missed something.
    for broker in &brokers {
        assert_eq!(broker.heard().await, Hint::Missed);
    }
    let look = HintLook {
        members: [member("a")].into(),
        ..HintLook::at(mesh(1))
    };
    brokers[0].tell(Hint::Look(look.clone()));
    assert_eq!(brokers[1].heard().await, Hint::Look(look));
    let cut = Hint::Cut {
        mesh: mesh(1),
        member: member("a"),
        bar: heddle_core::membership::Bar::Blocked,
    };
    brokers[1].tell(cut.clone());
    // What it had said itself would have come first.
    assert_eq!(brokers[0].heard().await, cut);
}

#[tokio::test]
async fn brokers_share_one_lease_time_and_it_never_falls() {
    let brokers = two(&postgres_options().await).await;
    let pass = |broker: usize, ms| brokers[broker].pass_lease_time(mesh(1), LeaseMs(ms));
    assert_eq!(pass(0, 50).await, Ok(LeaseMs(50)));
    assert_eq!(pass(1, 20).await, Ok(LeaseMs(50)));
    assert_eq!(pass(1, 70).await, Ok(LeaseMs(70)));
    assert_eq!(brokers[0].lease_time(mesh(1)).await, Ok(LeaseMs(70)));
}

/// L-23: nobody gets a place in line for a while. Retryable, never a refusal for good, and it passes.
#[tokio::test]
async fn l_23_a_database_that_is_stuck_is_unavailable_and_works_again_afterwards() {
    let options = postgres_options().await;
    let url = format!("{}?options=-c%20lock_timeout=200ms", options.url);
    let storage = PostgresStorage::open(&PostgresOptions { url, ..options })
        .await
        .unwrap();
    furnish(&storage).await;
    let mut client = storage.writer().await.unwrap();
    let holding = client.transaction().await.unwrap();
    holding
        .batch_execute("SELECT 1 FROM mesh FOR UPDATE")
        .await
        .unwrap();
    let stuck = storage.accept(mesh(1), vec![message("A", 1, 1)]).await;
    assert!(
        matches!(stuck, Err(StorageError::Unavailable(_))),
        "{stuck:?}"
    );
    let known = storage.known(mesh(1), vec![send_id("A")]).await.unwrap();
    assert_eq!(
        known[0].consumed, None,
        "a look-up does not wait for writers"
    );
    holding.rollback().await.unwrap();
    let accepted = storage.accept(mesh(1), vec![message("A", 1, 1)]).await;
    assert!(matches!(accepted.unwrap()[0], Accepted::Created { .. }));
}

/// T-29: a group that is more than the server does in time gets smaller, and everything gets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t_29_a_group_that_takes_the_server_too_long_is_made_smaller_and_gets_through() {
    // More than any pace that can be learned here: at most 19 rows are in time, so 38 are tried at most, and where 19 of
    // those are all that is left, 76 would be.
    const SENDERS: u128 = 128;
    let options = postgres_options().await;
    let schema = options.schema.clone();
    let url = format!("{}?options=-c%20statement_timeout=400ms", options.url);
    let storage = PostgresStorage::open(&PostgresOptions { url, ..options })
        .await
        .unwrap();
    furnish(&storage).await;
    let slow = format!(
        "CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON {schema}.message FOR EACH ROW EXECUTE FUNCTION {schema}.slow()"
    );
    storage.batch(&slow).await;
    let mut senders = tokio::task::JoinSet::new();
    for n in 1..=SENDERS {
        let storage = storage.clone();
        senders.spawn(async move {
            for tries in 1_u32.. {
                let one = message(&format!("m{n}"), 1, n);
                match storage.accept(mesh(1), vec![one]).await {
                    Ok(accepted) => {
                        assert!(matches!(accepted[0], Accepted::Created { .. }));
                        return tries;
                    }
                    Err(StorageError::Unavailable(_)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            unreachable!()
        });
    }
    let tries = senders.join_all().await;
    let most = tries.iter().max().unwrap();
    assert!(*most <= 20, "{tries:?}");
    // It has learned how much the server does in time, and knows it though nobody waits any more.
    let learned = u128::try_from(storage.lines.messages_max(mesh(1))).unwrap();
    assert!(learned < SENDERS, "{learned}: {tries:?}");
    assert_eq!(storage.orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// BR-09: connections cut under load. Every answer is a verdict or "unknown", and a retry finds the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn br_09_connections_that_are_cut_leave_only_unknown_answers_and_retries_find_the_truth() {
    let apart = postgres_options().await;
    let name = &apart.schema;
    let options = PostgresOptions {
        url: format!("{}?application_name={name}", apart.url),
        ..apart.clone()
    };
    let brokers = two(&options).await;
    let killer = PostgresStorage::open(&apart).await.unwrap();
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = '{name}' AND random() < 0.5"
    );
    let cutting = tokio::spawn(async move {
        for _ in 0..20 {
            killer.batch(&cut).await;
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    });
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..8_u128 {
        let storage = brokers[usize::try_from(sender % 2).unwrap()].clone();
        senders.spawn(async move {
            for n in 0..25 {
                let one = message(&format!("{sender}-{n}"), 1, sender * 1_000 + n + 1);
                loop {
                    match storage.accept(mesh(1), vec![one.clone()]).await {
                        Ok(answer) => match &answer[0] {
                            Accepted::Created { .. } | Accepted::Duplicate(_) => break,
                            other => panic!("{other:?}"),
                        },
                        Err(StorageError::Unavailable(_)) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
        });
    }
    senders.join_all().await;
    cutting.await.unwrap();
    let history = brokers[0].history_after(mesh(1), HistoryId::ZERO, 999);
    assert_eq!(history.await.unwrap().len(), 200);
    assert_eq!(brokers[0].orphan_check(mesh(1)).await, Ok(Vec::new()));
}

/// The claim of a broker that died is free with its connection, not with the end that it meant; one that lives
/// and takes longer than it meant keeps it.
#[tokio::test]
async fn a_job_of_many_brokers_is_done_by_one_and_free_when_that_one_dies() {
    let [first, second] = two(&postgres_options().await).await;
    let claim = |broker: &PostgresStorage, who: &'static str, now: i64, until: i64| {
        let broker = broker.clone();
        async move {
            let claimed = broker.claim_job(JobClaim {
                mesh: mesh(1),
                job: Job::Sweep,
                holder: who.to_owned(),
                now: WallMs(now),
                until: WallMs(until),
            });
            claimed.await.unwrap().map(|(holder, _)| holder)
        }
    };
    assert_eq!(claim(&first, "one", 1, 100).await, None);
    assert_eq!(claim(&second, "two", 2, 100).await, Some("one".to_owned()));
    assert_eq!(
        claim(&second, "two", 500, 600).await,
        Some("one".to_owned()),
        "it is still at it"
    );
    assert_eq!(claim(&first, "one", 500, 600).await, None, "renewed");
    first.release_job(mesh(1), Job::Sweep, "one").await.unwrap();
    assert_eq!(claim(&second, "two", 510, 1_000).await, None, "given back");
    second
        .release_job(mesh(1), Job::Sweep, "two")
        .await
        .unwrap();
    assert_eq!(claim(&first, "one", 520, 3_000_000).await, None);
    // It dies with the claim in its hands.
    first.stop().await;
    drop(first);
    // The server hears of it by the end of the connection.
    let mut is_free = false;
    for _ in 0..600 {
        is_free = claim(&second, "two", 530, 1_000).await.is_none();
        if is_free {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_free, "the end it meant is far away");
}
