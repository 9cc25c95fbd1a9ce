//! A mesh moves from one authority to the next: with every key that was used, and nothing is decided in between.

use heddle_core::clock::WallMs;
use heddle_registrar::carry::{Part, Taken, Unit};
use heddle_registrar::code::Code;
use heddle_registrar::command::Kind;
use heddle_registrar::registrar::Caller;
use heddle_registrar::storage::sqlite::Sqlite;
use heddle_registrar::storage::{Storage, StorageError};

use crate::world::{
    Raw, START, World, agent, calling, effect, ended, key, mesh, person, prior, refused,
    with_policy,
};

/// As the broker of a team calls them.
fn elsewhere(name: &str) -> Caller {
    Caller::new(format!("@alice/{name}"), "@alice/alice")
}

/// A home with a key of every kind: done, running, registered, approved, asked for, denied.
async fn home() -> (World<Sqlite>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("effects.db");
    let storage = Sqlite::open(file.clone()).unwrap();
    let raw = Raw::Sqlite {
        file,
        _folder: folder,
    };
    // Other ids than those of the store that takes it over.
    let w = with_policy(storage, raw, 77, "").await.unwrap();
    w.registered("done").await;
    let start = async |of: &str| {
        w.registrar
            .start(key(of), "a1".into(), None, &agent())
            .await
            .unwrap();
    };
    start("done").await;
    let finished = calling("finish", 1);
    w.registrar
        .finish(key("done"), "a1".into(), ended(0), &finished)
        .await
        .unwrap();
    w.registrar
        .verify(key("done"), true, String::new(), &agent())
        .await
        .unwrap();
    w.registered("running").await;
    start("running").await;
    w.registered("registered").await;
    let nonce = w.nonce(&effect("approved")).await.reveal().to_owned();
    w.request(&effect("asked")).await;
    let denied = w.request(&effect("denied")).await;
    let said = w.registrar.turn_down(&denied, &person()).await.unwrap();
    said.unwrap();
    // An attempt that was refused is in the audit.
    refused(
        &w.register(&effect("asked"), None).await,
        Code::ApprovalNeeded,
    );
    (w, nonce)
}

async fn all(w: &World<Sqlite>, bytes_max: usize) -> Vec<(u64, Vec<Unit>, bool)> {
    let (mut parts, mut from) = (Vec::new(), 0);
    loop {
        let storage = w.registrar.storage();
        let (units, is_last) = storage.carried(mesh(), from, bytes_max).await.unwrap();
        let count = units.len() as u64;
        let named = units.into_iter().map(|unit| unit.of_member("alice"));
        parts.push((from, named.collect(), is_last));
        if is_last {
            return parts;
        }
        from += count;
    }
}

fn part((from, units, is_last): &(u64, Vec<Unit>, bool)) -> Part {
    Part {
        from: *from,
        units: units.clone(),
        is_last: *is_last,
        at: START,
    }
}

async fn take<S: Storage>(w: &World<S>, part: Part) -> Taken {
    let storage = w.registrar.storage();
    storage.take_over(mesh(), part).await.unwrap()
}

async fn used_keys_are_used_where_the_mesh_has_moved<S: Storage>(w: World<S>) {
    let (home, nonce) = home().await;
    let storage = home.registrar.storage();
    storage.give_away(mesh(), START).await.unwrap();
    // In as many parts as there are units, each told twice, one too early, and the first once more at the end.
    let parts = all(&home, 1).await;
    assert!(parts.len() > 10, "{}", parts.len());
    for (nth, one) in parts.iter().enumerate() {
        if let Some(next) = parts.get(nth + 1) {
            let early = take(&w, part(next)).await;
            assert_eq!(early.through, one.0, "a gap is not taken");
        }
        let first = take(&w, part(one)).await;
        assert_eq!(
            (first.through, first.skipped),
            (one.0 + one.1.len() as u64, 0)
        );
        assert_eq!(take(&w, part(one)).await.through, first.through);
    }
    take(&w, part(&parts[0])).await;
    let whole = w.registrar.storage().taken(mesh()).await.unwrap();
    let count: usize = parts.iter().map(|one| one.1.len()).sum();
    assert_eq!((whole.through, whole.is_whole), (count as u64, true));

    // What has happened is told to whoever asks, and happens to nobody again.
    let bob = Caller::new("@bob/bob", "@bob/bob");
    for of in ["done", "running", "registered"] {
        let again = w.register_as(&bob, &effect(of), None, None).await.unwrap();
        prior(&again, Code::ReplayDuplicate);
        let (there, here) = (w.facts(of).await, home.facts(of).await);
        assert_eq!(there.stage(), here.stage(), "{of}");
        assert_eq!(there.registration, here.registration, "the stored bytes");
        assert_eq!(there.consumed, here.consumed);
    }
    // A run goes on to its end, told by who began it and by nobody else.
    let end = async |by: &Caller| {
        let told = w
            .registrar
            .finish(key("running"), "a1".into(), ended(0), by);
        told.await.unwrap()
    };
    refused(&end(&bob).await, Code::StepRefused);
    assert_eq!(end(&elsewhere("planner")).await.kind, Kind::Fresh);
    // An approval that was given stands, for who had it.
    let nonce = heddle_registrar::authority::Nonce::presented(&nonce);
    let approved = async |by: &Caller| {
        let wanted = effect("approved");
        let asked = w.register_as(by, &wanted, Some(&nonce), None);
        asked.await.unwrap()
    };
    refused(&approved(&bob).await, Code::NonceUnbound);
    assert_eq!(approved(&elsewhere("planner")).await.kind, Kind::Fresh);
    assert_eq!(w.facts("denied").await.envelopes[0].decisions.len(), 1);
    // The caller's own ids, and the refusals of before.
    let known = w
        .registrar
        .storage()
        .call(mesh(), "@alice/planner", "finish");
    assert!(known.await.unwrap().is_some());
    let log = w.registrar.log(Some(&key("asked")), 10).await.unwrap();
    assert!(log.iter().any(|line| line.row.by == "@alice/planner"));
}

