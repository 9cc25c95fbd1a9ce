//! What the authority counts: each thing where it is decided, and refusals by their code.

use heddle_registrar::code::Code;
use heddle_registrar::command::{Applied, Kind};
use heddle_registrar::rows::Step;
use heddle_registrar::storage::StorageError;

use super::steps::is_of_compensation;

pub(super) fn requested(applied: &Applied) {
    let outcome = match applied.kind {
        Kind::Fresh => "asked",
        Kind::Prior => "known",
        Kind::Refused => "refused",
    };
    metrics::counter!("heddle_effect_requests_total", "outcome" => outcome).increment(1);
}

pub(super) fn decided(outcome: Option<&'static str>) {
    let outcome = outcome.unwrap_or("refused");
    metrics::counter!("heddle_effect_decisions_total", "outcome" => outcome).increment(1);
}

pub(super) fn registered(applied: &Result<Applied, StorageError>) {
    let code = match applied {
        Err(_) => "failed",
        Ok(applied) => applied.code.map_or("REGISTERED", Code::as_str),
    };
    metrics::counter!("heddle_effect_registrations_total", "code" => code).increment(1);
}

pub(super) fn stepped(step: &Step, round: i64) {
    if is_of_compensation(step, round) {
        let outcome = match step {
            Step::Compensating => "begun",
            Step::NotStarted { .. } => "not_started",
            Step::Resolved { again: true, .. } => "resolved_again",
            Step::Resolved { again: false, .. } => "resolved_done",
            Step::Compensated { outcome } if !outcome.is_good() => "failed",
            _ => "done",
        };
        metrics::counter!("heddle_effect_compensations_total", "outcome" => outcome).increment(1);
        return;
    }
    let outcome = match step {
        Step::Verified { passed, .. } => {
            let outcome = if *passed { "passed" } else { "failed" };
            metrics::counter!("heddle_effect_verdicts_total", "outcome" => outcome).increment(1);
            return;
        }
        Step::Started { .. } => "started",
        Step::NotStarted { .. } => "not_started",
        Step::Resolved { again: true, .. } => "resolved_again",
        Step::Resolved { failed: true, .. } => "resolved_failed",
        Step::Resolved { .. } => "resolved_done",
        _ => "finished",
    };
    metrics::counter!("heddle_effect_runs_total", "outcome" => outcome).increment(1);
}
