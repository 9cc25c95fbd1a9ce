//! The chain of everything that a store has written: each link is a digest over the one before it and the rows of its
//! transaction. Whoever remembers one link knows every store that has come so far, and can tell it from every other
//! one: an earlier copy does not have the link, and a copy that went on by itself has another one in its place.

use std::cmp::Ordering;
use std::fmt;

use heddle_core::clock::Ids;
use heddle_core::fingerprint::hex;
use heddle_core::ids::MeshId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::carry::{in_hex, unhex};
use crate::rows::Row;

const DOMAIN: &[u8] = b"heddle.effects.chain.v1\0";
const SEAL_DOMAIN: &[u8] = b"heddle.effects.seal.v1\0";
/// Written before a proof of this form.
const PROOF: &str = "m1";
const TIMED_PROOF: &str = "m2";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// 1, 2, 3, …
    pub seq: u64,
    #[serde(with = "in_hex")]
    pub digest: [u8; 32],
}

/// A secret of the store, for its proofs, and since when it counts. By a person's word (`begins_anew`) the secret stays and
/// its time is a new one: what was proven before is given up; but a copy from before that word still knows the secret, and so
/// that it is an earlier one. Seals of before there were times are 32 bytes of chance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seal(pub [u8; 32]);

const SECRET_BYTES: usize = 22;
const WHOLE: [u8; 4] = *b"seal";
/// In its place: somebody was proven more than the store has. Kept in the store itself, so that all who decide by it know,
/// also after a restart; only a person's word ends it.
const BROKEN: [u8; 4] = *b"torn";

impl Seal {
    pub fn mint(ids: &dyn Ids) -> Self {
        let mut secret = [0; SECRET_BYTES];
        ids.fill(&mut secret);
        Self::of(&secret, WHOLE, ids.ulid().timestamp_ms())
    }

    fn of(secret: &[u8], word: [u8; 4], since: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..SECRET_BYTES].copy_from_slice(&secret[..SECRET_BYTES]);
        bytes[SECRET_BYTES..][..4].copy_from_slice(&word);
        bytes[SECRET_BYTES + 4..].copy_from_slice(&since.to_be_bytes()[2..]);
        Self(bytes)
    }

    fn word(&self) -> &[u8] {
        &self.0[SECRET_BYTES..][..4]
    }

    fn is_timed(&self) -> bool {
        [WHOLE, BROKEN].iter().any(|word| word == self.word())
    }

    pub fn is_broken(&self) -> bool {
        self.word() == BROKEN.as_slice()
    }

    /// When it began to count, in milliseconds; 0 of one of before there were times.
    fn since(&self) -> u64 {
        if !self.is_timed() {
            return 0;
        }
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.0[SECRET_BYTES + 4..]);
        u64::from_be_bytes(bytes)
    }

    fn secret(&self) -> [u8; SECRET_BYTES] {
        let mut secret = [0; SECRET_BYTES];
        if self.is_timed() {
            secret.copy_from_slice(&self.0[..SECRET_BYTES]);
        } else {
            let digest = Sha256::new_with_prefix(SEAL_DOMAIN).chain_update(self.0);
            secret.copy_from_slice(&digest.finalize()[..SECRET_BYTES]);
        }
        secret
    }

    #[must_use]
    pub fn broken(&self) -> Self {
        Self::of(&self.secret(), BROKEN, self.since())
    }

    /// By a person's word: from now on.
    #[must_use]
    pub fn begins_anew(&self, ids: &dyn Ids) -> Self {
        let now = ids.ulid().timestamp_ms();
        Self::of(&self.secret(), WHOLE, now.max(self.since() + 1))
    }
}

