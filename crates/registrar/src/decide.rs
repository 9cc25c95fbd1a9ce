//! Whether a registration happens: one table, read from the top, in the order of C27.
//!
//! Consumed? Then the prior result or a refusal, however old the request and whatever its nonce. Not
//! consumed? Then admissible, then the nonce, then the insert. A refusal burns nothing (C42).

use crate::code::Code;

/// What the store says of the logical key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Free,
    /// Consumed, and bound to what is presented.
    Same,
    /// Consumed, and bound to something else.
    Other,
}

/// The attempt that the caller says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Unsaid,
    /// The one that consumed the key.
    Same,
    Other,
}

/// What the presented nonce is worth here and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nonce {
    Good,
    /// It has authorised something already.
    Consumed,
    /// Missing, unknown, of another envelope or purpose, revoked, or outside its window.
    Unbound,
}

/// Everything that the decision looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The store passed its check.
    pub is_fit: bool,
    pub key: Key,
    /// The key was free when this attempt first looked: if it is not free now, somebody was faster.
    pub looked_free: bool,
    pub attempt: Attempt,
    /// The approval was asked for within its time.
    pub is_fresh: bool,
    pub nonce: Nonce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Consume the key and write the registration, in one transaction.
    Insert,
    /// The stored result is the answer; nothing is written.
    Prior(Code),
    /// No effect, no prior result; nothing is written.
    Refuse(Code),
}

/// One row: the first whose conditions hold decides. `None` means that the field plays no part.
#[derive(Debug)]
pub struct RegisterRow {
    pub name: &'static str,
    /// How one gets here.
    pub how: &'static str,
    pub is_fit: Option<bool>,
    pub key: Option<Key>,
    pub looked_free: Option<bool>,
    pub attempt: Option<Attempt>,
    pub is_fresh: Option<bool>,
    pub nonce: Option<Nonce>,
    pub verdict: Verdict,
}

const ANY: RegisterRow = RegisterRow {
    name: "",
    how: "",
    is_fit: Some(true),
    key: None,
    looked_free: None,
    attempt: None,
    is_fresh: None,
    nonce: None,
    verdict: Verdict::Insert,
};

/// IMPORTANT: the order of the rows is the order of the checks.
pub const REGISTER: &[RegisterRow] = &[
    RegisterRow {
        name: "unfit",
        how: "the store failed its surface check, or was never checked",
        is_fit: Some(false),
        verdict: Verdict::Refuse(Code::ReplaySurfaceNotFit),
        ..ANY
    },
    RegisterRow {
        name: "other binding",
        how: "the key was used for another operation, target, artifact, approval or run",
        key: Some(Key::Other),
        verdict: Verdict::Refuse(Code::ReplayBindingMismatch),
        ..ANY
    },
    RegisterRow {
        name: "lost the race",
        how: "the key was free when this attempt looked, and another one consumed it since (S4)",
        key: Some(Key::Same),
        looked_free: Some(true),
        verdict: Verdict::Prior(Code::AttemptCollision),
        ..ANY
    },
    RegisterRow {
        name: "another attempt",
        how: "a retry that calls itself a new attempt",
        key: Some(Key::Same),
        attempt: Some(Attempt::Other),
        verdict: Verdict::Prior(Code::ReplayAttemptNoBypass),
        ..ANY
    },
    RegisterRow {
        name: "exact retry",
        how: "the answer of the first try was lost, or somebody asks again",
        key: Some(Key::Same),
        verdict: Verdict::Prior(Code::ReplayDuplicate),
        ..ANY
    },
    RegisterRow {
        name: "stale",
        how: "the approval was asked for longer ago than the policy allows",
        is_fresh: Some(false),
        verdict: Verdict::Refuse(Code::ReplayStaleRequest),
        ..ANY
    },
    RegisterRow {
        name: "used nonce",
        how: "the nonce of another key's registration",
        nonce: Some(Nonce::Consumed),
        verdict: Verdict::Refuse(Code::ReplayNonceConsumed),
        ..ANY
    },
    RegisterRow {
        name: "unbound nonce",
        how: "no nonce, a made-up one, one of another envelope, a revoked one, one outside its window",
        nonce: Some(Nonce::Unbound),
        verdict: Verdict::Refuse(Code::NonceUnbound),
        ..ANY
    },
    RegisterRow {
        name: "register",
        how: "the first attempt with a good nonce",
        key: Some(Key::Free),
        is_fresh: Some(true),
        nonce: Some(Nonce::Good),
        verdict: Verdict::Insert,
        ..ANY
    },
];

