//! Every interleaving of three attempts with two nonces, with a crash before every step, and with a command
//! that can or cannot be started: the real decisions
//! over tables whose load and write are two moments, as in a database that isolates no more than it must.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use heddle_core::clock::WallMs;
use heddle_registrar::authority::{Nonce, NonceHash};
use heddle_registrar::binding::ReplayKey;
use heddle_registrar::code::Code;
use heddle_registrar::command::{Ask, Command, Kind, Register, Stepped};
use heddle_registrar::rows::{
    DecisionRow, EnvelopeRow, Grant, Outcome, Purpose, Row, Ruling, Step,
};
use heddle_registrar::step::step;
use heddle_registrar::storage::memory::{Tables, Taken};

use crate::world::{START, effect, key};

const ATTEMPTS: usize = 3;

/// What one attempt does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Look,
    Register,
    Start,
    Effect,
    /// Its command could not be started.
    GiveBack,
    Finish,
    Verify,
    Done,
    Crashed,
}

#[derive(Debug, Clone)]
struct Attempt {
    at: At,
    nonce: usize,
    looked_free: bool,
    /// Decided and not yet written.
    held: Option<Stepped>,
    answer: Option<(Kind, Option<Code>)>,
}

#[derive(Debug, Clone)]
struct State {
    tables: Tables,
    attempts: Vec<Attempt>,
    effects: usize,
}

/// How the store under the model behaves: right, or broken in a way that the model must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    Unique,
    /// Inserts whatever it is told.
    Careless,
    /// Unique by attempt, as the routing table of the specification.
    ByAttempt,
}

fn nonce(index: usize) -> NonceHash {
    Nonce::presented(["n1", "n2"][index]).hash()
}

fn begin(nonces: [usize; ATTEMPTS]) -> State {
    let mut tables = Tables::default();
    let envelope = EnvelopeRow {
        envelope_id: "env".into(),
        replay_key: effect("k").replay_key("env"),
        effect: effect("k"),
        requested_by: "planner".into(),
        requested_at: START,
        expires_at: WallMs(START.0 + 1000),
    };
    let decision = |index: usize| DecisionRow {
        envelope_id: "env".into(),
        seq: [1, 2][index],
        ruling: Ruling::Approved,
        grant: Some(Grant {
            nonce: nonce(index),
            purpose: Purpose::Register,
            not_before: START,
            expires_at: WallMs(START.0 + 1000),
        }),
        by: "alice".into(),
        at: START,
    };
    let rows = [
        Row::Envelope(envelope),
        Row::Decision(decision(0)),
        Row::Decision(decision(1)),
    ];
    tables.insert(&rows).unwrap();
    let attempts = nonces.map(|nonce| Attempt {
        at: At::Look,
        nonce,
        looked_free: false,
        held: None,
        answer: None,
    });
    State {
        tables,
        attempts: attempts.to_vec(),
        effects: 0,
    }
}

fn command(index: usize, attempt: &Attempt) -> Command {
    let attempt_id = format!("a{index}");
    let outcome = Outcome {
        exit_code: Some(0),
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
    };
    let ask = match attempt.at {
        At::Register => Ask::Register(Register {
            effect: effect("k"),
            approval: None,
            nonce: Some(nonce(attempt.nonce)),
            said_attempt: None,
            verify: None,
            command_hash: None,
            attempt_id,
            registration_id: format!("reg{index}"),
            looked_free: attempt.looked_free,
            is_fit: true,
            horizon_until: WallMs(i64::MAX),
        }),
        At::Start => Ask::Start {
            attempt_id,
            command_hash: None,
            by_right: false,
        },
        At::GiveBack => Ask::NotStarted {
            attempt_id,
            why: String::new(),
        },
        At::Finish => Ask::Finish {
            attempt_id,
            outcome,
        },
        _ => Ask::Verify {
            passed: true,
            detail: String::new(),
            by_right: false,
        },
    };
    Command {
        key: key("k"),
        by: "planner".into(),
        now: START,
        ask,
        call: None,
    }
}

fn write(tables: &mut Tables, rows: &[Row], store: Store) -> Result<(), Taken> {
    let by_attempt = |tables: &Tables| {
        rows.iter().any(|row| match row {
            Row::Consume(new) => tables
                .consumed
                .iter()
                .any(|row| row.attempt_id == new.attempt_id),
            Row::Step(new) => tables
                .steps
                .iter()
                .any(|row| row.attempt_id == new.attempt_id && row.step.kind() == new.step.kind()),
            _ => false,
        })
    };
    match store {
        Store::Unique => return tables.insert(rows),
        Store::ByAttempt if by_attempt(tables) => return Err(Taken),
        Store::ByAttempt | Store::Careless => {}
    }
    for row in rows.iter().cloned() {
        match row {
            Row::Envelope(row) => tables.envelopes.push(row),
            Row::Decision(row) => tables.decisions.push(row),
            Row::Consume(row) => tables.consumed.push(row),
            Row::Registration(row) => tables.registrations.push(row),
            Row::Step(row) => tables.steps.push(row),
            Row::Call(row) => tables.calls.push(row),
        }
    }
    Ok(())
}