/// What somebody shows who was told of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proven {
    /// This link, by the store as it counts now.
    Link(Link),
    /// Something of after a person's word that this store has not heard: it is an earlier copy.
    Later,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Link {
    /// The link behind `last`, for these rows; `more` is what a link stands for that has none.
    pub fn after(last: Option<&Self>, mesh: Option<MeshId>, rows: &[Row], more: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update(DOMAIN);
        digest.update(last.map_or([0; 32], |last| last.digest));
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        add(&mesh.map_or([0; 16], |mesh| mesh.0.to_bytes()));
        add(more);
        for row in rows {
            // Rows are made of texts and numbers: there is nothing in them that could not be written.
            add(&serde_json::to_vec(row).unwrap_or_default());
        }
        Self {
            seq: last.map_or(0, |last| last.seq) + 1,
            digest: digest.finalize().into(),
        }
    }

    /// For somebody elsewhere to keep: nobody can make one up who does not know the store's seal.
    pub fn proof(&self, seal: &Seal) -> String {
        let (digest, sealed) = (hex(&self.digest), hex(&self.sealed(seal)));
        if seal.is_timed() {
            format!(
                "{TIMED_PROOF}.{}.{}.{digest}.{sealed}",
                seal.since(),
                self.seq
            )
        } else {
            format!("{PROOF}.{}.{digest}.{sealed}", self.seq)
        }
    }

    /// What was proven to somebody by a store with this seal; none where it is somebody's invention, another store's, or
    /// of before a person's word.
    pub fn proven(text: &str, seal: &Seal) -> Option<Proven> {
        let words: Vec<&str> = text.split('.').collect();
        let (since, [seq, digest, sealed]) = match words.as_slice() {
            [PROOF, rest @ ..] => (0, rest.try_into().ok()?),
            [TIMED_PROOF, since, rest @ ..] => (since.parse().ok()?, rest.try_into().ok()?),
            _ => return None,
        };
        let link = Self {
            seq: seq.parse().ok()?,
            digest: unhex(digest)?,
        };
        // As the store that proved it was sealed then.
        let then = if words[0] == PROOF {
            Some(*seal).filter(|seal| !seal.is_timed())?
        } else {
            Seal::of(&seal.secret(), WHOLE, since)
        };
        if unhex(sealed)? != link.sealed(&then) {
            return None;
        }
        match since.cmp(&seal.since()) {
            Ordering::Equal => Some(Proven::Link(link)),
            Ordering::Greater => Some(Proven::Later),
            Ordering::Less => None,
        }
    }

    fn sealed(&self, seal: &Seal) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(SEAL_DOMAIN);
        digest.update(seal.0);
        digest.update(self.seq.to_be_bytes());
        digest.update(self.digest);
        digest.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::{Ids as _, ManualIds, WallMs};

    use super::*;
    use crate::binding::LogicalKey;
    use crate::rows::CallRow;

    fn row(id: &str) -> Row {
        Row::Call(CallRow {
            caller: "c".into(),
            id: id.into(),
            fingerprint: [0; 32],
            key: LogicalKey::parse("k").unwrap(),
            at: WallMs(1),
        })
    }

    #[test]
    fn rg_01_copies_that_went_on_by_themselves_never_have_the_same_link_again() {
        let mesh = Some(MeshId(ManualIds::seeded(1).ulid()));
        let after = |last: Option<&Link>, ids: &[&str]| {
            let rows: Vec<Row> = ids.iter().map(|id| row(id)).collect();
            Link::after(last, mesh, &rows, b"")
        };
        let first = after(None, &["a"]);
        assert_eq!((first.seq, first), (1, after(None, &["a"])));
        let (one, other) = (after(Some(&first), &["b"]), after(Some(&first), &["c"]));
        assert_eq!((one.seq, other.seq), (2, 2));
        assert_ne!(one.digest, other.digest);
        // Also when they write the same from then on.
        let (one, other) = (after(Some(&one), &["d"]), after(Some(&other), &["d"]));
        assert_ne!(one.digest, other.digest);
        // What is in one transaction is not what is in two, and a mesh is no other mesh.
        assert_ne!(after(None, &["a", "b"]).digest, one.digest);
        assert_ne!(
            Link::after(None, None, &[row("a")], b"").digest,
            first.digest
        );
    }

    #[test]
    fn nobody_proves_what_a_store_has_not_said() {
        let link = Link::after(None, None, &[], b"x");
        let ids = ManualIds::seeded(3);
        for (seal, other) in [
            (Seal([1; 32]), Seal([2; 32])),
            (Seal::mint(&ids), Seal::mint(&ids)),
        ] {
            let proof = link.proof(&seal);
            assert_eq!(Link::proven(&proof, &seal), Some(Proven::Link(link)));
            assert_eq!(Link::proven(&proof, &other), None);
            let longer = format!("{proof}.1");
            let later = proof.replacen(".1.", ".2.", 1);
            for bad in ["", "m1", "m1.1..", "m2.1.1.00.00", "m2", &longer, &later] {
                assert_eq!(Link::proven(bad, &seal), None, "{bad}");
            }
        }
    }

    #[test]
    fn rg_01_a_copy_of_before_a_persons_word_knows_that_it_is_an_earlier_one() {
        let ids = ManualIds::seeded(4);
        let link = Link::after(None, None, &[], b"x");
        for first in [Seal([1; 32]), Seal::mint(&ids)] {
            let torn = first.broken();
            assert!(torn.is_broken() && !first.is_broken());
            assert_eq!(torn.broken(), torn);
            let anew = torn.begins_anew(&ids);
            assert!(!anew.is_broken() && anew.since() > first.since());
            let (early, late) = (link.proof(&first), link.proof(&anew));
            assert_eq!(Link::proven(&early, &anew), None, "given up");
            assert_eq!(Link::proven(&late, &anew), Some(Proven::Link(link)));
            for copy in [first, torn] {
                assert_eq!(Link::proven(&late, &copy), Some(Proven::Later));
            }
            // Told to go on a second time, from the same copy: the first word is given up as well.
            let again = first.begins_anew(&ids);
            let again = again.begins_anew(&ids);
            assert!(again.since() > anew.since());
            assert_eq!(Link::proven(&late, &again), None);
        }
    }
}
