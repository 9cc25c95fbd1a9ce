//! Who may ask, who may approve, and what the policy says.

use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::registrar::RegisterAsk;
use heddle_registrar::rows::{Purpose, Ruling};
use heddle_registrar::storage::Storage;
use heddle_registrar::storage::memory::Memory;

use crate::world::{Raw, World, agent, effect, ended, key, person, prior, refused, with_policy};

async fn asking_twice_is_one_request<S: Storage>(w: World<S>) {
    let first = w.registrar.request(effect("k"), &agent()).await.unwrap();
    assert_eq!(first.kind, Kind::Fresh);
    let again = w.registrar.request(effect("k"), &person()).await.unwrap();
    prior(&again, Code::ReplayDuplicate);
    assert_eq!(again.facts.envelopes, first.facts.envelopes);
    let envelope = &first.facts.envelopes[0];
    assert_eq!(envelope.status(w.registrar.now()), "awaiting_approval");
    assert_eq!(
        envelope.row.replay_key,
        effect("k").replay_key(&envelope.row.envelope_id)
    );
    let listed = w.registrar.list(10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key.as_str(), "k");
}

async fn only_somebody_with_the_right_approves_denies_and_revokes<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let tried = w
        .registrar
        .approve(&envelope, &agent(), Purpose::Register, None)
        .await;
    assert_eq!(tried.unwrap().unwrap_err(), Code::ApprovalRefused);
    let tried = w.registrar.turn_down(&envelope, &agent()).await;
    assert_eq!(tried.unwrap().unwrap_err(), Code::ApprovalRefused);
    let unknown = w
        .registrar
        .approve("env_x", &person(), Purpose::Register, None)
        .await;
    assert_eq!(unknown.unwrap().unwrap_err(), Code::NotFound);
    let denied = w
        .registrar
        .turn_down(&envelope, &person())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(denied.facts.envelopes[0].ruling(), Some(Ruling::Denied));
    let late = w
        .registrar
        .approve(&envelope, &person(), Purpose::Register, None)
        .await;
    assert_eq!(late.unwrap().unwrap_err(), Code::ApprovalRefused);
    // What has happened is not taken back by a word.
    w.registered("k").await;
    let used = w.facts("k").await.consumed.unwrap().approval;
    let revoked = w.registrar.turn_down(&used, &person()).await;
    assert_eq!(revoked.unwrap().unwrap_err(), Code::StepRefused);
}

async fn a_person_who_runs_it_has_said_yes_unless_a_word_was_asked_for<S: Storage>(w: World<S>) {
    let ask = |key: &str| RegisterAsk {
        effect: effect(key),
        approval: None,
        nonce: None,
        said_attempt: None,
        verify: None,
    };
    let own = w.registrar.register(ask("own"), &person()).await.unwrap();
    assert_eq!(own.kind, Kind::Fresh);
    let theirs = w.registrar.register(ask("theirs"), &agent()).await.unwrap();
    refused(&theirs, Code::ApprovalNeeded);
    w.request(&effect("asked")).await;
    let asked = w.registrar.register(ask("asked"), &person()).await.unwrap();
    refused(&asked, Code::ApprovalNeeded);
}

async fn an_approval_whose_window_is_over_is_expired_and_asked_for_anew<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let by = person();
    let long = w
        .registrar
        .approve(&envelope, &by, Purpose::Register, Some(60 * 24 * 365));
    let facts = w.facts("k").await;
    let asked = &facts.envelopes[0];
    assert_eq!(
        long.await.unwrap().unwrap().expires_at,
        asked.row.expires_at,
        "no longer than its request"
    );
    let short = w.request(&effect("short")).await;
    let nonce = w.approve(&short).await;
    w.pass(std::time::Duration::from_secs(16 * 60));
    let now = w.registrar.now();
    let status = |facts: &heddle_registrar::facts::Facts| facts.envelopes[0].status(now);
    assert_eq!(status(&w.facts("short").await), "expired");
    assert_eq!(status(&w.facts("k").await), "approved");
    refused(
        &w.register(&effect("short"), Some(&nonce)).await,
        Code::NonceUnbound,
    );
    // The same person may grant it once more; whoever asks again asks anew.
    let again = w
        .registrar
        .request(effect("short"), &agent())
        .await
        .unwrap();
    assert_eq!((again.kind, again.facts.envelopes.len()), (Kind::Fresh, 2));
    let nonce = w.approve(&short).await;
    let done = w.register(&effect("short"), Some(&nonce)).await;
    assert_eq!(done.kind, Kind::Fresh);
}

async fn without_a_word_of_its_own_nobody_compensates<S: Storage>(w: World<S>) {
    let attempt = w.registered("k").await.facts.consumed.unwrap().attempt_id;
    let (by, person) = (agent(), person());
    let started = w.registrar.start(key("k"), attempt.clone(), &by).await;
    started.unwrap();
    let told = w.registrar.finish(key("k"), attempt, ended(1), &by).await;
    told.unwrap();
    let verdict = w
        .registrar
        .verify(key("k"), false, String::new(), &by)
        .await;
    verdict.unwrap();
    let alone = w.registrar.compensate(key("k"), None, &by).await.unwrap();
    refused(&alone, Code::ApprovalNeeded);
    let own = w.registrar.compensate(key("k"), None, &person).await;
    assert_eq!(own.unwrap().kind, Kind::Fresh);
}

on_every_store!(
    an_approval_whose_window_is_over_is_expired_and_asked_for_anew,
    without_a_word_of_its_own_nobody_compensates,
    asking_twice_is_one_request,
    only_somebody_with_the_right_approves_denies_and_revokes,
    a_person_who_runs_it_has_said_yes_unless_a_word_was_asked_for,
);

const POLICY: &str = r#"
    [[rule]]
    operation = "migrate"
    target = "prod"
    approval = "auto"
    [[rule]]
    operation = "pay"
    approval = "never"
    [[rule]]
    operation = "*"
    approval = "always"
"#;

#[tokio::test]
async fn the_policy_decides_who_is_asked() {
    let w = with_policy(Memory::default(), Raw::None, 7, POLICY)
        .await
        .unwrap();
    let mut ask = RegisterAsk {
        effect: effect("auto"),
        approval: None,
        nonce: None,
        said_attempt: None,
        verify: None,
    };
    let requested = w
        .registrar
        .request(effect("asked"), &agent())
        .await
        .unwrap();
    assert_eq!(
        requested.facts.envelopes[0].status(w.registrar.now()),
        "approved"
    );
    let auto = w.registrar.register(ask.clone(), &agent()).await.unwrap();
    assert_eq!(auto.kind, Kind::Fresh);
    ask.effect = heddle_registrar::binding::Effect::new("p", "pay", "x", "", "").unwrap();
    let never = w.registrar.register(ask.clone(), &person()).await.unwrap();
    refused(&never, Code::ApprovalRefused);
    refused(
        &w.registrar
            .request(ask.effect.clone(), &person())
            .await
            .unwrap(),
        Code::ApprovalRefused,
    );
    ask.effect = heddle_registrar::binding::Effect::new("d", "deploy", "x", "", "").unwrap();
    let always = w.registrar.register(ask, &person()).await.unwrap();
    refused(&always, Code::ApprovalNeeded);
}
