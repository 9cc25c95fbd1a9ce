//! A digest beside what is answered from: whoever reads a stored result compares it, so that bytes which a disk or a hand
//! has changed are never told as what somebody's command printed.
//!
//! It is bound to the mesh and to the replay key: a row under another effect is no row of this one. Who took a step is not
//! in it, because a mesh that moves changes the names of its callers. This is for disks, and not for people who change
//! the digest as well.

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::binding::ReplayKey;
use crate::carry::in_hex;
use crate::rows::DecisionRow;

const DOMAIN: &[u8] = b"heddle.effects.kept.v1\0";

/// A digest as it travels with a mesh that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDigest(#[serde(with = "in_hex")] pub [u8; 32]);

/// What a row is bound to, and a digest that it has from before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bound {
    pub(crate) of: Option<ReplayKey>,
    /// Of a row that comes from elsewhere and was changed there: it must stay one that was changed.
    pub(crate) digest: Option<[u8; 32]>,
}

impl Bound {
    pub(crate) fn to(of: Option<ReplayKey>) -> Self {
        Self { of, digest: None }
    }

    /// The digest that is written; none where there is nothing to bind it to.
    pub(crate) fn or_else(self, digest: impl FnOnce(&ReplayKey) -> [u8; 32]) -> Option<[u8; 32]> {
        self.digest.or_else(|| self.of.as_ref().map(digest))
    }
}

/// What a row has beside it to be compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Beside<'a> {
    Digest(&'a [u8]),
    /// Nothing, and nothing is asked for: it is of before there were digests, or was compared already.
    Unasked,
    /// Nothing, though it was written with one: whoever took that away may have changed the rest.
    Gone,
}

impl<'a> Beside<'a> {
    pub(crate) fn of(digest: Option<&'a [u8]>, is_of_before: bool) -> Self {
        match digest {
            Some(digest) => Self::Digest(digest),
            None if is_of_before => Self::Unasked,
            None => Self::Gone,
        }
    }

    /// Whether the row is not the one that was written. None is the digest of a row that is bound to nothing.
    pub(crate) fn differs(self, made: impl FnOnce() -> Option<[u8; 32]>) -> bool {
        match self {
            Self::Digest(digest) => made().is_none_or(|made| made.as_slice() != digest),
            Self::Unasked => false,
            Self::Gone => true,
        }
    }
}

/// The cells of a step that its digest is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepCells<'a> {
    pub(crate) round: i64,
    pub(crate) attempt_id: &'a str,
    pub(crate) nonce: Option<&'a [u8]>,
    pub(crate) body: &'a str,
    pub(crate) at: WallMs,
}

fn over(mesh: MeshId, of: &ReplayKey, parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(DOMAIN);
    digest.update(mesh.0.to_bytes());
    digest.update(of.0);
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

pub(crate) fn of_step(mesh: MeshId, of: &ReplayKey, cells: StepCells<'_>) -> [u8; 32] {
    let parts: [&[u8]; 6] = [
        b"step",
        &cells.round.to_be_bytes(),
        cells.attempt_id.as_bytes(),
        cells.nonce.unwrap_or_default(),
        cells.body.as_bytes(),
        &cells.at.0.to_be_bytes(),
    ];
    over(mesh, of, &parts)
}

pub(crate) fn of_registration(
    mesh: MeshId,
    of: &ReplayKey,
    (id, receipt, at): (&str, &str, WallMs),
) -> [u8; 32] {
    let parts: [&[u8]; 4] = [
        b"registration",
        id.as_bytes(),
        receipt.as_bytes(),
        &at.0.to_be_bytes(),
    ];
    over(mesh, of, &parts)
}

/// A word about a request. Its envelope's id is bound to the effect by the replay key of the envelope; who said it is in it,
/// because it is made anew wherever the row is written.
pub(crate) fn of_decision(mesh: MeshId, row: &DecisionRow) -> [u8; 32] {
    let (nonce, purpose, window) = match &row.grant {
        None => ([0; 32], "", [0; 16]),
        Some(grant) => {
            let mut window = [0; 16];
            window[..8].copy_from_slice(&grant.not_before.0.to_be_bytes());
            window[8..].copy_from_slice(&grant.expires_at.0.to_be_bytes());
            (grant.nonce.0, grant.purpose.as_str(), window)
        }
    };
    let parts: [&[u8]; 9] = [
        b"decision",
        row.envelope_id.as_bytes(),
        &row.seq.to_be_bytes(),
        row.ruling.as_str().as_bytes(),
        &nonce,
        purpose.as_bytes(),
        &window,
        row.by.as_bytes(),
        &row.at.0.to_be_bytes(),
    ];
    over(mesh, &ReplayKey([0; 32]), &parts)
}

/// A call that waits for its broker. All of it is told there, so all of it counts; of an effect that nobody here has
/// registered there is no replay key to bind it to.
pub(crate) fn of_waiting(mesh: MeshId, call: &WaitingCells<'_>) -> [u8; 32] {
    let parts: [&[u8]; 7] = [
        b"waiting",
        call.key.as_bytes(),
        call.caller.as_bytes(),
        call.call_id.as_bytes(),
        call.verb.as_bytes(),
        call.call.as_bytes(),
        &call.since.0.to_be_bytes(),
    ];
    over(mesh, &ReplayKey([0; 32]), &parts)
}

/// The cells of a call that waits, as they lie there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingCells<'a> {
    pub(crate) key: &'a str,
    pub(crate) caller: &'a str,
    pub(crate) call_id: &'a str,
    pub(crate) verb: &'a str,
    pub(crate) call: &'a str,
    pub(crate) since: WallMs,
}

