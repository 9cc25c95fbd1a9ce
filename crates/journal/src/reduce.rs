//! The one decision of live apply and of replay: what a record does to its entity.

use crate::action::{ActionClass, Mode};
use crate::record::Record;
use crate::registry::TypeClass;

/// The newest of an entity that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub rev: u64,
    pub seq: u64,
    /// Of the record's line: tells two records of one seq and revision apart.
    pub crc: u32,
    pub is_deleted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The payload becomes the entity.
    Put,
    /// The projection goes.
    Delete,
}

/// What is odd about it. Nothing odd is silent: each is counted, and doctor shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Oddity {
    /// The very record again: skipped.
    SameAgain,
    /// Two records with one revision: the later line wins wholesale.
    RevTie,
    /// A revision is missing before this one: applied, history is incomplete.
    RevGap,
    /// A revision below the newest: skipped, never regress.
    RevRegress,
    /// A singleton never dies.
    SingletonTombstone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub effect: Option<Effect>,
    pub oddity: Option<Oddity>,
}

const NOTHING: Verdict = Verdict {
    effect: None,
    oddity: None,
};

/// Takes a record that passed its class rules.
pub fn reduce(
    current: Option<&Head>,
    record: &Record<'_>,
    crc: u32,
    class: TypeClass,
    mode: Mode,
) -> Verdict {
    let effect = match record.action.class(mode) {
        // What was erased is gone, also a singleton: never the revision before it instead.
        ActionClass::EntityState | ActionClass::Tombstone | ActionClass::RegistryLifecycle
            if record.redacted.is_some() =>
        {
            Effect::Delete
        }
        ActionClass::Tombstone if class == TypeClass::Singleton => {
            return Verdict {
                effect: None,
                oddity: Some(Oddity::SingletonTombstone),
            };
        }
        ActionClass::Tombstone => Effect::Delete,
        ActionClass::EntityState => Effect::Put,
        // Until the registry is primary its records may be mere notifications.
        ActionClass::RegistryLifecycle if record.has_payload() => Effect::Put,
        ActionClass::RegistryLifecycle | ActionClass::JournalMeta | ActionClass::Observability => {
            return NOTHING;
        }
    };
    let Some(rev) = record.entity_rev else {
        return NOTHING;
    };
    let before = current.map_or(0, |head| head.rev);
    let is_same = current.is_some_and(|h| (h.rev, h.seq, h.crc) == (rev, record.seq, crc));
    let (effect, oddity) = if is_same {
        (None, Some(Oddity::SameAgain))
    } else if rev.checked_sub(1) == Some(before) {
        (Some(effect), None)
    } else if rev > before {
        (Some(effect), Some(Oddity::RevGap))
    } else if rev == before {
        (Some(effect), Some(Oddity::RevTie))
    } else {
        (None, Some(Oddity::RevRegress))
    };
    Verdict { effect, oddity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;
    use crate::record::Batch;
    use serde_json::value::RawValue;

    fn record(action: Action, rev: Option<u64>, payload: Option<&RawValue>) -> Record<'_> {
        Record {
            v: 2,
            seq: 9,
            ts: "t".into(),
            writer: "w".into(),
            agent: "a".into(),
            agent_id: None,
            user: None,
            action,
            item_type: "plan".into(),
            item_id: Some("x".into()),
            entity_rev: rev,
            summary: None,
            payload,
            payload_ref: None,
            redacted: None,
            request: None,
            batch: Batch {
                id: "b".into(),
                i: 0,
                n: 1,
            },
        }
    }

    /// Current revision (none, below, equal, same record, above) against put and delete: all of them.
    #[test]
    fn jn_14_jn_15_every_relation_of_revisions_has_its_row() {
        let payload = RawValue::from_string("{}".into()).unwrap();
        let head = |rev, seq, crc| Head {
            rev,
            seq,
            crc,
            is_deleted: false,
        };
        let rows = [
            (None, 1, true, None),
            (None, 3, true, Some(Oddity::RevGap)),
            (Some(head(2, 1, 1)), 3, true, None),
            (Some(head(1, 1, 1)), 3, true, Some(Oddity::RevGap)),
            (Some(head(3, 9, 1)), 3, true, Some(Oddity::RevTie)),
            (Some(head(3, 8, 7)), 3, true, Some(Oddity::RevTie)),
            (Some(head(3, 9, 7)), 3, false, Some(Oddity::SameAgain)),
            (Some(head(4, 8, 7)), 3, false, Some(Oddity::RevRegress)),
        ];
        for (current, rev, applies, oddity) in rows {
            for (action, effect) in [
                (Action::Update, Effect::Put),
                (Action::Delete, Effect::Delete),
            ] {
                let put = (action == Action::Update).then_some(&*payload);
                let record = record(action, Some(rev), put);
                let told = reduce(
                    current.as_ref(),
                    &record,
                    7,
                    TypeClass::Memory,
                    Mode::Primary,
                );
                assert_eq!(told.effect, applies.then_some(effect), "{current:?} {rev}");
                assert_eq!(told.oddity, oddity, "{current:?} {rev}");
            }
        }
    }

    #[test]
    fn jn_28_singletons_never_die_and_ticks_change_nothing() {
        let told = reduce(
            None,
            &record(Action::Delete, Some(1), None),
            7,
            TypeClass::Singleton,
            Mode::Primary,
        );
        assert_eq!(told.effect, None);
        assert_eq!(told.oddity, Some(Oddity::SingletonTombstone));
        for tick in [
            Action::RunProgress,
            Action::SessionStart,
            Action::RunRunning,
            Action::SeqRepair,
        ] {
            let told = reduce(
                None,
                &record(tick, None, None),
                7,
                TypeClass::Execution,
                Mode::Primary,
            );
            assert_eq!(told, NOTHING, "{tick:?}");
        }
    }
}
