//! The steps after the registration: each is written once, and only where the table of lives allows it.

use crate::authority::NonceHash;
use crate::binding::Effect;
use crate::code::Code;
use crate::command::{Command, Stepped, Word};
use crate::decide::Nonce;
use crate::facts::Facts;
use crate::life::{Move, Stage, after};
use crate::rows::{Outcome, Purpose, Row, Step, StepRow};

use super::register::worth;

/// Why a move is not possible from here.
fn impossible(facts: &Facts) -> Stepped {
    Stepped::refused(match facts.stage() {
        Stage::Issued => Code::NotFound,
        _ => Code::StepRefused,
    })
}

fn row(command: &Command, round: i64, attempt_id: &str, step: Step) -> StepRow {
    StepRow {
        key: command.key.clone(),
        round,
        step,
        attempt_id: attempt_id.to_owned(),
        nonce: None,
        by: command.by.clone(),
        at: command.now,
    }
}

/// Whether this is who began it. The attempt's id is no secret: it stands in the status, for everybody.
fn is_of(begun: Option<&StepRow>, command: &Command, attempt_id: &str) -> bool {
    begun.is_some_and(|row| row.attempt_id == attempt_id && row.by == command.by)
}

/// Takes the run, with the command that it was registered with: whose effect it is, and whoever could have it
/// registered. Whoever comes second is told that it is taken: one attempt runs a round, ever.
pub(super) fn start(
    facts: &Facts,
    command: &Command,
    attempt_id: &str,
    (command_hash, by_right): (Option<&String>, bool),
) -> Stepped {
    match after(facts.stage(), Move::Start) {
        Some(_) if !by_right && !facts.is_of(&command.by) => {
            Stepped::refused(Code::ApprovalRefused)
        }
        Some(_) if !is_the_command(facts, command_hash, by_right) => {
            Stepped::refused(Code::ReplayBindingMismatch)
        }
        Some(_) => {
            let step = Step::Started {
                command_hash: command_hash.cloned(),
            };
            let started = row(command, facts.round() + 1, attempt_id, step);
            Stepped::fresh(vec![Row::Step(started)])
        }
        None if facts.stage() == Stage::Issued => impossible(facts),
        None => Stepped::prior(Code::ReplayDuplicate),
    }
}

/// What could not be started is run with a better command; what a person gives free, that person chooses.
fn is_the_command(facts: &Facts, said: Option<&String>, by_right: bool) -> bool {
    match facts.steps.last().map(|row| &row.step) {
        Some(Step::NotStarted { .. }) => return true,
        Some(Step::Resolved { .. }) if by_right => return true,
        _ => {}
    }
    let bound = facts.command_hash();
    bound.is_none() || bound.as_ref() == said
}

/// Only who took the run may say how it ended; the same end again is the same answer.
pub(super) fn finish(
    facts: &Facts,
    command: &Command,
    attempt_id: &str,
    outcome: &Outcome,
) -> Stepped {
    let is_runner = is_of(facts.runner(), command, attempt_id);
    match after(facts.stage(), Move::Finish) {
        Some(_) if is_runner => {
            let outcome = outcome.clone();
            let step = Step::Finished { outcome };
            Stepped::fresh(vec![Row::Step(row(
                command,
                facts.round(),
                attempt_id,
                step,
            ))])
        }
        None if is_runner && facts.outcome() == Some(outcome) => {
            Stepped::prior(Code::ReplayDuplicate)
        }
        _ => impossible(facts),
    }
}

/// Whoever is at it now, and the round that this is: the run, or the compensation.
fn under_way(facts: &Facts) -> Option<(&StepRow, i64)> {
    match facts.stage() {
        Stage::Compensating | Stage::CompensationFailed => {
            Some((facts.compensator()?, facts.compensation_round()))
        }
        _ => Some((facts.runner()?, facts.round())),
    }
}

/// Nothing ran, so nothing has happened: the round is given back, and the next one may begin.
pub(super) fn not_started(
    facts: &Facts,
    command: &Command,
    attempt_id: &str,
    why: &str,
) -> Stepped {
    let said = |row: &StepRow| {
        let is_word = matches!(row.step, Step::NotStarted { .. });
        is_word && row.attempt_id == attempt_id
    };
    if facts.steps.last().is_some_and(said) {
        return Stepped::prior(Code::ReplayDuplicate);
    }
    match (under_way(facts), after(facts.stage(), Move::NotStarted)) {
        (Some((runner, round)), Some(_)) if is_of(Some(runner), command, attempt_id) => {
            let why = why.to_owned();
            let step = Step::NotStarted { why };
            Stepped::fresh(vec![Row::Step(row(command, round, attempt_id, step))])
        }
        _ => impossible(facts),
    }
}

