//! The steps of a run: who may take them, and what a dead runner leaves behind.

use heddle_registrar::binding::Effect;
use heddle_registrar::code::Code;
use heddle_registrar::command::{Kind, Word};
use heddle_registrar::life::Stage;
use heddle_registrar::rows::Step;
use heddle_registrar::storage::Storage;

use crate::world::{World, agent, effect, ended, key, person, prior, refused};

async fn one_attempt_takes_the_run_and_only_it_may_end_it<S: Storage>(w: World<S>) {
    w.registered("k").await;
    let by = agent();
    let start = |attempt: &str| w.registrar.start(key("k"), attempt.to_owned(), None, &by);
    assert_eq!(start("a1").await.unwrap().kind, Kind::Fresh);
    let second = start("a2").await.unwrap();
    prior(&second, Code::ReplayDuplicate);
    assert_eq!(second.facts.runner().unwrap().attempt_id, "a1");
    let stranger = w
        .registrar
        .finish(key("k"), "a2".into(), ended(0), &by)
        .await;
    refused(&stranger.unwrap(), Code::StepRefused);
    let done = w
        .registrar
        .finish(key("k"), "a1".into(), ended(0), &by)
        .await
        .unwrap();
    assert_eq!(
        (done.kind, done.facts.stage()),
        (Kind::Fresh, Stage::Finished)
    );
    // The answer was lost, and the runner says it again; another end is refused.
    let again = w
        .registrar
        .finish(key("k"), "a1".into(), ended(0), &by)
        .await;
    prior(&again.unwrap(), Code::ReplayDuplicate);
    let other = w
        .registrar
        .finish(key("k"), "a1".into(), ended(1), &by)
        .await;
    refused(&other.unwrap(), Code::StepRefused);
    let closed = w
        .registrar
        .verify(key("k"), true, String::new(), &by)
        .await
        .unwrap();
    assert_eq!(closed.facts.stage(), Stage::Closed);
    let late = w
        .registrar
        .verify(key("k"), false, String::new(), &by)
        .await
        .unwrap();
    refused(&late, Code::StepRefused);
    assert_eq!(late.facts.stage(), Stage::Closed);
    let same = w.registrar.verify(key("k"), true, String::new(), &by).await;
    prior(&same.unwrap(), Code::ReplayDuplicate);
}

async fn rg_18_a_step_without_a_registration_is_refused<S: Storage>(w: World<S>) {
    let by = person();
    let start = w
        .registrar
        .start(key("k"), "a".into(), None, &by)
        .await
        .unwrap();
    refused(&start, Code::NotFound);
    let finish = w
        .registrar
        .finish(key("k"), "a".into(), ended(0), &by)
        .await
        .unwrap();
    refused(&finish, Code::NotFound);
    let verify = w
        .registrar
        .verify(key("k"), true, String::new(), &by)
        .await
        .unwrap();
    refused(&verify, Code::NotFound);
    let compensate = w.registrar.compensate(key("k"), None, &by).await.unwrap();
    refused(&compensate, Code::NotFound);
    w.registered("k").await;
    let early = w
        .registrar
        .verify(key("k"), true, String::new(), &by)
        .await
        .unwrap();
    refused(&early, Code::StepRefused);
    let early = w.registrar.compensate(key("k"), None, &by).await.unwrap();
    refused(&early, Code::StepRefused);
    let nothing = w
        .registrar
        .resolve(effect("k"), true, String::new(), &by)
        .await
        .unwrap();
    refused(&nothing, Code::StepRefused);
}

