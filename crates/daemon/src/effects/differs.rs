//! What to do about an effect that is another one than its key, or its approval, belongs to.

use heddle_core::shell::quoted;
use heddle_registrar::binding::{Effect, LogicalKey};
use heddle_registrar::code::Code;
use heddle_registrar::facts::Facts;
use heddle_registrar::refused::{fields, shown, standing};

use super::view::request_command;

/// Enough of a hash to tell two artifacts of one key apart.
const HASH_CHARS: usize = 8;

/// None where nothing differs, or where it is about something else.
pub(super) fn next(code: Code, facts: &Facts, asked: Option<&Effect>) -> Option<String> {
    let is_about_this = matches!(
        code,
        Code::ReplayBindingMismatch
            | Code::NonceUnbound
            | Code::ApprovalNeeded
            | Code::ReplayNonceConsumed
    );
    if code == Code::ReplayBindingMismatch && asked.is_none() {
        return Some(
            "Say the command that it was registered with, behind --; a new key makes a new effect. Nothing was run."
                .to_owned(),
        );
    }
    let (standing, asked) = (standing(facts)?, asked?);
    let fields = fields(standing, asked);
    let names: Vec<&str> = fields.iter().map(|(name, ..)| *name).collect();
    let anew = request_command(Some(&under_a_new_key(asked)));
    match names.as_slice() {
        _ if !is_about_this => None,
        [] => None,
        // The file is another one than the one that somebody has seen: no further approval makes it that one.
        ["artifact"] => Some(format!(
            "Give the file that {} stands for ({}); or ask for this one under a new key: `{anew}`. Nothing was run.",
            asked.key,
            shown("artifact", &standing.artifact_hash)
        )),
        _ => Some(format!(
            "Say the same as when it was asked for (`heddle effect status {}` shows it); or ask for this one under a new key: `{anew}`. Nothing was run.",
            quoted(asked.key.as_str())
        )),
    }
}

/// A key of its own for another effect, the same one whenever it is asked for: who pastes it twice asks once.
fn under_a_new_key(asked: &Effect) -> Effect {
    let end = asked.artifact_hash.get(..HASH_CHARS).unwrap_or("2");
    let longer = format!("{}-{end}", asked.key);
    let key = LogicalKey::parse(&longer).or_else(|_| LogicalKey::parse("NEW_KEY"));
    Effect {
        key: key.unwrap_or_else(|_| asked.key.clone()),
        ..asked.clone()
    }
}

#[cfg(test)]
mod tests {
    use heddle_registrar::binding::FIELD_BYTES_MAX;

    use super::*;

    #[test]
    fn another_effect_gets_a_key_that_it_can_have() {
        let effect = |key: &str, hash: &str| {
            Effect::new(key, "deploy", "prod", &hash.repeat(64), "").unwrap()
        };
        let named = |effect: &Effect| under_a_new_key(effect).key.to_string();
        assert_eq!(named(&effect("k", "a")), "k-aaaaaaaa");
        assert_eq!(named(&effect("k", "")), "k-2");
        let long = "k".repeat(FIELD_BYTES_MAX);
        assert_eq!(named(&effect(&long, "a")), "NEW_KEY");
        let whole = request_command(Some(&under_a_new_key(&effect("it's", "a"))));
        assert_eq!(
            whole,
            r"heddle effect request --key 'it'\''s-aaaaaaaa' --op deploy --target prod --artifact FILE"
        );
    }
}
