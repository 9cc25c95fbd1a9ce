//! RP-01 to RP-09 and the single-use axis, on every store.

use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_registrar::authority::Nonce;
use heddle_registrar::binding::Effect;
use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::life::Stage;
use heddle_registrar::registrar::RegisterAsk;
use heddle_registrar::rows::Purpose;
use heddle_registrar::storage::{Seen, Storage};

use crate::world::{World, agent, effect, ended, key, person, prior, refused};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn s0_s2_the_key_and_its_registration_are_durable_together<S: Storage>(w: World<S>) {
    assert_eq!(w.facts("k").await.stage(), Stage::Issued);
    let applied = w.registered("k").await;
    let facts = w.facts("k").await;
    assert_eq!(facts.stage(), Stage::Registered);
    assert_eq!(facts.stage().state(), "S2");
    assert_eq!(facts.registration, applied.facts.registration);
    let consumed = facts.consumed.unwrap();
    assert_eq!(
        consumed.replay_key,
        effect("k").replay_key(&consumed.approval)
    );
    let receipt = facts.registration.unwrap().receipt;
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!(receipt["replay_key"], consumed.replay_key.to_hex());
}

async fn rp_01_rg_05_another_attempt_is_no_other_effect<S: Storage>(w: World<S>) {
    let nonce = w.nonce(&effect("k")).await;
    let first = w
        .try_register(&effect("k"), Some(&nonce), Some("a1"))
        .await
        .unwrap();
    assert_eq!(first.kind, Kind::Fresh);
    for attempt in ["a2", "a3"] {
        let again = w
            .try_register(&effect("k"), Some(&nonce), Some(attempt))
            .await
            .unwrap();
        prior(&again, Code::ReplayAttemptNoBypass);
        assert_eq!(again.facts.registration, first.facts.registration);
        assert_eq!(again.facts.consumed, first.facts.consumed);
    }
    let same = w
        .try_register(&effect("k"), Some(&nonce), Some("a1"))
        .await
        .unwrap();
    prior(&same, Code::ReplayDuplicate);
}

async fn rp_02_rg_08_a_fresh_nonce_makes_no_second_effect<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let (first, second) = (w.approve(&envelope).await, w.approve(&envelope).await);
    let third = w.approve(&envelope).await;
    let won = w.register(&effect("k"), Some(&first)).await;
    assert_eq!(won.kind, Kind::Fresh);
    // For what has happened none is granted: neither to do it nor, while nothing is wrong, to make up for it.
    for purpose in [Purpose::Register, Purpose::Compensate] {
        let by = person();
        let late = w.registrar.approve(&envelope, &by, purpose, None).await;
        assert_eq!(late.unwrap().unwrap_err(), Code::StepRefused, "{purpose:?}");
    }
    for fresh in [&second, &third] {
        let again = w.register(&effect("k"), Some(fresh)).await;
        prior(&again, Code::ReplayDuplicate);
        assert_eq!(again.facts.registration, won.facts.registration);
        assert_eq!(again.facts.consumed, won.facts.consumed);
    }
}

async fn rp_03_rg_06_a_used_nonce_authorises_nothing_else<S: Storage>(w: World<S>) {
    let nonce = w.nonce(&effect("k")).await;
    w.register(&effect("k"), Some(&nonce)).await;
    w.request(&effect("other")).await;
    let stolen = w.register(&effect("other"), Some(&nonce)).await;
    refused(&stolen, Code::ReplayNonceConsumed);
    assert_eq!(w.facts("other").await.consumed, None);
}

async fn rp_04_rg_07_a_nonce_outside_envelope_or_window_is_unbound<S: Storage>(w: World<S>) {
    let nonce = w.nonce(&effect("k")).await;
    w.request(&effect("other")).await;
    refused(
        &w.register(&effect("other"), Some(&nonce)).await,
        Code::NonceUnbound,
    );
    let made_up = Nonce::presented("hn_made_up");
    refused(
        &w.register(&effect("k"), Some(&made_up)).await,
        Code::NonceUnbound,
    );
    let other_run = Effect {
        run_id: "r2".into(),
        ..effect("k")
    };
    refused(
        &w.register(&other_run, Some(&nonce)).await,
        Code::NonceUnbound,
    );
    // Before its window (somebody set the clock back), and after it.
    let now = w.registrar.now();
    let late = w.nonce(&effect("late")).await;
    w.clock.set_wall(WallMs(now.0 - 1));
    refused(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::NonceUnbound,
    );
    // Nothing was burned by any of this (RG-10, C42).
    w.clock.set_wall(WallMs(now.0 + 15 * 60 * 1000 - 1));
    assert_eq!(
        w.register(&effect("k"), Some(&nonce)).await.kind,
        Kind::Fresh
    );
    w.clock.set_wall(WallMs(now.0 + 15 * 60 * 1000));
    refused(
        &w.register(&effect("late"), Some(&late)).await,
        Code::NonceUnbound,
    );
    assert_eq!(w.facts("late").await.consumed, None);
}

