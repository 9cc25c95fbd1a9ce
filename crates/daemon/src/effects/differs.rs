//! In what the effect that was asked for differs from the one that its key, or its approval, belongs to; and what to
//! do about it.

use heddle_registrar::binding::Effect;
use heddle_registrar::code::Code;
use heddle_registrar::facts::Facts;

fn fields<'a>(standing: &'a Effect, asked: &'a Effect) -> Vec<(&'static str, &'a str, &'a str)> {
    let all = [
        ("operation", &standing.operation, &asked.operation),
        ("target", &standing.target, &asked.target),
        ("artifact", &standing.artifact_hash, &asked.artifact_hash),
        ("run", &standing.run_id, &asked.run_id),
    ];
    let other = all.into_iter().filter(|(_, was, is)| was != is);
    other
        .map(|(name, was, is)| (name, was.as_str(), is.as_str()))
        .collect()
}

fn shown(name: &str, value: &str) -> String {
    match (name, value) {
        (_, "") => "none".to_owned(),
        ("artifact", hash) => format!("sha256 {hash}"),
        (_, value) => value.to_owned(),
    }
}

/// What was said then, and what is said now.
pub(super) fn words(standing: &Effect, asked: Option<&Effect>) -> String {
    let Some(asked) = asked else {
        return String::new();
    };
    let words = fields(standing, asked).into_iter().map(|(name, was, is)| {
        let (was, is) = (shown(name, was), shown(name, is));
        format!("its {name} is {was}, and not {is}")
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The effect that the key stands for: the one that has happened, or the newest that was asked for.
fn standing(facts: &Facts) -> Option<&Effect> {
    let consumed = facts.consumed.as_ref().map(|row| &row.effect);
    consumed.or_else(|| facts.envelopes.last().map(|it| &it.row.effect))
}

/// Of a key that belongs to something else.
pub(super) fn sentence(facts: &Facts, asked: Option<&Effect>) -> String {
    match (standing(facts), asked) {
        (Some(standing), Some(asked)) if standing != asked => format!(
            "the key is in use for another effect: {}",
            words(standing, Some(asked))
        ),
        (_, Some(_)) => "the key is in use under another approval".to_owned(),
        (_, None) => "it was registered with another command".to_owned(),
    }
}

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
    let key = &asked.key;
    match names.as_slice() {
        _ if !is_about_this => None,
        [] => None,
        // The file is another one than the one that somebody has seen: no further approval makes it that one.
        ["artifact"] => Some(format!(
            "Give the file that {key} stands for ({}); or ask for this one under a new key, with `heddle effect request`. Nothing was run.",
            shown("artifact", &standing.artifact_hash)
        )),
        _ => Some(format!(
            "Say the same as when it was asked for (`heddle effect status {key}` shows it), or use a new key for a new effect. Nothing was run."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_with_both_values() {
        let effect = |target: &str, hash: &str| {
            Effect::new("k", "deploy", target, &hash.repeat(64), "").unwrap()
        };
        let (a, b) = (effect("prod", "a"), effect("prod", "b"));
        let told = words(&a, Some(&b));
        assert!(
            told.contains(&"a".repeat(64)) && told.contains(&"b".repeat(64)),
            "{told}"
        );
        assert!(!told.contains("target"), "{told}");
        assert_eq!(words(&a, Some(&a)), "");
        let told = words(&effect("prod", ""), Some(&effect("eu", "")));
        assert_eq!(told, "its target is prod, and not eu");
    }
}
