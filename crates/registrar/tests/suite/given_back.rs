//! Rounds that are given back: a command that could not be started, and a compensation whose runner died.

use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Kind};
use heddle_registrar::life::Stage;
use heddle_registrar::storage::Storage;

use crate::world::{World, agent, effect, ended, key, person, prior, refused, worker};

fn stands(applied: &Applied, kind: Kind, stage: Stage) {
    assert_eq!((applied.kind, applied.facts.stage()), (kind, stage));
}

async fn what_could_not_be_started_may_be_run_again<S: Storage>(w: World<S>) {
    w.registered("k").await;
    let by = agent();
    let start = async |attempt: &str| {
        let started = w.registrar.start(key("k"), attempt.into(), None, &by);
        started.await.unwrap()
    };
    let not_started = async |attempt: &str| {
        let told = w
            .registrar
            .not_started(key("k"), attempt.into(), "no such file".into(), &by);
        told.await.unwrap()
    };
    refused(&not_started("a1").await, Code::StepRefused);
    start("a1").await;
    // Only whoever took the run knows.
    refused(&not_started("a2").await, Code::StepRefused);
    stands(&not_started("a1").await, Kind::Fresh, Stage::Registered);
    prior(&not_started("a1").await, Code::ReplayDuplicate);
    let second = start("a2").await;
    assert_eq!((second.kind, second.facts.round()), (Kind::Fresh, 2));
    let ghost = w.registrar.finish(key("k"), "a1".into(), ended(0), &by);
    refused(&ghost.await.unwrap(), Code::StepRefused);
    let done = w.registrar.finish(key("k"), "a2".into(), ended(0), &by);
    stands(&done.await.unwrap(), Kind::Fresh, Stage::Finished);
    refused(&not_started("a2").await, Code::StepRefused);
}

/// The attempt's id is in the status, for everybody to read.
async fn nobody_else_says_how_a_run_ended<S: Storage>(w: World<S>) {
    w.registered("k").await;
    let (by, other) = (agent(), worker());
    let started = w.registrar.start(key("k"), "a".into(), None, &by).await;
    started.unwrap();
    let forged = w.registrar.finish(key("k"), "a".into(), ended(0), &other);
    refused(&forged.await.unwrap(), Code::StepRefused);
    let forged = w
        .registrar
        .not_started(key("k"), "a".into(), "nope".into(), &other);
    refused(&forged.await.unwrap(), Code::StepRefused);
    let done = w.registrar.finish(key("k"), "a".into(), ended(4), &by);
    stands(&done.await.unwrap(), Kind::Fresh, Stage::Finished);
    let forged = w.registrar.finish(key("k"), "a".into(), ended(4), &other);
    refused(&forged.await.unwrap(), Code::StepRefused);
}

/// To the failed verification; then the first compensation, whose runner dies.
async fn compensating<S: Storage>(w: &World<S>) -> String {
    w.registered("k").await;
    let by = agent();
    w.registrar
        .start(key("k"), "a".into(), None, &by)
        .await
        .unwrap();
    let ended = w.registrar.finish(key("k"), "a".into(), ended(1), &by);
    ended.await.unwrap();
    let verdict = w.registrar.verify(key("k"), false, String::new(), &by);
    verdict.await.unwrap();
    begin(w).await
}

async fn begin<S: Storage>(w: &World<S>) -> String {
    let begun = w.registrar.compensate(key("k"), None, &person()).await;
    let begun = begun.unwrap();
    stands(&begun, Kind::Fresh, Stage::Compensating);
    begun.facts.compensator().unwrap().attempt_id.clone()
}