impl RegisterRow {
    pub fn holds(&self, case: Case) -> bool {
        fn open<T: PartialEq>(wanted: Option<T>, found: T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        open(self.is_fit, case.is_fit)
            && open(self.key, case.key)
            && open(self.looked_free, case.looked_free)
            && open(self.attempt, case.attempt)
            && open(self.is_fresh, case.is_fresh)
            && open(self.nonce, case.nonce)
    }
}

/// The verdict. A case that no row covers cannot be (the loop below proves it), and would be refused.
pub fn register(case: Case) -> Verdict {
    REGISTER
        .iter()
        .find(|row| row.holds(case))
        .map_or(Verdict::Refuse(Code::ReplaySurfaceNotFit), |row| {
            row.verdict
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_case() -> Vec<Case> {
        let mut cases = Vec::new();
        for is_fit in [true, false] {
            for key in [Key::Free, Key::Same, Key::Other] {
                for looked_free in [true, false] {
                    for attempt in [Attempt::Unsaid, Attempt::Same, Attempt::Other] {
                        for is_fresh in [true, false] {
                            for nonce in [Nonce::Good, Nonce::Consumed, Nonce::Unbound] {
                                cases.push(Case {
                                    is_fit,
                                    key,
                                    looked_free,
                                    attempt,
                                    is_fresh,
                                    nonce,
                                });
                            }
                        }
                    }
                }
            }
        }
        cases
    }

    #[test]
    fn c27_the_table_is_complete_and_every_row_is_reached() {
        let mut reached = vec![0; REGISTER.len()];
        for case in every_case() {
            let row = REGISTER.iter().position(|row| row.holds(case));
            reached[row.unwrap_or_else(|| panic!("no row for {case:?}"))] += 1;
        }
        for (row, count) in REGISTER.iter().zip(reached) {
            assert!(count > 0, "{} is never reached", row.name);
            assert!(!row.how.is_empty());
        }
    }

    #[test]
    fn rg_01_only_a_free_key_with_a_good_nonce_in_time_on_a_fit_store_is_registered() {
        for case in every_case() {
            let may =
                case.is_fit && case.key == Key::Free && case.is_fresh && case.nonce == Nonce::Good;
            assert_eq!(register(case) == Verdict::Insert, may, "{case:?}");
        }
    }

    #[test]
    fn rg_09_c42_neither_nonce_nor_age_changes_the_answer_of_a_consumed_key() {
        for case in every_case()
            .into_iter()
            .filter(|case| case.key != Key::Free)
        {
            let plain = Case {
                is_fresh: true,
                nonce: Nonce::Good,
                ..case
            };
            assert_eq!(register(case), register(plain), "{case:?}");
        }
    }

    #[test]
    fn rg_04_another_binding_never_sees_the_prior_result() {
        for case in every_case()
            .into_iter()
            .filter(|case| case.key == Key::Other)
        {
            assert!(matches!(register(case), Verdict::Refuse(_)), "{case:?}");
        }
    }

    #[test]
    fn rg_20_an_unfit_store_registers_and_answers_nothing() {
        for case in every_case().into_iter().filter(|case| !case.is_fit) {
            assert_eq!(register(case), Verdict::Refuse(Code::ReplaySurfaceNotFit));
        }
    }
}
