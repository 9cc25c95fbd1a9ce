//! Pages of what was asked for and of what was tried: each thing once, in one order, whatever comes meanwhile.

use std::time::Duration;

use heddle_registrar::storage::{ListPlace, Storage};

use crate::world::{World, agent, effect, key};

async fn listed<S: Storage>(w: &World<S>, limit: usize) -> Vec<String> {
    let (mut all, mut place): (Vec<String>, Option<ListPlace>) = (Vec::new(), None);
    loop {
        let page = w.registrar.list_after(place, limit).await.unwrap();
        assert!(page.effects.len() <= limit);
        all.extend(page.effects.iter().map(|one| one.key.to_string()));
        match page.next {
            Some(next) => place = Some(next),
            None => return all,
        }
    }
}

async fn pages_of_the_list_show_each_key_once<S: Storage>(w: World<S>) {
    // Several of one moment, in the order of their bytes; and others later.
    for (nth, name) in ["b", "a", "é", "Z", "a b", "c"].into_iter().enumerate() {
        if nth % 3 == 0 {
            w.clock.advance(Duration::from_secs(1));
        }
        w.request(&effect(name)).await;
    }
    let whole = listed(&w, 100).await;
    assert_eq!(whole, ["Z", "a b", "c", "a", "b", "é"]);
    for limit in 1..8 {
        assert_eq!(listed(&w, limit).await, whole, "in pages of {limit}");
    }
    // What comes between two pages is found before them, and moves nothing.
    let first = w.registrar.list_after(None, 2).await.unwrap();
    w.clock.advance(Duration::from_secs(1));
    w.request(&effect("new")).await;
    let next = w.registrar.list_after(first.next, 2).await.unwrap();
    let keys: Vec<String> = next.effects.iter().map(|one| one.key.to_string()).collect();
    assert_eq!(keys, ["c", "a"]);
}

async fn pages_of_the_log_show_each_line_once<S: Storage>(w: World<S>) {
    for name in ["k", "other", "k", "k"] {
        // Refused, which is noted: nobody has approved it.
        w.registrar.turn_down("env_x", &agent()).await.ok();
        w.register(&effect(name), None).await;
    }
    for of in [None, Some(key("k"))] {
        let whole = w.registrar.log(of.as_ref(), 100).await.unwrap();
        assert!(whole.len() >= 3, "{whole:?}");
        for limit in 1..4 {
            let (mut all, mut before) = (Vec::new(), None);
            loop {
                let page = w.registrar.log_before(of.as_ref(), before, limit);
                let page = page.await.unwrap();
                let Some(last) = page.last() else {
                    break;
                };
                before = Some(last.seq);
                all.extend(page);
            }
            assert_eq!(all, whole, "in pages of {limit}");
        }
    }
}

on_every_store!(
    pages_of_the_list_show_each_key_once,
    pages_of_the_log_show_each_line_once,
);
