//! Whose an effect is: who may begin it, with which command, and who may give its verdict.

use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Kind};
use heddle_registrar::policy::Policy;
use heddle_registrar::registrar::{Caller, RegisterAsk};
use heddle_registrar::storage::{Seen, Storage};

use crate::world::{World, agent, effect, ended, key, person, prior, refused, worker};

fn hash(nth: u8) -> Option<String> {
    Some(format!("{nth:064x}"))
}

/// Registered by the agent, with this command.
async fn registered<S: Storage>(w: &World<S>, of: &str, command: Option<String>) {
    let ask = RegisterAsk {
        effect: effect(of),
        approval: None,
        nonce: Some(w.nonce(&effect(of)).await),
        said_attempt: None,
        verify: None,
        command_hash: command,
    };
    let done = w.registrar.register(ask, &agent()).await.unwrap();
    assert_eq!(done.kind, Kind::Fresh);
}

async fn start<S: Storage>(
    w: &World<S>,
    of: &str,
    command: Option<String>,
    by: &Caller,
) -> Applied {
    let attempt = format!("att_{}", by.agent);
    let started = w.registrar.start(key(of), attempt, command, by);
    started.await.unwrap()
}

async fn only_whose_it_is_begins_what_was_registered<S: Storage>(w: World<S>) {
    registered(&w, "k", None).await;
    refused(
        &start(&w, "k", None, &worker()).await,
        Code::ApprovalRefused,
    );
    assert!(w.facts("k").await.steps.is_empty(), "nothing was taken");
    // Who asked and registered, and who has granted it.
    assert_eq!(start(&w, "k", None, &agent()).await.kind, Kind::Fresh);
    registered(&w, "granted", None).await;
    let granter = start(&w, "granted", None, &person()).await;
    assert_eq!(granter.kind, Kind::Fresh);
    // Who could have it registered without a word.
    registered(&w, "auto", None).await;
    let auto = "[[rule]]\noperation = \"*\"\napproval = \"auto\"";
    w.registrar.set_policy(Policy::parse(auto).unwrap());
    assert_eq!(start(&w, "auto", None, &worker()).await.kind, Kind::Fresh);
    let late = start(&w, "auto", None, &agent()).await;
    prior(&late, Code::ReplayDuplicate);
}

async fn a_key_is_bound_to_the_command_that_it_was_registered_with<S: Storage>(w: World<S>) {
    registered(&w, "k", hash(1)).await;
    for other in [hash(2), None] {
        let refusal = start(&w, "k", other, &agent()).await;
        refused(&refusal, Code::ReplayBindingMismatch);
    }
    let granter = start(&w, "k", hash(2), &person()).await;
    refused(&granter, Code::ReplayBindingMismatch);
    assert_eq!(start(&w, "k", hash(1), &agent()).await.kind, Kind::Fresh);
    // What could not be started takes a better command, and is then bound to that one.
    let runner = agent();
    let why = w
        .registrar
        .not_started(key("k"), "att_planner".into(), "no".into(), &runner);
    assert_eq!(why.await.unwrap().kind, Kind::Fresh);
    let stranger = start(&w, "k", hash(3), &worker()).await;
    refused(&stranger, Code::ApprovalRefused);
    assert_eq!(start(&w, "k", hash(3), &agent()).await.kind, Kind::Fresh);
    assert_eq!(w.facts("k").await.command_hash(), hash(3));
    // A person who says that it did not happen chooses; nobody else does.
    let by = person();
    let again = w.registrar.resolve(effect("k"), true, String::new(), &by);
    assert_eq!(again.await.unwrap().kind, Kind::Fresh);
    let old = start(&w, "k", hash(1), &agent()).await;
    refused(&old, Code::ReplayBindingMismatch);
    assert_eq!(start(&w, "k", hash(4), &person()).await.kind, Kind::Fresh);
    // Registered without one, it is bound to none.
    registered(&w, "free", None).await;
    assert_eq!(start(&w, "free", hash(9), &agent()).await.kind, Kind::Fresh);
}

async fn only_who_ran_it_or_may_approve_gives_the_verdict<S: Storage>(w: World<S>) {
    for (of, by) in [("runner", agent()), ("approver", person())] {
        registered(&w, of, None).await;
        start(&w, of, None, &agent()).await;
        let (attempt, runner) = ("att_planner".to_owned(), agent());
        let told = w.registrar.finish(key(of), attempt, ended(0), &runner);
        told.await.unwrap();
        for passed in [true, false] {
            let stranger = worker();
            let said = w
                .registrar
                .verify(key(of), passed, String::new(), &stranger);
            refused(&said.await.unwrap(), Code::ApprovalRefused);
        }
        assert_eq!(w.facts(of).await.verdict(), None);
        let said = w.registrar.verify(key(of), true, String::new(), &by).await;
        assert_eq!(said.unwrap().kind, Kind::Fresh, "{of}");
    }
}

async fn how_far_a_store_has_come_only_grows<S: Storage>(w: World<S>) {
    let storage = w.registrar.storage();
    let reached = async |last| {
        storage
            .reached(Seen {
                last,
                ..Seen::default()
            })
            .await
            .unwrap()
    };
    let first = reached(None).await;
    assert_eq!((first.rows, first.last, first.has_seen), (0, None, true));
    let mut rows = 0;
    let mut grew = async || {
        let now = reached(None).await.rows;
        assert!(now > rows, "{now} after {rows}");
        rows = now;
    };
    let asked = w.request(&effect("k")).await;
    w.approve(&asked).await;
    grew().await;
    registered(&w, "k2", None).await;
    grew().await;
    start(&w, "k2", None, &agent()).await;
    grew().await;
    let consumed = w.facts("k2").await.consumed.unwrap().replay_key;
    assert_eq!(reached(None).await.last, Some(consumed));
    assert!(reached(Some(consumed)).await.has_seen);
    let unknown = effect("other").replay_key("env");
    assert!(!reached(Some(unknown)).await.has_seen);
}

on_every_store!(
    only_whose_it_is_begins_what_was_registered,
    a_key_is_bound_to_the_command_that_it_was_registered_with,
    only_who_ran_it_or_may_approve_gives_the_verdict,
    how_far_a_store_has_come_only_grows,
);
