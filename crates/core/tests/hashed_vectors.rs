//! The published examples of `heddle-hash-v1`, which another program made.
#![allow(clippy::unwrap_used)]

use heddle_core::vector::{hashed, hashed_identity};
use serde_json::Value;

const VECTORS: &str = include_str!("../vectors/heddle_hash_v1.json");

#[test]
fn every_published_embedding_agrees_to_the_bit() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() >= 12);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let embedding = hashed(text).unwrap();
        assert_eq!(
            embedding.to_base64(),
            case["embedding"].as_str().unwrap(),
            "{text:?}"
        );
        assert_eq!(embedding.dim(), hashed_identity().unwrap().dim());
    }
}

#[test]
fn the_identity_of_the_offline_model_never_changes() {
    let identity = hashed_identity().unwrap();
    assert_eq!(
        identity.to_string(),
        "heddle-hash-v1:heddle-hash-v1:1:384:float32"
    );
    assert_eq!(identity.fingerprint().to_string(), "f38c2d0f6cdaa887");
}
