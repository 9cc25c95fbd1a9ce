//! Who is let in by a hello: one table, with a loop that proves it complete.

use super::key::PublicKey;
use super::standing::Bar;

/// What the transport has proven before the hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proven {
    /// It holds the token of the broker's data folder.
    Bearer,
    /// Nothing.
    Nothing,
}

/// What the hello itself brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Missing,
    /// Signed, but not by the key that the member has.
    Wrong,
    /// Signed by the key that the member has.
    Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The mesh knows its members by their keys, and the hello was not signed.
    #[error("signature_required")]
    SignatureRequired,
    /// Signed by another key, for another broker, mesh, member or nonce, or for a member that is not
    /// one. Which of these is not told: a stranger learns nothing here (T-23).
    #[error("signature_invalid")]
    SignatureInvalid,
    /// The right key, of a member that was shut out.
    #[error("member_revoked")]
    Revoked,
    /// The right key, of a member that is blocked for now.
    #[error("member_blocked")]
    Blocked,
}

impl From<Bar> for Denied {
    fn from(bar: Bar) -> Self {
        match bar {
            Bar::Revoked => Self::Revoked,
            Bar::Blocked => Self::Blocked,
        }
    }
}

/// The key decides wherever there is one. The token of the data folder is enough only for a mesh whose
/// members have no keys at all.
pub fn admit(
    proven: Proven,
    mesh_has_keys: bool,
    proof: Proof,
    bar: Option<Bar>,
) -> Result<(), Denied> {
    match (proven, mesh_has_keys, proof, bar) {
        (Proven::Bearer, false, _, None) | (_, _, Proof::Right, None) => Ok(()),
        (_, _, Proof::Right, Some(bar)) => Err(bar.into()),
        (_, _, Proof::Wrong, _) => Err(Denied::SignatureInvalid),
        (_, _, Proof::Missing, _) => Err(Denied::SignatureRequired),
    }
}

impl Proof {
    /// How a signature stands to the key that a member has, if it has one.
    pub fn of<S: Copy>(
        signature: Option<S>,
        key: Option<PublicKey>,
        is_signed_by: impl FnOnce(PublicKey, S) -> bool,
    ) -> Self {
        match (signature, key) {
            (None, _) => Self::Missing,
            (Some(signature), Some(key)) if is_signed_by(key, signature) => Self::Right,
            (Some(_), _) => Self::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_20_without_the_right_signature_nobody_enters_a_mesh_that_has_keys() {
        let mut seen = 0;
        for proven in [Proven::Bearer, Proven::Nothing] {
            for mesh_has_keys in [false, true] {
                for proof in [Proof::Missing, Proof::Wrong, Proof::Right] {
                    for bar in [None, Some(Bar::Revoked), Some(Bar::Blocked)] {
                        let answer = admit(proven, mesh_has_keys, proof, bar);
                        let by_token = proven == Proven::Bearer && !mesh_has_keys;
                        let expected = bar.is_none() && (proof == Proof::Right || by_token);
                        assert_eq!(
                            answer.is_ok(),
                            expected,
                            "{proven:?} {mesh_has_keys} {proof:?} {bar:?}"
                        );
                        // Why it is shut out is told to the holder of the key and to nobody else.
                        let is_told = matches!(answer, Err(Denied::Revoked | Denied::Blocked));
                        assert_eq!(is_told, proof == Proof::Right && bar.is_some());
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 36);
    }

    #[test]
    fn a_stranger_is_not_told_whether_a_member_exists() {
        let key = super::super::MemberKey::from_seed([1; 32]).public();
        let wrong = Proof::of(Some(()), Some(key), |_, ()| false);
        let nobody = Proof::of(Some(()), None, |_, ()| true);
        assert_eq!(wrong, nobody);
    }
}
