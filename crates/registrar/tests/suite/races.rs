//! Many attempts at one key at once: one effect, and everybody else gets the winner's result.
#![allow(clippy::print_stdout)]

use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use heddle_registrar::authority::Nonce;
use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Ask, Command, Kind, Register};
use heddle_registrar::registrar::RegisterAsk;
use heddle_registrar::storage::Storage;
use heddle_registrar::storage::postgres::Postgres;

use crate::world::{
    Raw, World, effect, fresh_schema, key, mesh, person, postgres, postgres_url, raw_client,
    with_policy,
};

const ATTEMPTS: usize = 24;
const PROCESSES: usize = 4;
const PER_PROCESS: usize = 16;
const CHILD: &str = "HEDDLE_TEST_RACE_SCHEMA";
const CHILD_NONCE: &str = "HEDDLE_TEST_RACE_NONCE";

fn register<S: Storage>(w: &World<S>, nth: &str, nonce: &Nonce) -> Command {
    Command {
        key: key("k"),
        by: "planner".into(),
        now: w.registrar.now(),
        ask: Ask::Register(Register {
            effect: effect("k"),
            approval: None,
            nonce: Some(nonce.hash()),
            said_attempt: None,
            verify: None,
            command_hash: None,
            attempt_id: format!("att {nth}"),
            registration_id: format!("reg {nth}"),
            // Every one of them looked before anybody committed.
            looked_free: true,
            is_fit: true,
            horizon_until: w.registrar.now(),
        }),
        call: None,
    }
}

fn receipt(applied: &Applied) -> String {
    applied.facts.registration.clone().unwrap().receipt
}

async fn rp_09_rg_14_s4_one_attempt_wins_and_the_others_read_its_result<S: Storage>(w: World<S>) {
    let envelope = w.request(&effect("k")).await;
    let nonces = [w.approve(&envelope).await, w.approve(&envelope).await];
    let w = Arc::new(w);
    let mut racing = Vec::new();
    for nth in 0..ATTEMPTS {
        let (w, nonce) = (Arc::clone(&w), nonces[nth % 2].clone());
        racing.push(tokio::spawn(async move {
            let command = register(&w, &nth.to_string(), &nonce);
            w.registrar.storage().apply(mesh(), command).await.unwrap()
        }));
    }
    let mut answers = Vec::new();
    for one in racing {
        answers.push(one.await.unwrap());
    }
    let winners: Vec<&Applied> = answers.iter().filter(|a| a.kind == Kind::Fresh).collect();
    assert_eq!(winners.len(), 1);
    for answer in &answers {
        assert_eq!(receipt(answer), receipt(winners[0]));
        if answer.kind != Kind::Fresh {
            assert_eq!(
                (answer.kind, answer.code),
                (Kind::Prior, Some(Code::AttemptCollision))
            );
        }
    }
}

async fn many_runs_by_the_person_need_no_word_of_anybody_else<S: Storage>(w: World<S>) {
    let w = Arc::new(w);
    let racing: Vec<_> = (0..ATTEMPTS)
        .map(|_| {
            let w = Arc::clone(&w);
            tokio::spawn(async move {
                let ask = RegisterAsk {
                    effect: effect("k"),
                    approval: None,
                    nonce: None,
                    said_attempt: None,
                    verify: None,
                    command_hash: None,
                };
                w.registrar.register(ask, &person()).await.unwrap()
            })
        })
        .collect();
    let mut fresh = 0;
    for one in racing {
        let applied = one.await.unwrap();
        assert_ne!(applied.kind, Kind::Refused, "{:?}", applied.code);
        fresh += usize::from(applied.kind == Kind::Fresh);
    }
    assert_eq!(fresh, 1);
}

on_every_store!(
    many_runs_by_the_person_need_no_word_of_anybody_else,
    rp_09_rg_14_s4_one_attempt_wins_and_the_others_read_its_result,
);

/// The child's part: sixteen attempts on a key that three other processes want as well.
async fn race_in_this_process(schema: &str) {
    let storage = Postgres::connect(&postgres_url(), schema).await.unwrap();
    let seed = u64::from(std::process::id());
    let w = with_policy(storage, Raw::None, seed, "").await.unwrap();
    let nonce = Nonce::presented(&std::env::var(CHILD_NONCE).unwrap());
    let w = Arc::new(w);
    let mut racing = Vec::new();
    for _ in 0..PER_PROCESS {
        let (w, nonce) = (Arc::clone(&w), nonce.clone());
        racing.push(tokio::spawn(async move {
            w.register(&effect("k"), Some(&nonce)).await
        }));
    }
    for one in racing {
        let applied = one.await.unwrap();
        let code = applied.code.map_or("WON", Code::as_str);
        println!("\nRACE {:?} {code} {}", applied.kind, receipt(&applied));
    }
}

