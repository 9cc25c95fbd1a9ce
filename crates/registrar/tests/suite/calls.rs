//! A caller's own id for a request: the same request once more is answered, another one is refused.

use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::registrar::RegisterAsk;
use heddle_registrar::rows::Purpose;
use heddle_registrar::storage::Storage;

use crate::world::{World, calling, effect, ended, key, person, prior, refused};

async fn the_same_id_is_one_request_and_another_request_under_it_is_refused<S: Storage>(
    w: World<S>,
) {
    let first = w.registrar.request(effect("k"), &calling("id", 1)).await;
    assert_eq!(first.unwrap().kind, Kind::Fresh);
    let again = w.registrar.request(effect("k"), &calling("id", 1)).await;
    prior(&again.unwrap(), Code::ReplayDuplicate);
    let other = w.registrar.request(effect("l"), &calling("id", 2)).await;
    refused(&other.unwrap(), Code::CallReused);
    assert!(w.facts("l").await.envelopes.is_empty(), "nothing was asked");
    let known = w.registrar.known_call(&calling("id", 9)).await.unwrap();
    let known = known.unwrap();
    assert_eq!((known.fingerprint, known.key), ([1; 32], key("k")));
    // Another caller's id is another id.
    let mut alice = calling("id", 3);
    alice.agent = "alice".into();
    assert_eq!(w.registrar.known_call(&alice).await.unwrap(), None);
}

async fn c42_a_refusal_does_not_use_up_the_callers_id<S: Storage>(w: World<S>) {
    let ask = |nonce| RegisterAsk {
        effect: effect("k"),
        approval: None,
        nonce,
        said_attempt: None,
        verify: None,
        command_hash: None,
    };
    let by = calling("id", 1);
    let early = w.registrar.register(ask(None), &by).await.unwrap();
    refused(&early, Code::ApprovalNeeded);
    let nonce = w.nonce(&effect("k")).await;
    let now = w.registrar.register(ask(Some(nonce)), &by).await.unwrap();
    assert_eq!(now.kind, Kind::Fresh);
    prior(
        &w.registrar.register(ask(None), &by).await.unwrap(),
        Code::ReplayDuplicate,
    );
}

async fn an_approval_repeated_under_its_id_grants_nothing_more<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let mut by = calling("id", 1);
    by.agent = person().agent;
    let approve = || w.registrar.approve(&envelope, &by, Purpose::Register, None);
    let first = approve().await.unwrap().unwrap();
    assert!(first.nonce.is_some());
    let again = approve().await.unwrap().unwrap();
    assert!(again.nonce.is_none(), "it was shown once");
    assert_eq!(again.expires_at, first.expires_at);
    assert_eq!(w.facts("k").await.envelopes[0].decisions.len(), 1);
}

async fn rg_03_a_step_under_an_id_is_taken_once<S: Storage>(w: World<S>) {
    w.registered("k").await;
    let start = |id: &str| {
        let by = calling(id, 1);
        let registrar = &w.registrar;
        async move {
            registrar
                .start(key("k"), "a".into(), None, &by)
                .await
                .unwrap()
        }
    };
    assert_eq!(start("s").await.kind, Kind::Fresh);
    assert_eq!(start("s").await.kind, Kind::Prior);
    let by = calling("f", 2);
    for kind in [Kind::Fresh, Kind::Prior] {
        let ended = w.registrar.finish(key("k"), "a".into(), ended(0), &by);
        assert_eq!(ended.await.unwrap().kind, kind);
    }
    assert_eq!(w.facts("k").await.steps.len(), 2);
}

on_every_store!(
    the_same_id_is_one_request_and_another_request_under_it_is_refused,
    c42_a_refusal_does_not_use_up_the_callers_id,
    an_approval_repeated_under_its_id_grants_nothing_more,
    rg_03_a_step_under_an_id_is_taken_once,
);