async fn rp_04_a_nonce_of_another_purpose_or_a_revoked_one_is_unbound<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let by = person();
    let other_purpose = w
        .registrar
        .approve(&envelope, &by, Purpose::Compensate, None);
    assert_eq!(
        other_purpose.await.unwrap().unwrap_err(),
        Code::StepRefused,
        "nothing has happened that could be made up for"
    );
    let nonce = w.approve(&envelope).await;
    w.registrar
        .turn_down(&envelope, &person())
        .await
        .unwrap()
        .unwrap();
    refused(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::NonceUnbound,
    );
    // A new request under the same key is a new envelope, and works.
    let nonce = w.nonce(&effect("k")).await;
    assert_eq!(
        w.register(&effect("k"), Some(&nonce)).await.kind,
        Kind::Fresh
    );
}

async fn rp_05_rg_03_rg_09_an_exact_retry_gets_the_first_answer_and_writes_nothing<S: Storage>(
    w: World<S>,
) {
    let nonce = w.nonce(&effect("k")).await;
    let first = w.register(&effect("k"), Some(&nonce)).await;
    let (facts, log) = (
        w.facts("k").await,
        w.registrar.log(None, 100).await.unwrap(),
    );
    // With its used nonce, with none, with a made-up one.
    for presented in [Some(nonce), None, Some(Nonce::presented("hn_x"))] {
        let again = w.register(&effect("k"), presented.as_ref()).await;
        prior(&again, Code::ReplayDuplicate);
        let receipt = |applied: &heddle_registrar::command::Applied| {
            applied.facts.registration.clone().unwrap().receipt
        };
        assert_eq!(receipt(&again), receipt(&first));
    }
    assert_eq!(w.facts("k").await, facts);
    assert_eq!(w.registrar.log(None, 100).await.unwrap(), log);
}

async fn rg_04_c13_the_same_key_for_something_else_is_refused<S: Storage>(w: World<S>) {
    w.registered("k").await;
    let base = effect("k");
    let others = [
        Effect {
            operation: "deploy".into(),
            ..base.clone()
        },
        Effect {
            target: "staging".into(),
            ..base.clone()
        },
        Effect {
            artifact_hash: "1".repeat(64),
            ..base.clone()
        },
        Effect {
            run_id: "r2".into(),
            ..base.clone()
        },
    ];
    for other in others {
        refused(&w.register(&other, None).await, Code::ReplayBindingMismatch);
        let asked = w.registrar.request(other, &agent()).await.unwrap();
        refused(&asked, Code::ReplayBindingMismatch);
    }
    let ask = RegisterAsk {
        effect: base,
        approval: Some("env_other".into()),
        nonce: None,
        said_attempt: None,
        verify: None,
        command_hash: None,
    };
    let other_approval = w.registrar.register(ask, &agent()).await.unwrap();
    refused(&other_approval, Code::ReplayBindingMismatch);
}

async fn rp_08_rg_15_a_stale_request_is_refused_and_a_stale_key_still_blocks<S: Storage>(
    w: World<S>,
) {
    w.registered("used").await;
    let envelope = w.request(&effect("late")).await;
    let long = w
        .registrar
        .approve(&envelope, &person(), Purpose::Register, Some(60 * 24 * 365))
        .await
        .unwrap()
        .unwrap();
    w.pass(8 * DAY);
    let late = w.register(&effect("late"), long.nonce.as_ref()).await;
    refused(&late, Code::ReplayStaleRequest);
    w.pass(20 * 365 * DAY);
    prior(
        &w.register(&effect("used"), None).await,
        Code::ReplayDuplicate,
    );
    // The key that was refused is still free for a request of today (RG-10).
    w.registered("late").await;
}

async fn rg_10_a_refusal_leaves_the_key_free<S: Storage>(w: World<S>) {
    refused(&w.register(&effect("k"), None).await, Code::ApprovalNeeded);
    let unbound = Nonce::presented("nonsense");
    refused(
        &w.register(&effect("k"), Some(&unbound)).await,
        Code::NonceUnbound,
    );
    assert_eq!(w.facts("k").await.consumed, None);
    w.registered("k").await;
}

async fn rg_12_asking_for_the_status_writes_nothing<S: Storage>(w: World<S>) {
    let log = w.registrar.log(None, 100).await.unwrap().len();
    assert_eq!(w.facts("never").await.consumed, None);
    w.registered("k").await;
    let facts = w.facts("k").await;
    let storage = w.registrar.storage();
    let reached = storage.reached(Seen::default()).await.unwrap();
    // Also when what it would be decided by is over.
    for later in [DAY, 8 * DAY, 20 * 365 * DAY] {
        w.pass(later);
        assert_eq!(w.facts("k").await, facts);
        assert_eq!(w.facts("never").await.consumed, None);
        w.registrar.list(10).await.unwrap();
        w.registrar.kept().await.unwrap();
    }
    assert_eq!(storage.reached(Seen::default()).await.unwrap(), reached);
    // One line more: the attempt of `registered`.
    assert_eq!(w.registrar.log(None, 100).await.unwrap().len(), log + 1);
}