async fn an_unknown_outcome_runs_again_only_on_a_persons_word<S: Storage>(w: World<S>) {
    w.registered("k").await;
    let (by, she) = (agent(), person());
    let resolve = |again, note: &str| w.registrar.resolve(effect("k"), again, note.into(), &she);
    w.registrar
        .start(key("k"), "a1".into(), None, &by)
        .await
        .unwrap();
    // The runner dies here. Nobody else can take the run.
    let taken = w
        .registrar
        .start(key("k"), "a2".into(), None, &by)
        .await
        .unwrap();
    assert_eq!(taken.kind, Kind::Prior);
    let not_yours = w
        .registrar
        .resolve(effect("k"), true, String::new(), &by)
        .await
        .unwrap();
    refused(&not_yours, Code::ApprovalRefused);
    let said = resolve(true, "looked").await.unwrap();
    assert_eq!(
        (said.kind, said.facts.stage()),
        (Kind::Fresh, Stage::Registered)
    );
    // Its word counts once: a second is about a run that does not exist.
    let twice = resolve(true, "").await.unwrap();
    refused(&twice, Code::StepRefused);
    let second = w
        .registrar
        .start(key("k"), "a2".into(), None, &by)
        .await
        .unwrap();
    assert_eq!((second.kind, second.facts.round()), (Kind::Fresh, 2));
    // Somebody else who saw the first run gone, too, does not give the second one back.
    let late = w
        .registrar
        .resolve_round(
            effect("k"),
            Some(1),
            (Word::Again, String::new()),
            &person(),
        )
        .await
        .unwrap();
    refused(&late, Code::StepRefused);
    // A runner that was only slow finds its round over.
    let ghost = w
        .registrar
        .finish(key("k"), "a1".into(), ended(0), &by)
        .await
        .unwrap();
    refused(&ghost, Code::StepRefused);
    let done = resolve(false, "it is there").await;
    assert_eq!(done.unwrap().facts.stage(), Stage::Finished);
    let kinds: Vec<&str> = w
        .facts("k")
        .await
        .steps
        .iter()
        .map(|row| row.step.kind())
        .collect();
    assert_eq!(kinds, ["started", "resolved", "started", "resolved"]);
    assert!(matches!(
        w.facts("k").await.steps[3].step,
        Step::Resolved { again: false, .. }
    ));
}

async fn a_persons_word_is_kept_as_it_was_said<S: Storage>(w: World<S>) {
    for (name, word, kept) in [
        ("done", Word::Done, (true, None)),
        (
            "failed",
            Word::Failed { exit_code: Some(9) },
            (false, Some(9)),
        ),
        ("code", Word::Failed { exit_code: None }, (false, None)),
    ] {
        w.registered(name).await;
        let started = w
            .registrar
            .start(key(name), "a".into(), None, &agent())
            .await;
        started.unwrap();
        let by = person();
        let said = w
            .registrar
            .resolve_round(effect(name), Some(1), (word, String::new()), &by)
            .await
            .unwrap();
        assert_eq!(
            (said.kind, said.facts.stage()),
            (Kind::Fresh, Stage::Finished)
        );
        assert_eq!(w.facts(name).await.persons_word(), Some(kept));
        // The runner was only slow: its end is not what a person has said.
        let ghost = w.registrar.finish(key(name), "a".into(), ended(0), &by);
        refused(&ghost.await.unwrap(), Code::StepRefused);
    }
}

/// Whoever says it, by whichever way: the store compares what the word is about with what the key stands for.
async fn a_word_about_another_effect_is_refused_where_it_would_be_recorded<S: Storage>(
    w: World<S>,
) {
    w.registered("k").await;
    let (by, she) = (agent(), person());
    let started = w.registrar.start(key("k"), "a".into(), None, &by);
    started.await.unwrap();
    let right = effect("k");
    let others = [
        Effect {
            operation: "publish".into(),
            ..right.clone()
        },
        Effect {
            target: "staging".into(),
            ..right.clone()
        },
        Effect {
            artifact_hash: "b".repeat(64),
            ..right.clone()
        },
        Effect {
            run_id: "another".into(),
            ..right.clone()
        },
    ];
    for other in others {
        for word in [Word::Again, Word::Done, Word::Failed { exit_code: None }] {
            let said = (word, String::new());
            let said = w
                .registrar
                .resolve_round(other.clone(), Some(1), said, &she);
            refused(&said.await.unwrap(), Code::ReplayBindingMismatch);
        }
        assert_eq!(w.facts("k").await.stage(), Stage::Running, "{other:?}");
    }
    let log = w.registrar.log(Some(&key("k")), 1).await.unwrap();
    assert_eq!(
        (log[0].row.event.as_str(), log[0].row.code.as_str()),
        ("refused resolve", "REPLAY_BINDING_MISMATCH")
    );
    assert!(log[0].row.detail.contains("its run is"), "{log:?}");
    let said = w.registrar.resolve(right, true, String::new(), &she);
    assert_eq!(said.await.unwrap().facts.stage(), Stage::Registered);
}

on_every_store!(
    a_word_about_another_effect_is_refused_where_it_would_be_recorded,
    a_persons_word_is_kept_as_it_was_said,
    one_attempt_takes_the_run_and_only_it_may_end_it,
    rg_18_a_step_without_a_registration_is_refused,
    an_unknown_outcome_runs_again_only_on_a_persons_word,
);
