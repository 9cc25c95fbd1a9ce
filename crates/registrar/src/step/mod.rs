//! The decisions over rows: facts and a command in, an answer and new rows out. No I/O.

mod approve;
mod register;
mod run;

use crate::command::{Ask, Command, Stepped};
use crate::facts::Facts;

/// Decides. What it says is true only if all its rows are written in one transaction, and the facts
/// still stood when they were: the unique keys of the store see to the second.
pub fn step(facts: &Facts, command: &Command) -> Stepped {
    match &command.ask {
        Ask::Request {
            effect,
            envelope_id,
            expires_at,
            consent,
        } => approve::request(facts, command, effect, envelope_id, *expires_at, *consent),
        Ask::Decide {
            envelope_id,
            ruling,
            grant,
        } => approve::decide(facts, command, envelope_id, *ruling, *grant),
        Ask::Register(ask) => register::register(facts, command, ask),
        Ask::Start { attempt_id } => run::start(facts, command, attempt_id),
        Ask::Finish {
            attempt_id,
            outcome,
        } => run::finish(facts, command, attempt_id, outcome),
        Ask::Resolve { again, note } => run::resolve(facts, command, *again, note),
        Ask::Verify { passed, detail } => run::verify(facts, command, *passed, detail),
        Ask::Compensate { nonce, attempt_id } => {
            run::compensate(facts, command, *nonce, attempt_id)
        }
        Ask::CompensationDone {
            attempt_id,
            outcome,
        } => run::compensation_done(facts, command, attempt_id, outcome),
    }
}