#[tokio::test]
async fn rg_14_64_attempts_from_4_processes_make_one_effect() {
    if let Ok(schema) = std::env::var(CHILD) {
        return race_in_this_process(&schema).await;
    }
    let schema = fresh_schema();
    let url = postgres_url();
    let storage = Postgres::connect(&url, &schema).await.unwrap();
    let w = with_policy(storage, Raw::None, 1, "").await.unwrap();
    let envelope = w.request(&effect("k")).await;
    // Before anybody runs: what has happened takes no further nonce.
    let mut nonces = Vec::new();
    for _ in 0..PROCESSES {
        nonces.push(w.approve(&envelope).await);
    }
    let test = "races::rg_14_64_attempts_from_4_processes_make_one_effect";
    let children: Vec<_> = nonces
        .iter()
        .map(|nonce| {
            Process::new(std::env::current_exe().unwrap())
                .args([test, "--exact", "--nocapture"])
                .env(CHILD, &schema)
                .env(CHILD_NONCE, nonce.reveal())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut lines = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "a racing process failed");
        let text = String::from_utf8(output.stdout).unwrap();
        lines.extend(
            text.lines()
                .filter(|line| line.starts_with("RACE "))
                .map(str::to_owned),
        );
    }
    assert_eq!(lines.len(), PROCESSES * PER_PROCESS);
    let won = lines
        .iter()
        .filter(|line| line.starts_with("RACE Fresh WON "))
        .count();
    assert_eq!(won, 1);
    let told = |line: &String| line.splitn(4, ' ').nth(3).unwrap().to_owned();
    assert!(
        lines.iter().all(|line| told(line) == told(&lines[0])),
        "one result for all"
    );
    let allowed = ["WON", "ATTEMPT_COLLISION", "REPLAY_DUPLICATE"];
    for line in &lines {
        assert!(allowed.contains(&line.split(' ').nth(2).unwrap()), "{line}");
    }
    let client = raw_client(&url, &schema).await;
    let count = |table: &str| format!("SELECT count(*) FROM {table}");
    for table in ["effect_consume", "effect_registration"] {
        let found: i64 = client.query_one(&count(table), &[]).await.unwrap().get(0);
        assert_eq!(found, 1, "{table}");
    }
}

#[tokio::test]
async fn rg_14_a_winner_killed_before_its_commit_leaves_the_key_to_one_other() {
    let w = Arc::new(postgres().await);
    let nonce = w.nonce(&effect("k")).await;
    let Raw::Postgres { url, schema } = &w.raw else {
        panic!("not PostgreSQL");
    };
    // A process that has consumed the key and not committed.
    let doomed = raw_client(url, schema).await;
    let hex = heddle_core::fingerprint::hex(&mesh().0.to_bytes());
    let consume = format!(
        "BEGIN; INSERT INTO effect_consume VALUES ('\\x{hex}', 'k', '\\x{}', 'o', 't', '', 'e', '',
         '\\x{}', 'doomed', 0, 0)",
        "aa".repeat(32),
        "bb".repeat(32)
    );
    doomed.batch_execute(&consume).await.unwrap();
    let pid: i32 = doomed
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    let racing: Vec<_> = (0..6)
        .map(|_| {
            let (w, nonce) = (Arc::clone(&w), nonce.clone());
            tokio::spawn(async move { w.register(&effect("k"), Some(&nonce)).await })
        })
        .collect();
    let watcher = raw_client(url, schema).await;
    let blocked = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    loop {
        let waiting: i64 = watcher.query_one(blocked, &[&pid]).await.unwrap().get(0);
        if waiting >= 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let kill = "SELECT pg_terminate_backend($1)";
    watcher.execute(kill, &[&pid]).await.unwrap();
    let mut fresh = 0;
    let mut receipts = std::collections::BTreeSet::new();
    for one in racing {
        let applied = one.await.unwrap();
        assert_ne!(applied.kind, Kind::Refused, "{:?}", applied.code);
        fresh += usize::from(applied.kind == Kind::Fresh);
        receipts.insert(receipt(&applied));
    }
    assert_eq!((fresh, receipts.len()), (1, 1));
}
