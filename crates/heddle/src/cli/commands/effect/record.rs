//! The journal of the repository that an effect is run in: every step is a record there, too.
//!
//! The registrar is the truth. A journal that cannot be written is told of and holds up nothing.

use std::cell::{Cell, RefCell};

use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::hex;
use heddle_journal::action::Action;
use heddle_journal::format::is_item_id;
use heddle_journal::{Change, Journal};
use heddle_wire::ipc::{EffectRequestAnswer, EffectRequestBody};
use heddle_wire::problem::Problem;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cli::commands::journal::store;
use crate::cli::error::exit;
use crate::cli::{Context, ui};

pub struct Record {
    journal: Option<Journal>,
    /// Why a step was not recorded. After one failure the rest is not tried: each try may wait for a lock.
    trouble: RefCell<Option<String>>,
    steps: Cell<u32>,
}

impl Record {
    /// Of the repository that we are in, if it has a journal.
    pub fn open(context: &Context) -> Self {
        let (journal, trouble) = match store::open(context, None) {
            Ok(journal) => (Some(journal), None),
            Err(error) if error.code == exit::NOT_FOUND => (None, None),
            Err(error) => (None, Some(error.message)),
        };
        let record = Self {
            journal,
            trouble: RefCell::new(None),
            steps: Cell::new(0),
        };
        if let Some(why) = trouble {
            record.fail(why);
        }
        record
    }

    fn fail(&self, why: String) {
        ui::note(&format!(
            "note: the journal of this repository was not written ({why}); the effect itself is recorded, `heddle explain` shows it"
        ));
        *self.trouble.borrow_mut() = Some(why);
    }

    /// That somebody asked, through whichever door.
    pub fn requested(&self, body: &EffectRequestBody, answer: &EffectRequestAnswer) {
        let details = json!({
            "operation": body.op,
            "target": body.target,
            "artifact_hash": body.artifact_hash,
            "request_id": answer.request_id,
            "agent": body.agent,
        });
        self.step(&body.key, "requested", details);
    }

    /// That who decides has refused what was asked for, where it has. Beside the effect, as an item of its own: what stands
    /// is not changed by it.
    pub fn refused(&self, key: Option<&str>, (verb, agent): (&str, Option<&str>), why: &Problem) {
        let told = why.extra.get("logical_request_key").and_then(Value::as_str);
        let Some(key) = key.or(told).filter(|_| is_refusal(why)) else {
            return;
        };
        let details = json!({
            // Who is refused twice for one reason was refused twice.
            "refusal": Context::mint_id(),
            "asked": verb,
            "code": why.code,
            "detail": why.detail,
            "agent": agent,
        });
        self.write((key, item_id("refused-effect", key)), "refused", details);
    }

    /// One step of the effect of this key.
    pub fn step(&self, key: &str, step: &str, details: Value) {
        self.write((key, item_id("effect", key)), step, details);
    }

    fn write(&self, (key, item): (&str, String), step: &str, details: Value) {
        let Some(journal) = &self.journal else {
            return;
        };
        if self.trouble.borrow().is_some() {
            return;
        }
        let mut document = json!({
            "effect": key,
            "status": step,
        });
        if let (Some(document), Value::Object(details)) = (document.as_object_mut(), details) {
            document.extend(details.into_iter().filter(|(_, value)| !value.is_null()));
        }
        let change = Change {
            item_type: "agent_run".to_owned(),
            item_id: Some(item),
            action: Some(action(step)),
            document: Some(document),
            summary: Some(summary(key, step)),
        };
        match journal.mutate_whole(vec![change]) {
            Ok(_) => self.steps.set(self.steps.get() + 1),
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// For the answer of the verb; null where the repository has no journal.
    pub fn told(&self) -> Value {
        let trouble = self.trouble.borrow().clone();
        if self.journal.is_none() && trouble.is_none() {
            return Value::Null;
        }
        json!({"recorded": self.steps.get(), "trouble": trouble})
    }
}

/// A word about the effect, and none about how it could be asked for.
fn is_refusal(problem: &Problem) -> bool {
    let Some(code) = problem.known_code() else {
        return false;
    };
    matches!(
        code,
        ErrorCode::ReplayNonceConsumed
            | ErrorCode::NonceUnbound
            | ErrorCode::ReplayStaleRequest
            | ErrorCode::ReplayBindingMismatch
            | ErrorCode::ApprovalNeeded
            | ErrorCode::ApprovalRefused
            | ErrorCode::EffectStepRefused
            | ErrorCode::EffectOutcomeUnknown
            | ErrorCode::EffectNotFound
            | ErrorCode::IdempotencyKeyReused
    )
}

/// A key can hold what no file name may.
fn item_id(of: &str, key: &str) -> String {
    let plain = format!("{of}-{key}");
    if is_item_id(&plain) {
        return plain;
    }
    format!("{of}-{}", hex(&Sha256::digest(key.as_bytes())[..16]))
}

fn summary(key: &str, step: &str) -> String {
    let shown: String = key.chars().take(100).collect();
    format!("effect {shown}: {step}")
}

/// The journal's word for it.
fn action(step: &str) -> Action {
    match step {
        "requested" => Action::RunWaitingInput,
        "approved" => Action::RunCreated,
        "turned_down" => Action::RunCancelled,
        "registered" => Action::RunLaunching,
        "started" | "compensating" => Action::RunRunning,
        "not_started" | "resolved_again" => Action::RunInterrupted,
        "finished" | "resolved_done" | "resolved_failed" => Action::RunAmended,
        "closed" | "compensated" => Action::RunCompleted,
        _ => Action::RunFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_name_in_the_journal() {
        assert_eq!(item_id("effect", "mig-42"), "effect-mig-42");
        let long: Vec<String> = (1..=256).map(|letters| "x".repeat(letters)).collect();
        let odd = ["a/b", "ä", "../.."].into_iter();
        for odd in odd.chain(long.iter().map(String::as_str)) {
            for of in ["effect", "refused-effect"] {
                assert!(is_item_id(&item_id(of, odd)), "{of} {odd}");
                assert_ne!(item_id(of, odd), item_id(of, &format!("{odd}x")));
            }
        }
    }
}