/// The state after this attempt's next moment.
fn advance(state: &State, index: usize, store: Store) -> State {
    let mut next = state.clone();
    let attempt = &mut next.attempts[index];
    match (attempt.at, attempt.held.take()) {
        (At::Look, _) => {
            attempt.looked_free = next.tables.facts(&key("k"), None).consumed.is_none();
            attempt.at = At::Register;
        }
        (At::Effect, _) => {
            next.effects += 1;
            attempt.at = At::Finish;
        }
        (_, None) => {
            let command = command(index, attempt);
            let facts = next.tables.facts(&command.key, command.ask.nonce());
            attempt.held = Some(step(&facts, &command));
        }
        (at, Some(held)) => {
            if write(&mut next.tables, &held.rows, store).is_err() {
                attempt.looked_free |= at == At::Register;
                return next;
            }
            if at == At::Register {
                attempt.answer = Some((held.kind, held.code));
            }
            attempt.at = match (at, held.kind) {
                (_, Kind::Refused) => At::Done,
                (At::Register, _) => At::Start,
                (At::Start, Kind::Fresh) => At::Effect,
                (At::Finish, _) => At::Verify,
                _ => At::Done,
            };
        }
    }
    next
}

fn judge(state: &State) -> Result<(), String> {
    let tables = &state.tables;
    let say = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("{what}: {state:#?}"))
        }
    };
    say(state.effects <= 1, "RG-01: the effect happened twice")?;
    say(
        tables.consumed.len() <= 1,
        "RG-01: the key was consumed twice",
    )?;
    say(
        tables.consumed.len() == tables.registrations.len(),
        "RG-02: half a registration",
    )?;
    let replay: Vec<ReplayKey> = tables.consumed.iter().map(|row| row.replay_key).collect();
    say(
        replay.iter().all(|k| *k == effect("k").replay_key("env")),
        "RG-04: bound to something else",
    )?;
    let winners = state
        .attempts
        .iter()
        .filter(|a| matches!(a.answer, Some((Kind::Fresh, _))));
    say(winners.count() <= 1, "RG-14: two winners")?;
    for attempt in &state.attempts {
        let told_prior = matches!(attempt.answer, Some((Kind::Prior, _)));
        say(
            !told_prior || tables.registrations.len() == 1,
            "RG-03: a prior result that is not there",
        )?;
        let refused = matches!(attempt.answer, Some((Kind::Refused, _)));
        say(!refused, "RG-14: a good attempt was refused")?;
        let lost = attempt.looked_free && told_prior;
        let code = attempt.answer.and_then(|(_, code)| code);
        say(
            !lost || code == Some(Code::AttemptCollision),
            "RG-14: a loser was not told so",
        )?;
    }
    let finished = tables
        .steps
        .iter()
        .filter(|row| matches!(row.step, Step::Finished { .. }));
    say(finished.count() <= state.effects, "an end without a run")?;
    // When everybody is done: the effect is there, unless somebody died on the way.
    let is_over = state
        .attempts
        .iter()
        .all(|a| matches!(a.at, At::Done | At::Crashed));
    let died = state.attempts.iter().any(|a| a.at == At::Crashed);
    let not_started =
        |row: &&heddle_registrar::rows::StepRow| matches!(row.step, Step::NotStarted { .. });
    let given_back = tables.steps.iter().filter(not_started).count();
    say(
        !is_over || died || given_back > 0 || state.effects == 1,
        "nobody did it, and nobody died",
    )
}

/// How many states there are; or the first that is wrong.
fn explore(nonces: [usize; ATTEMPTS], store: Store) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut open = vec![begin(nonces)];
    while let Some(state) = open.pop() {
        let mut hash = DefaultHasher::new();
        format!("{state:?}").hash(&mut hash);
        if !seen.insert(hash.finish()) {
            continue;
        }
        judge(&state)?;
        for (index, attempt) in state.attempts.iter().enumerate() {
            if matches!(attempt.at, At::Done | At::Crashed) {
                continue;
            }
            open.push(advance(&state, index, store));
            if attempt.at == At::Effect {
                let mut broken = state.clone();
                broken.attempts[index].at = At::GiveBack;
                open.push(broken);
            }
            let mut crashed = state.clone();
            crashed.attempts[index].at = At::Crashed;
            crashed.attempts[index].held = None;
            open.push(crashed);
        }
    }
    Ok(seen.len())
}

#[test]
fn rg_01_rg_02_rg_14_hold_in_every_interleaving_with_a_crash_at_every_step() {
    let mut states = 0;
    for nonces in [[0, 0, 0], [0, 0, 1], [0, 1, 1]] {
        states += explore(nonces, Store::Unique).unwrap();
    }
    // Far fewer would mean that the model went nowhere.
    assert!(states > 3000, "{states}");
}

#[test]
fn the_model_finds_a_store_without_unique_keys() {
    explore([0, 0, 1], Store::Careless).unwrap_err();
}

#[test]
fn the_model_finds_the_attempt_in_the_unique_key() {
    explore([0, 0, 1], Store::ByAttempt).unwrap_err();
}