/// A word is about one effect, as whoever says it names it, and about one run: the one that the caller has seen to be
/// gone. One that began since lives, and is nobody's to resolve.
pub(super) fn resolve(
    facts: &Facts,
    command: &Command,
    (of, seen): (&Effect, Option<i64>),
    (word, note): (Word, &str),
) -> Stepped {
    // IMPORTANT: before anything else. A word that names another effect than the key's must not let anything run.
    if facts.consumed.as_ref().is_some_and(|row| row.effect != *of) {
        return Stepped::refused(Code::ReplayBindingMismatch);
    }
    let (by, exit_code) = match word {
        Word::Again => (Move::ResolveAgain, None),
        Word::Done => (Move::ResolveDone, None),
        Word::Failed { exit_code } => (Move::ResolveDone, exit_code),
    };
    let failed = matches!(word, Word::Failed { .. });
    let Some((runner, round)) = under_way(facts) else {
        return impossible(facts);
    };
    // A compensation that failed is not made up for: there is nothing to say but whether it begins again.
    let is_said = !failed || round > 0;
    if !is_said || after(facts.stage(), by).is_none() || seen.is_some_and(|seen| seen != round) {
        return impossible(facts);
    }
    let step = Step::Resolved {
        again: word == Word::Again,
        note: note.to_owned(),
        failed,
        exit_code,
    };
    let resolved = row(command, round, &runner.attempt_id, step);
    Stepped::fresh(vec![Row::Step(resolved)])
}

/// The verdict is a word of who ran it, whose effect it is, or who may approve it.
pub(super) fn verify(
    facts: &Facts,
    command: &Command,
    (passed, detail): (bool, &str),
    by_right: bool,
) -> Stepped {
    let by = if passed {
        Move::VerifyPass
    } else {
        Move::VerifyFail
    };
    let stage = facts.stage();
    if let (Some(_), Some(consumed)) = (after(stage, by), &facts.consumed) {
        let has_run = facts.runner().is_some_and(|row| row.by == command.by);
        if !by_right && !has_run && !facts.is_of(&command.by) {
            return Stepped::refused(Code::ApprovalRefused);
        }
        let step = Step::Verified {
            passed,
            detail: detail.to_owned(),
        };
        let verified = row(command, 0, &consumed.attempt_id, step);
        return Stepped::fresh(vec![Row::Step(verified)]);
    }
    // The first verdict stands: the same once more is answered with it, another one is refused.
    if facts.verdict() == Some(passed) {
        return Stepped::prior(Code::ReplayDuplicate);
    }
    impossible(facts)
}

/// A new nonce, for this purpose, permits one compensation and no registration (RG-13).
pub(super) fn compensate(
    facts: &Facts,
    command: &Command,
    nonce: Option<NonceHash>,
    attempt_id: &str,
) -> Stepped {
    let Some(consumed) = &facts.consumed else {
        return impossible(facts);
    };
    match facts.stage() {
        Stage::Compensating | Stage::CompensationFailed | Stage::Compensated => {
            return Stepped::prior(Code::ReplayDuplicate);
        }
        stage if after(stage, Move::Compensate).is_none() => return impossible(facts),
        _ => {}
    }
    let found = worth(
        facts.nonce.as_ref(),
        Purpose::Compensate,
        &consumed.effect,
        Some(&consumed.approval),
        (&command.by, command.now),
    );
    // Whoever ran it may also be the one to make up for it.
    let has_run = facts.runner().is_some_and(|row| row.by == command.by);
    let granted = facts.nonce.as_ref();
    let is_held = has_run || granted.is_some_and(|nonce| nonce.is_held_by(&command.by));
    match found {
        Nonce::Consumed => Stepped::refused(Code::ReplayNonceConsumed),
        Nonce::Unbound => Stepped::refused(Code::NonceUnbound),
        Nonce::Good if !is_held => Stepped::refused(Code::NonceUnbound),
        Nonce::Good => {
            let round = facts.compensation_round() - 1;
            let mut compensating = row(command, round, attempt_id, Step::Compensating);
            compensating.nonce = nonce;
            Stepped::fresh(vec![Row::Step(compensating)])
        }
    }
}

pub(super) fn compensation_done(
    facts: &Facts,
    command: &Command,
    attempt_id: &str,
    outcome: &Outcome,
) -> Stepped {
    let is_runner = is_of(facts.compensator(), command, attempt_id);
    let round = facts.compensation_round();
    let by = if outcome.is_good() {
        Move::CompensationDone
    } else {
        Move::CompensationFail
    };
    match after(facts.stage(), by) {
        Some(_) if is_runner => {
            let step = Step::Compensated {
                outcome: outcome.clone(),
            };
            Stepped::fresh(vec![Row::Step(row(command, round, attempt_id, step))])
        }
        None if is_runner && facts.compensation_outcome() == Some(outcome) => {
            Stepped::prior(Code::ReplayDuplicate)
        }
        _ => impossible(facts),
    }
}