/// What a look through a store has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Effects that were looked at.
    pub effects: u64,
    /// The keys of those whose rows were changed after they were written, each with what it is.
    pub changed: Vec<String>,
    /// Rows of before there were digests: nobody can say whether they are as they were written.
    pub without: u64,
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::{Ids as _, ManualIds};

    use super::*;
    use crate::authority::NonceHash;
    use crate::rows::{Grant, Purpose, Ruling};

    #[test]
    fn every_part_of_a_word_counts() {
        let ids = ManualIds::seeded(2);
        let [mesh, other] = [0; 2].map(|_| MeshId(ids.ulid()));
        let grant = Grant {
            nonce: NonceHash([3; 32]),
            purpose: Purpose::Register,
            not_before: WallMs(1),
            expires_at: WallMs(2),
        };
        let word = DecisionRow {
            envelope_id: "env_1".into(),
            seq: 1,
            ruling: Ruling::Approved,
            grant: Some(grant),
            by: "alice".into(),
            at: WallMs(7),
        };
        let good = of_decision(mesh, &word);
        assert_eq!(good, of_decision(mesh, &word.clone()));
        let granted = |grant: Grant| DecisionRow {
            grant: Some(grant),
            ..word.clone()
        };
        let changed = [
            DecisionRow {
                envelope_id: "env_2".into(),
                ..word.clone()
            },
            DecisionRow {
                seq: 2,
                ..word.clone()
            },
            DecisionRow {
                ruling: Ruling::Revoked,
                ..word.clone()
            },
            DecisionRow {
                grant: None,
                ..word.clone()
            },
            granted(Grant {
                nonce: NonceHash([4; 32]),
                ..grant
            }),
            granted(Grant {
                purpose: Purpose::Compensate,
                ..grant
            }),
            granted(Grant {
                not_before: WallMs(0),
                ..grant
            }),
            granted(Grant {
                expires_at: WallMs(9),
                ..grant
            }),
            DecisionRow {
                by: "mallory".into(),
                ..word.clone()
            },
            DecisionRow {
                at: WallMs(8),
                ..word.clone()
            },
        ];
        for row in &changed {
            assert_ne!(of_decision(mesh, row), good, "{row:?}");
        }
        assert_ne!(of_decision(other, &word), good);
    }

    #[test]
    fn every_part_of_a_call_that_waits_counts() {
        let ids = ManualIds::seeded(3);
        let [mesh, other] = [0; 2].map(|_| MeshId(ids.ulid()));
        let call = WaitingCells {
            key: "k",
            caller: "planner",
            call_id: "c",
            verb: "finish",
            call: "{}",
            since: WallMs(7),
        };
        let good = of_waiting(mesh, &call);
        let changed = [
            WaitingCells {
                key: "kp",
                caller: "lanner",
                ..call
            },
            WaitingCells {
                caller: "worker",
                ..call
            },
            WaitingCells {
                call_id: "d",
                ..call
            },
            WaitingCells {
                verb: "verify",
                ..call
            },
            WaitingCells {
                call: "{ }",
                ..call
            },
            WaitingCells {
                since: WallMs(8),
                ..call
            },
        ];
        for call in &changed {
            assert_ne!(of_waiting(mesh, call), good, "{call:?}");
        }
        assert_ne!(of_waiting(other, &call), good);
    }

    #[test]
    fn every_part_counts_and_none_can_pass_for_another() {
        let ids = ManualIds::seeded(1);
        let [mesh, other] = [0; 2].map(|_| MeshId(ids.ulid()));
        let (of, else_of) = (ReplayKey([1; 32]), ReplayKey([2; 32]));
        let cells = StepCells {
            round: 1,
            attempt_id: "a",
            nonce: None,
            body: "{}",
            at: WallMs(7),
        };
        let good = of_step(mesh, &of, cells);
        assert_eq!(good, of_step(mesh, &of, cells));
        let changed = [
            of_step(other, &of, cells),
            of_step(mesh, &else_of, cells),
            of_step(mesh, &of, StepCells { round: 2, ..cells }),
            of_step(
                mesh,
                &of,
                StepCells {
                    attempt_id: "a{",
                    body: "}",
                    ..cells
                },
            ),
            of_step(
                mesh,
                &of,
                StepCells {
                    nonce: Some(&[0]),
                    ..cells
                },
            ),
            of_step(
                mesh,
                &of,
                StepCells {
                    body: "{ }",
                    ..cells
                },
            ),
            of_step(
                mesh,
                &of,
                StepCells {
                    at: WallMs(8),
                    ..cells
                },
            ),
            of_registration(mesh, &of, ("a", "{}", WallMs(7))),
        ];
        assert!(changed.iter().all(|digest| *digest != good));
        let found = |digest, is_of_before| {
            Beside::of(digest, is_of_before).differs(|| Some(of_step(mesh, &of, cells)))
        };
        assert!(!found(Some(&good), false) && found(Some(&changed[0]), true));
        assert!(!found(None, true) && found(None, false));
        assert!(Beside::of(Some(&good), false).differs(|| None));
        assert_eq!(Bound::default().or_else(|_| good), None);
        assert_eq!(Bound::to(Some(of)).or_else(|_| good), Some(good));
    }
}
