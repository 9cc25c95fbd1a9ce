//! Whether a store is fit to keep the promise: the criteria (a)–(h) of RS3B-05 §6, each proven or failed.
//!
//! Fail closed: a store that cannot show something does not have it.

use serde::Serialize;

/// What the columns of a consume row must bind, besides the two keys.
pub const BINDING_COLUMNS: &[&str] = &[
    "canonical_operation",
    "canonical_target",
    "deployed_artifact_hash",
    "owner_or_approval_binding",
    "run_id",
];
/// The mark of a store that was made for registrations.
pub const DOMAIN: &str = "heddle.registrar.v1";
const ATTEMPT_COLUMN: &str = "attempt_id";

/// What a store shows of itself; the probes run in a transaction that is rolled back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a store has shown, or not"
)]
pub struct Surface {
    /// Column sets that are unique in the consume table, without the mesh.
    pub unique: Vec<Vec<String>>,
    /// Columns of the consume table that refuse null.
    pub columns: Vec<String>,
    pub domain: Option<String>,
    /// A second row for a key that is consumed, with another attempt, run and replay key, was refused.
    pub second_consume_refused: bool,
    /// A registration without its consume row was refused.
    pub lone_registration_refused: bool,
    /// Changing, and deleting, a row was refused, in every table.
    pub update_refused: bool,
    pub delete_refused: bool,
    /// The writer has no right to change or delete (true where the database knows no rights).
    pub writer_is_bound: bool,
    /// Commits are synced, the server is the primary, isolation is as assumed.
    pub is_durable: bool,
    /// The audit refers to no row that could roll back with it.
    pub audit_stands_apart: bool,
    /// The registration keeps the first answer.
    pub keeps_receipt: bool,
    /// The consume row says until when it must block.
    pub keeps_horizon: bool,
    /// Tables, triggers and indexes that a store of ours has, and this one has not, or not as it should.
    pub missing: Vec<String>,
    /// What a store of ours has not, and this one has: rights beyond reading and appending, triggers and rules of
    /// somebody else's.
    pub excess: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Criterion {
    pub letter: char,
    pub asks: &'static str,
    pub is_met: bool,
    /// What is not there, or should not be, by name.
    pub missing: Vec<String>,
}

/// Which criterion a table, a trigger or an index serves.
fn letter_of(name: &str) -> char {
    if name.starts_with("effect_audit (") {
        'f'
    } else if name.starts_with("effect_registration (") {
        'g'
    } else if name.ends_with(')') {
        'b'
    } else if name.ends_with("_once") || name.ends_with("_registered") {
        'd'
    } else if name.ends_with("_keep") || name.ends_with("_hold") {
        'e'
    } else {
        'a'
    }
}

/// Every criterion with its verdict, in order.
pub fn criteria(surface: &Surface) -> Vec<Criterion> {
    let is_unique = |column: &str| surface.unique.iter().any(|set| *set == [column]);
    let has = |column: &str| surface.columns.iter().any(|found| found == column);
    let attempt_keys = surface
        .unique
        .iter()
        .any(|set| set.iter().any(|column| column == ATTEMPT_COLUMN));
    let excess = &surface.excess;
    let criterion = |letter, asks, is_met: bool| {
        let missing = surface.missing.iter();
        let missing: Vec<String> = missing
            .filter(|name| letter_of(name) == letter)
            .cloned()
            .chain(excess.iter().filter(|_| letter == 'e').cloned())
            .collect();
        Criterion {
            letter,
            asks,
            is_met: is_met && missing.is_empty(),
            missing,
        }
    };
    vec![
        criterion(
            'a',
            "the replay key and the logical key are unique, the attempt is in no key",
            is_unique("replay_key")
                && is_unique("logical_request_key")
                && has(ATTEMPT_COLUMN)
                && !attempt_keys,
        ),
        criterion(
            'b',
            "operation, target, artifact, approval and run are bound in columns",
            BINDING_COLUMNS.iter().all(|column| has(column)),
        ),
        criterion(
            'c',
            "the store was made for registrations",
            surface.domain.as_deref() == Some(DOMAIN),
        ),
        criterion(
            'd',
            "consumption is atomic with the registration, and a second one is refused",
            surface.second_consume_refused
                && surface.lone_registration_refused
                && surface.is_durable,
        ),
        criterion(
            'e',
            "rows can be appended only",
            surface.update_refused && surface.delete_refused && surface.writer_is_bound,
        ),
        criterion(
            'f',
            "failures are audited outside of what rolls back",
            surface.audit_stands_apart,
        ),
        criterion(
            'g',
            "the first answer is kept for exact retries",
            surface.keeps_receipt,
        ),
        criterion(
            'h',
            "consumed keys block for the horizon",
            surface.keeps_horizon && surface.delete_refused,
        ),
    ]
}

pub fn is_fit(surface: &Surface) -> bool {
    criteria(surface).iter().all(|criterion| criterion.is_met)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> Surface {
        let columns = BINDING_COLUMNS.iter().chain(&["attempt_id"]);
        Surface {
            unique: ["replay_key", "logical_request_key"]
                .map(|column| vec![column.to_owned()])
                .to_vec(),
            columns: columns.map(|column| (*column).to_owned()).collect(),
            domain: Some(DOMAIN.to_owned()),
            second_consume_refused: true,
            lone_registration_refused: true,
            update_refused: true,
            delete_refused: true,
            writer_is_bound: true,
            is_durable: true,
            audit_stands_apart: true,
            keeps_receipt: true,
            keeps_horizon: true,
            missing: Vec::new(),
            excess: Vec::new(),
        }
    }

    type Spoil = fn(&mut Surface);

    #[test]
    fn rg_17_taking_any_one_thing_away_makes_it_unfit() {
        assert!(is_fit(&fit()));
        assert!(!is_fit(&Surface::default()));
        let spoil: &[(char, Spoil)] = &[
            ('a', |s| s.unique.truncate(1)),
            ('a', |s| s.unique.remove(0).clear()),
            ('a', |s| {
                s.unique.push(vec!["k".into(), "attempt_id".into()]);
            }),
            ('b', |s| s.columns.retain(|c| c != "run_id")),
            ('b', |s| {
                s.columns.retain(|c| c != "owner_or_approval_binding");
            }),
            ('c', |s| s.domain = Some("iu_route".into())),
            ('d', |s| s.second_consume_refused = false),
            ('d', |s| s.lone_registration_refused = false),
            ('d', |s| s.is_durable = false),
            ('e', |s| s.update_refused = false),
            ('e', |s| s.writer_is_bound = false),
            ('f', |s| s.audit_stands_apart = false),
            ('g', |s| s.keeps_receipt = false),
            ('h', |s| s.keeps_horizon = false),
            ('h', |s| s.delete_refused = false),
            ('d', |s| s.missing.push("effect_consume_once".into())),
            ('e', |s| s.missing.push("effect_audit_hold".into())),
            ('a', |s| s.missing.push("effect_audit_key".into())),
            ('b', |s| s.missing.push("effect_step (its columns)".into())),
            ('f', |s| s.missing.push("effect_audit (its columns)".into())),
            ('g', |s| {
                s.missing.push("effect_registration (its columns)".into());
            }),
            ('e', |s| {
                s.excess.push("effect_call: TRIGGER for PUBLIC".into());
            }),
        ];
        for (letter, change) in spoil {
            let mut surface = fit();
            change(&mut surface);
            let failed: Vec<char> = criteria(&surface)
                .iter()
                .filter(|c| !c.is_met)
                .map(|c| c.letter)
                .collect();
            assert!(failed.contains(letter), "{letter}: {failed:?}");
            assert!(!is_fit(&surface));
        }
    }

    #[test]
    fn rp_10_the_routing_table_of_the_specification_is_rejected() {
        let routing = Surface {
            unique: vec![vec!["idempotency_key".into(), "attempt_no".into()]],
            columns: ["idempotency_key", "attempt_no", "route_kind", "status"]
                .map(str::to_owned)
                .to_vec(),
            ..Surface::default()
        };
        assert!(criteria(&routing).iter().all(|criterion| !criterion.is_met));
    }
}
