//! Who may ask, who may approve, and what the policy says.

use std::time::Duration;

use heddle_registrar::binding::Effect;
use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::policy::{AUTO, Policy};
use heddle_registrar::registrar::{Caller, RegisterAsk};
use heddle_registrar::rows::{Purpose, Ruling};
use heddle_registrar::storage::Storage;
use heddle_registrar::storage::memory::Memory;

use crate::world::{
    Raw, World, agent, effect, ended, key, person, prior, refused, with_policy, worker,
};

async fn asking_twice_is_one_request<S: Storage>(w: World<S>) {
    let first = w.registrar.request(effect("k"), &agent()).await.unwrap();
    assert_eq!(first.kind, Kind::Fresh);
    let again = w.registrar.request(effect("k"), &agent()).await.unwrap();
    prior(&again, Code::ReplayDuplicate);
    assert_eq!(again.facts.envelopes, first.facts.envelopes);
    // Somebody else's is another one: an envelope belongs to who asked.
    let theirs = w.registrar.request(effect("k"), &worker()).await.unwrap();
    assert_eq!(
        (theirs.kind, theirs.facts.envelopes.len()),
        (Kind::Fresh, 2)
    );
    assert_eq!(theirs.facts.envelopes[1].row.requested_by, "worker");
    let other = Effect {
        target: "staging".into(),
        ..effect("k")
    };
    let other = w.registrar.request(other, &person()).await.unwrap();
    refused(&other, Code::ReplayBindingMismatch);
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
        command_hash: None,
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
    let started = w
        .registrar
        .start(key("k"), attempt.clone(), None, &by)
        .await;
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

async fn rp_04_rg_07_a_nonce_is_bound_to_its_owner<S: Storage>(w: World<S>) {
    let nonce = w.nonce(&effect("k")).await;
    let stolen = w
        .register_as(&worker(), &effect("k"), Some(&nonce), None)
        .await;
    refused(&stolen.unwrap(), Code::NonceUnbound);
    assert_eq!(w.facts("k").await.consumed, None, "nothing was burned");
    assert_eq!(
        w.register(&effect("k"), Some(&nonce)).await.kind,
        Kind::Fresh
    );
    // What has happened is told to everybody, whoever's nonce they hold.
    let late = w
        .register_as(&worker(), &effect("k"), Some(&nonce), None)
        .await;
    prior(&late.unwrap(), Code::ReplayDuplicate);
    // Whoever granted it has said yes.
    let nonce = w.nonce(&effect("k2")).await;
    let granter = w
        .register_as(&person(), &effect("k2"), Some(&nonce), None)
        .await;
    assert_eq!(granter.unwrap().kind, Kind::Fresh);
}

async fn rp_04_rg_13_a_nonce_to_compensate_is_bound_to_its_owner<S: Storage>(w: World<S>) {
    let attempt = w.registered("k").await.facts.consumed.unwrap().attempt_id;
    let by = agent();
    // Where nobody is asked, whoever comes may run it.
    let auto = "[[rule]]\noperation = \"*\"\napproval = \"auto\"";
    w.registrar.set_policy(Policy::parse(auto).unwrap());
    let started = w
        .registrar
        .start(key("k"), attempt.clone(), None, &worker())
        .await;
    started.unwrap();
    let told = w
        .registrar
        .finish(key("k"), attempt, ended(1), &worker())
        .await;
    told.unwrap();
    let verdict = w
        .registrar
        .verify(key("k"), false, String::new(), &by)
        .await;
    let approval = verdict.unwrap().facts.consumed.unwrap().approval;
    w.registrar.set_policy(Policy::default());
    let granter = person();
    let granted = w
        .registrar
        .approve(&approval, &granter, Purpose::Compensate, None);
    let nonce = granted.await.unwrap().unwrap().nonce;
    let stranger = Caller::new("stranger", "alice");
    let stolen = w.registrar.compensate(key("k"), nonce.clone(), &stranger);
    refused(&stolen.await.unwrap(), Code::NonceUnbound);
    // Who asked, who granted, and who ran it.
    let own = w.registrar.compensate(key("k"), nonce, &worker()).await;
    assert_eq!(own.unwrap().kind, Kind::Fresh);
}

async fn rp_04_rg_13_what_was_granted_to_compensate_can_be_revoked_and_granted_anew<S: Storage>(
    w: World<S>,
) {
    let attempt = w.registered("k").await.facts.consumed.unwrap().attempt_id;
    let (by, granter) = (agent(), person());
    let taken = attempt.clone();
    let started = w.registrar.start(key("k"), taken, None, &by).await;
    started.unwrap();
    let told = w.registrar.finish(key("k"), attempt, ended(1), &by).await;
    let approval = told.unwrap().facts.consumed.unwrap().approval;
    let early = w.registrar.turn_down(&approval, &granter).await.unwrap();
    assert_eq!(early.unwrap_err(), Code::StepRefused, "it has happened");
    let failed = w.registrar.verify(key("k"), false, String::new(), &by);
    failed.await.unwrap();
    let grant = || async {
        let granted = w
            .registrar
            .approve(&approval, &granter, Purpose::Compensate, None);
        granted.await.unwrap().unwrap().nonce
    };
    let first = grant().await;
    let revoked = w.registrar.turn_down(&approval, &granter).await.unwrap();
    assert_eq!(revoked.unwrap().kind, Kind::Fresh);
    let late = w.registrar.compensate(key("k"), first.clone(), &by).await;
    refused(&late.unwrap(), Code::NonceUnbound);
    let twice = w.registrar.turn_down(&approval, &granter).await.unwrap();
    assert_eq!(twice.unwrap_err(), Code::StepRefused);
    // Granted anew, the one that was taken back stays so.
    let second = grant().await;
    let old = w.registrar.compensate(key("k"), first, &by).await;
    refused(&old.unwrap(), Code::NonceUnbound);
    let own = w.registrar.compensate(key("k"), second, &by).await;
    assert_eq!(own.unwrap().kind, Kind::Fresh);
}

async fn never_stops_what_was_approved_or_registered_before<S: Storage>(w: World<S>) {
    let nonce = w.nonce(&effect("k")).await;
    let inert = w.registered("inert").await.facts.consumed.unwrap();
    let never = "[[rule]]\noperation = \"*\"\napproval = \"never\"";
    w.registrar.set_policy(Policy::parse(never).unwrap());
    refused(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::ApprovalRefused,
    );
    let started = w
        .registrar
        .start(key("inert"), inert.attempt_id.clone(), None, &agent())
        .await;
    refused(&started.unwrap(), Code::ApprovalRefused);
    prior(
        &w.register(&effect("inert"), None).await,
        Code::ReplayDuplicate,
    );
    // Nothing was used up.
    w.registrar.set_policy(Policy::default());
    assert_eq!(
        w.register(&effect("k"), Some(&nonce)).await.kind,
        Kind::Fresh
    );
    let started = w
        .registrar
        .start(key("inert"), inert.attempt_id, None, &agent())
        .await;
    assert_eq!(started.unwrap().kind, Kind::Fresh);
}

/// How a key stands is said by what could be run now, whoever asked last.
async fn a_good_approval_stands_before_what_waits_and_that_before_what_is_over<S: Storage>(
    w: World<S>,
) {
    let foremost = async || {
        let facts = w.facts("k").await;
        let now = w.registrar.now();
        let it = facts.foremost(now).expect("somebody asked");
        (it.row.envelope_id.clone(), it.status(now))
    };
    let first = w.request(&effect("k")).await;
    w.approve(&first).await;
    let asked = w.registrar.request(effect("k"), &worker()).await.unwrap();
    let other = asked.facts.live_envelope_of("worker", w.registrar.now());
    let other = other.expect("its own").row.envelope_id.clone();
    assert_eq!(foremost().await, (first.clone(), "approved"));
    let denied = w.registrar.turn_down(&other, &person()).await.unwrap();
    denied.unwrap();
    assert_eq!(foremost().await, (first.clone(), "approved"));
    w.pass(Duration::from_secs(16 * 60));
    assert_eq!(foremost().await, (other, "denied"));
    // Asked again, and then the old one granted once more.
    let second = w.request(&effect("k")).await;
    assert_eq!(foremost().await, (second, "awaiting_approval"));
    w.approve(&first).await;
    assert_eq!(foremost().await, (first, "approved"));
}

on_every_store!(
    a_good_approval_stands_before_what_waits_and_that_before_what_is_over,
    rp_04_rg_07_a_nonce_is_bound_to_its_owner,
    rp_04_rg_13_a_nonce_to_compensate_is_bound_to_its_owner,
    rp_04_rg_13_what_was_granted_to_compensate_can_be_revoked_and_granted_anew,
    never_stops_what_was_approved_or_registered_before,
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
        command_hash: None,
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
    for facts in [&requested.facts, &auto.facts] {
        assert_eq!(facts.envelopes[0].decisions[0].by, AUTO, "nobody's word");
    }
    // Nobody is asked, whoever comes: also where somebody else has a request of their own.
    ask.effect = effect("asked");
    let second = w.registrar.register(ask.clone(), &worker()).await.unwrap();
    assert_eq!(second.kind, Kind::Fresh);
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
