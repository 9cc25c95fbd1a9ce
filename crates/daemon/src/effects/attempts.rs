//! Who has tried to register an effect, and how each try ended, in the states of the specification.

use heddle_registrar::Registrar;
use heddle_registrar::binding::LogicalKey;
use heddle_registrar::facts::Facts;
use heddle_registrar::registrar::Retried;
use heddle_registrar::rows::{AuditRow, RegistrationRow};
use heddle_registrar::storage::{LoggedLine, Storage};
use heddle_wire::ipc::{EffectAttempt, EffectRetries};

/// Lines of the audit that are looked at, the newest ones.
pub(super) const LINES_MAX: usize = 50;

/// The line that notes one.
pub(super) const TRIED: &str = "attempt register";
const REFUSED: &str = "refused register";
const REFUSED_START: &str = "refused start";

fn of_line(line: &LoggedLine, state: &str, code: &str) -> EffectAttempt {
    EffectAttempt {
        attempt_id: line.row.attempt_id.clone(),
        by: line.row.by.clone(),
        at: line.row.at.to_rfc3339(),
        state: state.to_owned(),
        code: code.to_owned(),
    }
}

/// An attempt is noted before its transaction, and what became of it is in the rows: its own registration (S2),
/// somebody else's (S4), or none (S1), because it was refused (with a code) or because it never came to its commit. One
/// that was refused before that, or that was not to begin what is registered, has the line of its refusal only.
pub(super) fn attempts(facts: &Facts, lines: &[LoggedLine]) -> Vec<EffectAttempt> {
    let noted = |event: &str, id: &str| {
        let mut lines = lines.iter();
        lines.find(|line| line.row.event == event && line.row.attempt_id == id)
    };
    let won = facts.consumed.as_ref().map(|row| row.attempt_id.as_str());
    let one = |line: &LoggedLine| {
        let id = line.row.attempt_id.as_str();
        let is_winner = won == Some(id);
        let is_noted = noted(TRIED, id).is_some();
        match line.row.event.as_str() {
            TRIED if is_winner => Some(of_line(line, "S2", "")),
            TRIED => match (noted(REFUSED, id), won) {
                // Refused before its commit: it left nothing behind, and its code says why.
                (Some(refused), _) => Some(of_line(line, "S1", &refused.row.code)),
                (None, None) => Some(of_line(line, "S1", "")),
                (None, Some(_)) => Some(of_line(line, "S4", "")),
            },
            REFUSED if is_winner || !is_noted => Some(of_line(line, "S1", &line.row.code)),
            REFUSED_START if !is_winner && !is_noted => Some(of_line(line, "S1", &line.row.code)),
            _ => None,
        }
    };
    let mut found: Vec<EffectAttempt> = lines.iter().filter_map(one).collect();
    // However many were refused since: who registered it is told.
    if let Some(consumed) = &facts.consumed
        && !found.iter().any(|one| one.state == "S2")
    {
        let registration = facts.registration.as_ref();
        found.push(EffectAttempt {
            attempt_id: consumed.attempt_id.clone(),
            by: registration.map_or_else(String::new, RegistrationRow::registered_by),
            at: consumed.consumed_at.to_rfc3339(),
            state: "S2".to_owned(),
            code: String::new(),
        });
    }
    found
}

/// How a retry is called among the lines of the audit, which it is none of.
const RETRIED: &str = "retry register";

fn counted(retried: &Retried) -> EffectRetries {
    EffectRetries {
        count: retried.count,
        since: retried.since.to_rfc3339(),
        at: retried.at.to_rfc3339(),
        by: retried.by.clone(),
        attempt_id: retried.attempt_id.clone(),
        code: retried.code.as_str().to_owned(),
    }
}

/// Those who came when it was registered, and were answered with what stands.
pub(super) fn retries<S: Storage>(
    registrar: &Registrar<S>,
    key: &LogicalKey,
) -> Option<EffectRetries> {
    let found = registrar.retried(Some(key));
    found.first().map(|(_, retried)| counted(retried))
}

/// The same as lines beside those of the audit: one for each key.
pub(super) fn retry_lines<S: Storage>(
    registrar: &Registrar<S>,
    key: Option<&LogicalKey>,
) -> Vec<LoggedLine> {
    let line = |(key, retried): (LogicalKey, Retried)| LoggedLine {
        seq: 0,
        row: AuditRow {
            key: key.to_string(),
            detail: retry_words(&counted(&retried)),
            attempt_id: retried.attempt_id,
            event: RETRIED.to_owned(),
            code: retried.code.as_str().to_owned(),
            by: retried.by,
            at: retried.at,
        },
    };
    registrar.retried(key).into_iter().map(line).collect()
}

fn retry_words(retries: &EffectRetries) -> String {
    let often = match retries.count {
        1 => "once".to_owned(),
        count => format!("{count} times since {}, this is the last", retries.since),
    };
    format!("{often}; answered with what stands, nothing was run")
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::WallMs;
    use heddle_registrar::authority::Nonce;
    use heddle_registrar::binding::Effect;
    use heddle_registrar::rows::ConsumeRow;

    use super::*;

    fn line(event: &str, attempt: &str, code: &str) -> LoggedLine {
        LoggedLine {
            seq: 1,
            row: AuditRow {
                key: "k".into(),
                attempt_id: attempt.into(),
                event: event.into(),
                code: code.into(),
                detail: String::new(),
                by: "planner".into(),
                at: WallMs(0),
            },
        }
    }

    #[test]
    fn every_attempt_has_its_state() {
        let lines = [
            line("attempt register", "lost", ""),
            line("refused register", "early", "NONCE_UNBOUND"),
            line("attempt register", "early", ""),
            line("refused decide", "", "APPROVAL_REFUSED"),
            line("attempt register", "won", ""),
            line("refused start", "won", "APPROVAL_REFUSED"),
            line("refused start", "theirs", "REPLAY_BINDING_MISMATCH"),
            line("refused register", "asked", "APPROVAL_NEEDED"),
        ];
        let states = |facts: &Facts| {
            let found = attempts(facts, &lines);
            let state =
                |one: &EffectAttempt| format!("{} {}{}", one.attempt_id, one.state, one.code);
            found.iter().map(state).collect::<Vec<_>>().join(", ")
        };
        let mut facts = Facts::default();
        let refused = "theirs S1REPLAY_BINDING_MISMATCH, asked S1APPROVAL_NEEDED";
        assert_eq!(
            states(&facts),
            format!("lost S1, early S1NONCE_UNBOUND, won S1, {refused}")
        );
        let effect = Effect::new("k", "o", "t", "", "").unwrap();
        facts.consumed = Some(ConsumeRow {
            replay_key: effect.replay_key("env"),
            effect,
            approval: "env".into(),
            nonce: Nonce::presented("n").hash(),
            attempt_id: "won".into(),
            consumed_at: WallMs(0),
            horizon_until: WallMs(0),
        });
        assert_eq!(
            states(&facts),
            format!("lost S4, early S1NONCE_UNBOUND, won S2, {refused}")
        );
        // Behind so many refusals that its line is not looked at any more.
        let told = attempts(&facts, &lines[5..]);
        assert_eq!(told.last().unwrap().attempt_id, "won");
        assert_eq!(told.last().unwrap().state, "S2");
    }
}
