//! What was over stays over: the clock of who decides goes back, and no approval lives again (C18, XC-05).

use heddle_core::clock::WallMs;
use heddle_registrar::authority::Nonce;
use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::expiry::EXPIRED;
use heddle_registrar::rows::Purpose;
use heddle_registrar::storage::Storage;

use crate::world::{START, World, agent, effect, ended, key, person, prior, refused};

const MINUTE: i64 = 60 * 1000;
const DAY: i64 = 24 * 60 * MINUTE;

fn at<S: Storage>(w: &World<S>, later_ms: i64) {
    w.clock.set_wall(WallMs(START.0 + later_ms));
}

async fn status<S: Storage>(w: &World<S>, of: &str) -> &'static str {
    let facts = w.facts(of).await;
    facts.envelopes[0].status(w.registrar.now())
}

async fn granted<S: Storage>(w: &World<S>, envelope: &str, minutes: u32) -> Nonce {
    let by = person();
    let approved = w
        .registrar
        .approve(envelope, &by, Purpose::Register, Some(minutes));
    approved.await.unwrap().unwrap().nonce.unwrap()
}

async fn rp_04_xc_05_an_approval_that_was_over_is_not_good_again<S: Storage>(w: World<S>) {
    let nonce = w.nonce(&effect("k")).await;
    let untouched = w.nonce(&effect("untouched")).await;
    at(&w, 15 * MINUTE);
    let tried = w.register(&effect("k"), Some(&nonce)).await;
    refused(&tried, Code::NonceUnbound);
    let rows = w.facts("k").await.envelopes[0].decisions.len();
    // Written down once, however often it is tried.
    for later in [16 * MINUTE, 1, 15 * MINUTE, 0, 10 * 365 * DAY, 2] {
        at(&w, later);
        assert_eq!(status(&w, "k").await, "expired", "{later}");
        if later < DAY {
            let tried = w.register(&effect("k"), Some(&nonce)).await;
            refused(&tried, Code::NonceUnbound);
        }
    }
    let facts = w.facts("k").await;
    assert_eq!(facts.envelopes[0].decisions.len(), rows);
    assert_eq!(facts.envelopes[0].decisions[1].by, EXPIRED);
    assert_eq!(facts.consumed, None);
    // The clock alone changes nothing: of this one nobody was told that it is over.
    at(&w, 1);
    let registered = w.register(&effect("untouched"), Some(&untouched)).await;
    assert_eq!(registered.kind, Kind::Fresh);
    // Whoever still wants it asks again, or is granted it once more; what is granted now is good now.
    let envelope = facts.envelopes[0].row.envelope_id.clone();
    let again = granted(&w, &envelope, 15).await;
    assert_eq!(status(&w, "k").await, "approved");
    refused(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::NonceUnbound,
    );
    let registered = w.register(&effect("k"), Some(&again)).await;
    assert_eq!(registered.kind, Kind::Fresh);
}

/// A window that is over takes no other one along.
async fn a_longer_window_beside_one_that_was_over_stays_good<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let (short, long) = (
        granted(&w, &envelope, 15).await,
        granted(&w, &envelope, 60).await,
    );
    at(&w, 20 * MINUTE);
    refused(
        &w.register(&effect("k"), Some(&short)).await,
        Code::NonceUnbound,
    );
    at(&w, MINUTE);
    refused(
        &w.register(&effect("k"), Some(&short)).await,
        Code::NonceUnbound,
    );
    assert_eq!(status(&w, "k").await, "approved");
    let registered = w.register(&effect("k"), Some(&long)).await;
    assert_eq!(registered.kind, Kind::Fresh);
}

async fn rp_08_xc_05_a_request_that_was_too_old_stays_too_old<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let nonce = granted(&w, &envelope, 60 * 24 * 7).await;
    at(&w, 8 * DAY);
    refused(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::ReplayStaleRequest,
    );
    at(&w, MINUTE);
    refused(
        &w.register(&effect("k"), Some(&nonce)).await,
        Code::ReplayStaleRequest,
    );
    let by = person();
    let late = w
        .registrar
        .approve(&envelope, &by, Purpose::Register, None)
        .await;
    assert_eq!(late.unwrap().unwrap_err(), Code::ReplayStaleRequest);
    assert_eq!(status(&w, "k").await, "expired");
    // A new request is a new one, and the key was free all the time.
    let other = w.request(&effect("k")).await;
    assert_ne!(other, envelope);
    let nonce = w.approve(&other).await;
    let registered = w.register(&effect("k"), Some(&nonce)).await;
    assert_eq!(registered.kind, Kind::Fresh);
}

async fn rg_13_xc_05_a_nonce_to_make_up_for_it_that_was_over_stays_over<S: Storage>(w: World<S>) {
    let registered = w.registered("k").await;
    let by = agent();
    let begun = w.registrar.start(key("k"), "a".into(), None, &by);
    begun.await.unwrap();
    let told = w.registrar.finish(key("k"), "a".into(), ended(0), &by);
    told.await.unwrap();
    let verdict = w.registrar.verify(key("k"), false, String::new(), &by);
    verdict.await.unwrap();
    let envelope = registered.facts.consumed.unwrap().approval;
    let allowed = async || {
        let by = person();
        let approved = w
            .registrar
            .approve(&envelope, &by, Purpose::Compensate, Some(15));
        approved.await.unwrap().unwrap().nonce.unwrap()
    };
    let nonce = allowed().await;
    let try_it = async |nonce: &Nonce| {
        let (by, nonce) = (agent(), Some(nonce.clone()));
        let begun = w.registrar.compensate(key("k"), nonce, &by);
        begun.await.unwrap()
    };
    at(&w, 16 * MINUTE);
    // A retry of the effect itself writes nothing, however late (RG-03).
    let before = w.facts("k").await;
    prior(&w.register(&effect("k"), None).await, Code::ReplayDuplicate);
    assert_eq!(w.facts("k").await, before);
    refused(&try_it(&nonce).await, Code::NonceUnbound);
    at(&w, MINUTE);
    refused(&try_it(&nonce).await, Code::NonceUnbound);
    let again = allowed().await;
    assert_eq!(try_it(&again).await.kind, Kind::Fresh);
}

on_every_store!(
    rp_04_xc_05_an_approval_that_was_over_is_not_good_again,
    a_longer_window_beside_one_that_was_over_stays_good,
    rp_08_xc_05_a_request_that_was_too_old_stays_too_old,
    rg_13_xc_05_a_nonce_to_make_up_for_it_that_was_over_stays_over,
);
