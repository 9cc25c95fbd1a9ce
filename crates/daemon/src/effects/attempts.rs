//! Who has tried to register an effect, and how each try ended, in the states of the specification.

use heddle_registrar::facts::Facts;
use heddle_registrar::storage::LoggedLine;
use heddle_wire::ipc::EffectAttempt;

/// Lines of the audit that are looked at, the newest ones.
pub(super) const LINES_MAX: usize = 50;

/// An attempt is noted before its transaction, and what became of it is in the rows: its own registration (S2),
/// somebody else's (S4), or none (S1). A refusal has a line of its own and ends where it began.
pub(super) fn attempts(facts: &Facts, lines: &[LoggedLine]) -> Vec<EffectAttempt> {
    let tried = lines
        .iter()
        .filter(|line| line.row.event == "attempt register");
    let one = |line: &LoggedLine| {
        let id = &line.row.attempt_id;
        let refused = lines
            .iter()
            .find(|other| other.row.event == "refused register" && other.row.attempt_id == *id);
        let state = match (&facts.consumed, refused) {
            (Some(consumed), _) if consumed.attempt_id == *id => "S2",
            (_, Some(_)) => "S0",
            (Some(_), None) => "S4",
            (None, None) => "S1",
        };
        EffectAttempt {
            attempt_id: id.clone(),
            by: line.row.by.clone(),
            at: line.row.at.to_rfc3339(),
            state: state.to_owned(),
            code: refused.map_or_else(String::new, |line| line.row.code.clone()),
        }
    };
    tried.map(one).collect()
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::WallMs;
    use heddle_registrar::authority::Nonce;
    use heddle_registrar::binding::Effect;
    use heddle_registrar::rows::{AuditRow, ConsumeRow};

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
        ];
        let states = |facts: &Facts| {
            let found = attempts(facts, &lines);
            let state =
                |one: &EffectAttempt| format!("{} {}{}", one.attempt_id, one.state, one.code);
            found.iter().map(state).collect::<Vec<_>>().join(", ")
        };
        let mut facts = Facts::default();
        assert_eq!(states(&facts), "lost S1, early S0NONCE_UNBOUND, won S1");
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
        assert_eq!(states(&facts), "lost S4, early S0NONCE_UNBOUND, won S2");
    }
}