async fn rg_13_a_lost_compensation_begins_again_only_on_a_persons_word<S: Storage>(w: World<S>) {
    let lost = compensating(&w).await;
    let second = w.registrar.compensate(key("k"), None, &person()).await;
    prior(&second.unwrap(), Code::ReplayDuplicate);
    let resolve = async |again| {
        let by = person();
        let said = w.registrar.resolve(effect("k"), again, String::new(), &by);
        said.await.unwrap()
    };
    let by = agent();
    let agent_said = w.registrar.resolve(effect("k"), true, String::new(), &by);
    refused(&agent_said.await.unwrap(), Code::ApprovalRefused);
    stands(&resolve(true).await, Kind::Fresh, Stage::VerifyFailed);
    // Nothing but a compensation can follow, and only under a further nonce.
    let run = w
        .registrar
        .start(key("k"), "b".into(), None, &agent())
        .await;
    assert_eq!(run.unwrap().kind, Kind::Prior);
    let next = begin(&w).await;
    assert_ne!(next, lost);
    let ghost = w.registrar.compensation_done(key("k"), lost, ended(0), &by);
    refused(&ghost.await.unwrap(), Code::StepRefused);
    stands(&resolve(false).await, Kind::Fresh, Stage::Compensated);
    let third = w.registrar.compensate(key("k"), None, &person()).await;
    prior(&third.unwrap(), Code::ReplayDuplicate);
}

async fn a_compensation_that_could_not_be_started_may_begin_again<S: Storage>(w: World<S>) {
    let attempt = compensating(&w).await;
    let by = person();
    let told = w
        .registrar
        .not_started(key("k"), attempt, "no such file".into(), &by);
    stands(&told.await.unwrap(), Kind::Fresh, Stage::VerifyFailed);
    let next = begin(&w).await;
    let done = w.registrar.compensation_done(key("k"), next, ended(0), &by);
    stands(&done.await.unwrap(), Kind::Fresh, Stage::Compensated);
}

async fn rg_13_a_failed_compensation_is_not_done_and_waits_for_a_word<S: Storage>(w: World<S>) {
    let failed = compensating(&w).await;
    let by = person();
    let end = |attempt: &str, code| {
        let attempt = attempt.to_owned();
        w.registrar
            .compensation_done(key("k"), attempt, ended(code), &by)
    };
    let told = end(&failed, 3).await.unwrap();
    stands(&told, Kind::Fresh, Stage::CompensationFailed);
    assert_eq!(told.facts.compensation_outcome(), Some(&ended(3)));
    prior(&end(&failed, 3).await.unwrap(), Code::ReplayDuplicate);
    refused(&end(&failed, 0).await.unwrap(), Code::StepRefused);
    // Asked again nothing begins, under no nonce.
    let again = w.registrar.compensate(key("k"), None, &by).await.unwrap();
    stands(&again, Kind::Prior, Stage::CompensationFailed);
    let resolve = |again| w.registrar.resolve(effect("k"), again, String::new(), &by);
    stands(
        &resolve(true).await.unwrap(),
        Kind::Fresh,
        Stage::VerifyFailed,
    );
    let second = begin(&w).await;
    assert_eq!(w.facts("k").await.compensation_outcome(), None);
    let told = end(&second, 4).await.unwrap();
    assert_eq!(told.facts.compensation_outcome(), Some(&ended(4)));
    stands(
        &resolve(false).await.unwrap(),
        Kind::Fresh,
        Stage::Compensated,
    );
}

async fn every_id_leads_to_its_key<S: Storage>(w: World<S>) {
    let registered = w.registered("k").await;
    let facts = registered.facts;
    let consumed = facts.consumed.unwrap();
    let registration = facts.registration.unwrap().registration_id;
    w.registrar
        .start(key("k"), "runner".into(), None, &agent())
        .await
        .unwrap();
    for id in [consumed.approval, registration, consumed.attempt_id] {
        let found = w.registrar.key_of(&id).await.unwrap();
        assert_eq!(found, Some(key("k")), "{id}");
    }
    let of_step = w.registrar.key_of("runner").await.unwrap();
    assert_eq!(of_step, Some(key("k")));
    assert_eq!(w.registrar.key_of("nobody").await.unwrap(), None);
}

on_every_store!(
    nobody_else_says_how_a_run_ended,
    what_could_not_be_started_may_be_run_again,
    rg_13_a_lost_compensation_begins_again_only_on_a_persons_word,
    a_compensation_that_could_not_be_started_may_begin_again,
    rg_13_a_failed_compensation_is_not_done_and_waits_for_a_word,
    every_id_leads_to_its_key,
);