async fn rp_07_rg_13_s3_after_a_failed_verify_there_is_compensation_only<S: Storage>(w: World<S>) {
    let asked = w.request(&effect("k")).await;
    let fresh = w.approve(&asked).await;
    let registered = w.registered("k").await;
    let attempt = registered.facts.consumed.clone().unwrap().attempt_id;
    w.registrar
        .start(key("k"), attempt.clone(), None, &agent())
        .await
        .unwrap();
    w.registrar
        .finish(key("k"), attempt, ended(0), &agent())
        .await
        .unwrap();
    let failed = w
        .registrar
        .verify(key("k"), false, "the page is down".into(), &agent())
        .await;
    assert_eq!(failed.unwrap().facts.stage(), Stage::VerifyFailed);
    // The key stays consumed, whatever nonce comes.
    let envelope = registered.facts.consumed.clone().unwrap().approval;
    let again = w.register(&effect("k"), Some(&fresh)).await;
    prior(&again, Code::ReplayDuplicate);
    assert_eq!(again.facts.stage().state(), "S3");
    let rerun = w
        .registrar
        .start(key("k"), "a2".into(), None, &agent())
        .await
        .unwrap();
    assert_eq!(rerun.kind, Kind::Prior);
    // A nonce for registrations compensates nothing; one for compensation does, once.
    let wrong = w
        .registrar
        .compensate(key("k"), Some(fresh), &agent())
        .await
        .unwrap();
    refused(&wrong, Code::NonceUnbound);
    let caller = person();
    let granted = async || {
        let approved = w
            .registrar
            .approve(&envelope, &caller, Purpose::Compensate, None);
        approved.await.unwrap().unwrap().nonce
    };
    let (nonce, second) = (granted().await, granted().await);
    let begun = w
        .registrar
        .compensate(key("k"), nonce, &agent())
        .await
        .unwrap();
    assert_eq!(
        (begun.kind, begun.facts.stage()),
        (Kind::Fresh, Stage::Compensating)
    );
    let twice = w
        .registrar
        .compensate(key("k"), second, &agent())
        .await
        .unwrap();
    prior(&twice, Code::ReplayDuplicate);
    let attempt = begun.facts.steps.last().unwrap().attempt_id.clone();
    let done = w
        .registrar
        .compensation_done(key("k"), attempt, ended(0), &agent())
        .await;
    assert_eq!(done.unwrap().facts.stage(), Stage::Compensated);
    assert_eq!(
        w.facts("k").await.registration,
        registered.facts.registration
    );
}

/// Whoever finds it registered while the winner has not begun came again as well; only who begins it did not.
async fn rg_03_those_who_come_before_it_is_begun_are_counted<S: Storage>(w: World<S>) {
    let first = w.registered("k").await;
    let first = first.facts.consumed.unwrap().attempt_id;
    let count = || {
        w.registrar
            .retried(Some(&key("k")))
            .first()
            .map(|(_, it)| it.count)
    };
    assert_eq!(count(), None);
    for nth in 1..=3 {
        prior(&w.register(&effect("k"), None).await, Code::ReplayDuplicate);
        assert_eq!(count(), Some(nth));
    }
    let begun = w.registrar.start(key("k"), first, None, &agent()).await;
    assert_eq!(begun.unwrap().kind, Kind::Fresh);
    assert_eq!(count(), Some(3));
    // Of another key the one who came begins it.
    w.registered("j").await;
    w.register(&effect("j"), None).await;
    let late = "late".to_owned();
    let begun = w.registrar.start(key("j"), late, None, &agent()).await;
    assert_eq!(begun.unwrap().kind, Kind::Fresh);
    assert!(w.registrar.retried(Some(&key("j"))).is_empty());
}

on_every_store!(
    rg_03_those_who_come_before_it_is_begun_are_counted,
    s0_s2_the_key_and_its_registration_are_durable_together,
    rp_01_rg_05_another_attempt_is_no_other_effect,
    rp_02_rg_08_a_fresh_nonce_makes_no_second_effect,
    rp_03_rg_06_a_used_nonce_authorises_nothing_else,
    rp_04_rg_07_a_nonce_outside_envelope_or_window_is_unbound,
    rp_04_a_nonce_of_another_purpose_or_a_revoked_one_is_unbound,
    rp_05_rg_03_rg_09_an_exact_retry_gets_the_first_answer_and_writes_nothing,
    rg_04_c13_the_same_key_for_something_else_is_refused,
    rp_08_rg_15_a_stale_request_is_refused_and_a_stale_key_still_blocks,
    rg_10_a_refusal_leaves_the_key_free,
    rg_12_asking_for_the_status_writes_nothing,
    rp_07_rg_13_s3_after_a_failed_verify_there_is_compensation_only,
);
