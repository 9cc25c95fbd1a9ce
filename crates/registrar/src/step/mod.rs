//! The decisions over rows: facts and a command in, an answer and new rows out. No I/O.

mod approve;
mod register;
mod run;

use crate::code::Code;
use crate::command::{Ask, Command, Kind, Stepped};
use crate::expiry;
use crate::facts::Facts;
use crate::rows::{CallRow, Row};

/// Decides. What it says is true only if all its rows are written in one transaction, and the facts
/// still stood when they were: the unique keys of the store see to the second.
///
/// A request under an id of the caller's own goes through the gate first: known and the same is answered
/// with what stands, known and another is refused, and a new id is consumed with what the request does.
///
/// What is over is written down first, whatever comes of the rest: it stays over when the clock goes back ([`expiry`]).
pub fn step(facts: &Facts, command: &Command) -> Stepped {
    let mut marks = expiry::marks(facts, command);
    if marks.is_empty() {
        return called(facts, command);
    }
    let mut stepped = called(&facts.clone().with(&marks), command);
    marks.append(&mut stepped.rows);
    stepped.rows = marks;
    stepped
}

fn called(facts: &Facts, command: &Command) -> Stepped {
    let Some(call) = &command.call else {
        return decide(facts, command);
    };
    match &facts.call {
        Some(known) if known.fingerprint == call.fingerprint => {
            return Stepped::prior(Code::ReplayDuplicate);
        }
        Some(_) => return Stepped::refused(Code::CallReused),
        None => {}
    }
    let mut stepped = decide(facts, command);
    // A refusal burns nothing, this id included.
    if stepped.kind != Kind::Refused {
        stepped.rows.push(Row::Call(CallRow {
            caller: command.by.clone(),
            id: call.id.clone(),
            fingerprint: call.fingerprint,
            key: command.key.clone(),
            at: command.now,
        }));
    }
    stepped
}

fn decide(facts: &Facts, command: &Command) -> Stepped {
    match &command.ask {
        Ask::Request {
            effect,
            envelope_id,
            expires_at,
            consent,
        } => {
            let consent = consent.as_ref();
            approve::request(facts, command, effect, envelope_id, *expires_at, consent)
        }
        Ask::Decide {
            envelope_id,
            ruling,
            grant,
        } => approve::decide(facts, command, envelope_id, *ruling, *grant),
        Ask::Register(ask) => register::register(facts, command, ask),
        Ask::Start {
            attempt_id,
            command_hash,
            by_right,
        } => run::start(
            facts,
            command,
            attempt_id,
            (command_hash.as_ref(), *by_right),
        ),
        Ask::Finish {
            attempt_id,
            outcome,
        } => run::finish(facts, command, attempt_id, outcome),
        Ask::NotStarted { attempt_id, why } => run::not_started(facts, command, attempt_id, why),
        Ask::Resolve {
            of,
            round,
            word,
            note,
        } => run::resolve(facts, command, (of, *round), (*word, note)),
        Ask::Verify {
            passed,
            detail,
            by_right,
        } => run::verify(facts, command, (*passed, detail), *by_right),
        Ask::Compensate { nonce, attempt_id } => {
            run::compensate(facts, command, *nonce, attempt_id)
        }
        Ask::CompensationDone {
            attempt_id,
            outcome,
        } => run::compensation_done(facts, command, attempt_id, outcome),
    }
}
