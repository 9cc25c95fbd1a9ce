//! What callers say, checked before anything is decided by it.

use heddle_core::data::change_fingerprint;
use heddle_registrar::command::VerifyPlan;
use heddle_wire::broker::EffectCall;
use heddle_wire::from_wire;
use heddle_wire::ipc::EffectVerifyPlan;
use heddle_wire::problem::Problem;

use super::steps::{NOTE_BYTES_MAX, bounded};

/// Over everything that was asked, and in no other home's words.
pub(super) fn fingerprint(call: &EffectCall) -> Result<[u8; 32], Problem> {
    let fields = serde_json::to_value(call);
    let fields = fields.map_err(|error| from_wire::invalid(error.to_string()))?;
    let digest = change_fingerprint("effect", &fields);
    digest
        .map(|digest| digest.0)
        .map_err(|error| from_wire::invalid(error.to_string()))
}

/// The digest of a command, as a caller says it.
pub(super) fn command_hash(said: Option<&String>) -> Result<Option<String>, Problem> {
    let is_hash = |text: &String| {
        text.len() == 64
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    if said.is_some_and(|text| !is_hash(text)) {
        return Err(from_wire::invalid(
            "command_hash is not 64 lower-case hex digits",
        ));
    }
    Ok(said.cloned())
}

/// Words that are kept; nobody runs them from there.
pub(super) fn plan(plan: &EffectVerifyPlan) -> Result<VerifyPlan, Problem> {
    for text in plan.command.iter().chain(&plan.url) {
        bounded("the verifier", text, NOTE_BYTES_MAX)?;
    }
    Ok(VerifyPlan {
        command: plan.command.clone(),
        url: plan.url.clone(),
        later: plan.later,
    })
}
