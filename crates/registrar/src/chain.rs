//! The chain of everything that a store has written: each link is a digest over the one before it and the rows of its
//! transaction. Whoever remembers one link knows every store that has come so far, and can tell it from every other
//! one: an earlier copy does not have the link, and a copy that went on by itself has another one in its place.

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// 1, 2, 3, …
    pub seq: u64,
    #[serde(with = "in_hex")]
    pub digest: [u8; 32],
}

/// A secret of the store, for its proofs. A new one makes every earlier proof worthless: by a person's word what was
/// proven then is given up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seal(pub [u8; 32]);

impl Seal {
    pub fn mint(ids: &dyn Ids) -> Self {
        let mut bytes = [0; 32];
        ids.fill(&mut bytes);
        Self(bytes)
    }
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
        let digest = hex(&self.digest);
        format!("{PROOF}.{}.{digest}.{}", self.seq, hex(&self.sealed(seal)))
    }

    /// What was proven to somebody by a store with this seal; none where it is somebody's invention, or another store's.
    pub fn proven(text: &str, seal: &Seal) -> Option<Self> {
        let mut words = text.split('.');
        let [form, seq, digest, sealed] = std::array::from_fn(|_| words.next());
        if form != Some(PROOF) || words.next().is_some() {
            return None;
        }
        let link = Self {
            seq: seq?.parse().ok()?,
            digest: unhex(digest?)?,
        };
        (unhex(sealed?)? == link.sealed(seal)).then_some(link)
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
        let (seal, other) = (Seal([1; 32]), Seal([2; 32]));
        let proof = link.proof(&seal);
        assert_eq!(Link::proven(&proof, &seal), Some(link));
        assert_eq!(Link::proven(&proof, &other), None);
        let longer = format!("{proof}.1");
        let later = proof.replacen(".1.", ".2.", 1);
        for bad in ["", "m1", "m1.1..", "m2.1.00.00", &longer, &later] {
            assert_eq!(Link::proven(bad, &seal), None, "{bad}");
        }
    }
}