/// A broker of an earlier version has let somebody use a key that was used at home: that is told, and nothing of the
/// one becomes part of the other.
async fn what_stands_is_never_replaced<S: Storage>(w: World<S>) {
    let (home, _) = home().await;
    let storage = home.registrar.storage();
    storage.give_away(mesh(), START).await.unwrap();
    w.registered("done").await;
    let before = w.facts("done").await;
    let parts = all(&home, usize::MAX).await;
    assert_eq!(parts.len(), 1);
    let taken = take(&w, part(&parts[0])).await;
    assert!(taken.is_whole && taken.skipped >= 4, "{taken:?}");
    let after = w.facts("done").await;
    assert_eq!(
        (&after.consumed, &after.steps),
        (&before.consumed, &before.steps)
    );
    assert!(w.facts("running").await.consumed.is_some());
}

on_every_store!(
    used_keys_are_used_where_the_mesh_has_moved,
    what_stands_is_never_replaced,
);

#[tokio::test]
async fn rg_01_what_was_given_away_is_decided_about_nowhere_but_there() {
    let (home, nonce) = home().await;
    let storage = home.registrar.storage();
    let before = storage.carried(mesh(), 0, usize::MAX).await.unwrap();
    for _ in 0..2 {
        storage.give_away(mesh(), START).await.unwrap();
    }
    let nonce = heddle_registrar::authority::Nonce::presented(&nonce);
    let given = |answer: Result<_, StorageError>| {
        assert!(matches!(answer, Err(StorageError::GivenAway)));
    };
    given(
        home.try_register(&effect("approved"), Some(&nonce), None)
            .await,
    );
    given(home.registrar.request(effect("new"), &agent()).await);
    let begun = home
        .registrar
        .start(key("registered"), "a2".into(), None, &agent())
        .await;
    given(begun);
    // The database says so itself.
    let forged = "INSERT INTO effect_step (mesh_id, logical_request_key, round, step, attempt_id, body, taken_by, taken_at)
        SELECT mesh_id, logical_request_key, 9, 'started', 'x', '{}', 'x', 0 FROM effect_consume LIMIT 1";
    let error = home.raw.run(forged).await.unwrap_err();
    assert!(error.contains("given away"), "{error}");
    // What has happened is answered all the same, and what was read out stays as it is.
    let again = home.register(&effect("done"), None).await;
    prior(&again, Code::ReplayDuplicate);
    let (units, is_last) = storage.carried(mesh(), 0, usize::MAX).await.unwrap();
    let rows = |units: &[Unit]| -> Vec<_> { units.iter().flat_map(Unit::rows).collect() };
    assert_eq!((rows(&units), is_last), (rows(&before.0), true));
    assert!(!storage.is_all_told(mesh()).await.unwrap());
    storage.all_told(mesh(), WallMs(1)).await.unwrap();
    assert!(storage.is_all_told(mesh()).await.unwrap());
    // Other meshes are not concerned.
    let other = heddle_core::ids::MeshId("01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap());
    assert_eq!(
        storage.carried(other, 0, 1).await.unwrap(),
        (Vec::new(), true)
    );
}
