//! A conflict as a candidate: both images side by side, the same document wherever it is found. Pure.

use serde_json::{Value, json};

use crate::blobs::sha256_hex;
use crate::format::BLOB_BYTES_MAX;

use super::provenance::Mark;

pub(crate) const CANDIDATE: &str = "candidate";
const PREFIX: &str = "cnf_";

/// One side.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) mark: Mark,
    /// None: deleted or erased.
    pub(crate) document: Option<Value>,
}

/// What every candidate about an entity is called at the beginning: redaction finds them by it.
pub(crate) fn prefix_of(item_type: &str, item_id: &str) -> String {
    let key = format!("{item_type}\0{item_id}");
    format!("{PREFIX}{}_", &sha256_hex(key.as_bytes())[..16])
}

/// Whether an item is such a candidate: these are made by each store for itself and do not travel.
pub(crate) fn is_one(item_type: &str, item_id: &str) -> bool {
    item_type == CANDIDATE && item_id.starts_with(PREFIX)
}

/// Id and document; the order of the two does not matter.
pub(crate) fn conflict(item_type: &str, item_id: &str, a: Image, b: Image) -> (String, Value) {
    let (older, newer) = if a.mark <= b.mark { (a, b) } else { (b, a) };
    let word = |image: &Image| {
        let Mark {
            entity_rev,
            origin_id,
            origin_epoch,
            seq,
        } = &image.mark;
        format!("{entity_rev}\0{origin_id}\0{origin_epoch}\0{seq}")
    };
    let pair = format!("{}\0{}", word(&older), word(&newer));
    let id = format!(
        "{}{}",
        prefix_of(item_type, item_id),
        &sha256_hex(pair.as_bytes())[..16]
    );
    let winner = json!({"origin_id": newer.mark.origin_id, "entity_rev": newer.mark.entity_rev});
    let document = |with_documents: bool| {
        let shown = |image: &Image| {
            json!({
                "origin_id": image.mark.origin_id,
                "origin_epoch": image.mark.origin_epoch,
                "origin_seq": image.mark.seq,
                "entity_rev": image.mark.entity_rev,
                "deleted": image.document.is_none(),
                "document": image.document.as_ref().filter(|_| with_documents),
            })
        };
        json!({
            "kind": "conflict",
            "status": "open",
            "text": format!("{item_type} {item_id} was changed in two places at once; the winner is in place"),
            "item_type": item_type,
            "item_id": item_id,
            "winner": winner,
            "images": [shown(&older), shown(&newer)],
        })
    };
    let whole = document(true);
    if whole.to_string().len() <= BLOB_BYTES_MAX {
        (id, whole)
    } else {
        (id, document(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_make_the_same_candidate_of_the_same_conflict() {
        let image = |rev, origin: &str| Image {
            mark: Mark {
                entity_rev: rev,
                origin_id: origin.into(),
                origin_epoch: 1,
                seq: 3,
            },
            document: Some(json!({"by": origin})),
        };
        let (a, b) = (image(8, "org_b"), image(9, "org_a"));
        let one = conflict("plan", "x", a.clone(), b.clone());
        assert_eq!(one, conflict("plan", "x", b, a));
        assert_eq!(one.1["winner"]["origin_id"], "org_a");
        assert_eq!(one.1["images"][0]["document"]["by"], "org_b");
        assert!(is_one(CANDIDATE, &one.0) && crate::format::is_item_id(&one.0));
        assert!(one.0.starts_with(&prefix_of("plan", "x")));
        let large = |rev, origin: &str| Image {
            document: Some(json!("x".repeat(BLOB_BYTES_MAX - 100))),
            ..image(rev, origin)
        };
        let (_, document) = conflict("plan", "x", large(1, "org_a"), large(2, "org_b"));
        assert_eq!(document["images"][0]["document"], Value::Null);
    }
}
