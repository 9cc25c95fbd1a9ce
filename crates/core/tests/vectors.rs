//! The published fingerprint vectors, and what holds for every request beyond them.
#![allow(clippy::unwrap_used)]

use heddle_core::canonical::parse_ijson;
use heddle_core::envelope::SendRequest;
use heddle_core::fingerprint::{hex, request_covered, request_fingerprint};
use proptest::prelude::*;
use serde_json::{Value, json};

const VECTORS: &str = include_str!("../vectors/fingerprint.json");

fn normalise(request: &Value) -> SendRequest {
    let text = |name: &str| request.get(name).and_then(Value::as_str);
    let mentions: Vec<String> = request
        .get("mentions")
        .map(|m| serde_json::from_value(m.clone()).unwrap())
        .unwrap_or_default();
    SendRequest::normalise(
        text("to").unwrap(),
        text("message").unwrap().to_owned(),
        text("priority"),
        request.get("meta"),
        text("reply_to_id"),
        &mentions,
    )
    .unwrap()
}

#[test]
fn fp_04_every_published_vector_agrees() {
    let vectors = parse_ijson(VECTORS.as_bytes()).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() >= 21);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let request = normalise(&case["request"]);
        let preimage = request_covered(&request, &request.to.reference()).preimage();
        assert_eq!(
            hex(&preimage),
            case["preimage_hex"].as_str().unwrap(),
            "{name}"
        );
        assert_eq!(
            request_fingerprint(&request).to_hex(),
            case["request_fingerprint"].as_str().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn fp_06_the_vectors_are_kept_for_ever() {
    // A row written by an older version is retried with these same 32 bytes: the first vector's
    // digest is spelled out here, so that no edit of the file can move it unnoticed.
    let request = normalise(&json!({"to": "#ops", "message": "hello"}));
    assert_eq!(
        request_fingerprint(&request).to_hex(),
        "44ddf26a04619ca305c05db8d74ea691b9b8ab8f3ac982d5a77037278ad62b72"
    );
}

/// Takes a pre-image apart again, knowing nothing but the number of fields.
fn decode(preimage: &[u8]) -> Vec<Vec<u8>> {
    preimage.split(|b| *b == 0).map(<[u8]>::to_vec).collect()
}

fn any_request() -> impl Strategy<Value = SendRequest> {
    let to = prop_oneof![
        "#[a-z]{1,3}",
        "@[a-z]{1,3}",
        "@[a-z]{1,2}/[a-z]{1,2}",
        "queue:[a-z]{1,3}"
    ];
    let meta = prop_oneof![
        Just(None),
        (".{0,4}", any::<i32>()).prop_map(|(k, v)| Some(json!({ k: v }))),
        ".{0,6}".prop_map(|v| Some(json!({ "k": [v, null] }))),
    ];
    let mentions = proptest::collection::vec("@[a-z]{1,2}", 0..3);
    (to, ".{0,6}", 0..3_usize, meta, "[a-z0-9]{0,3}", mentions).prop_map(
        |(to, body, priority, meta, reply_to, mentions)| {
            let priority = ["now", "next", "low"][priority];
            SendRequest::normalise(
                &to,
                body,
                Some(priority),
                meta.as_ref(),
                Some(&reply_to),
                &mentions,
            )
            .unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn fp_01_a_preimage_decodes_to_exactly_its_fields(request in any_request()) {
        let reference = request.to.reference();
        let fields = decode(&request_covered(&request, &reference).preimage());
        prop_assert_eq!(fields.len(), 7 + usize::from(!request.mentions.is_empty()));
        prop_assert_eq!(&fields[0], b"1");
        prop_assert_eq!(&fields[1], request.to.kind().as_str().as_bytes());
        prop_assert_eq!(&fields[2], reference.as_bytes());
        prop_assert_eq!(&fields[3], request.reply_to.as_bytes());
        prop_assert_eq!(&fields[4], request.priority.as_str().as_bytes());
        prop_assert_eq!(&fields[5], &request.meta_canonical);
        if let Some(mentions) = fields.get(7) {
            let decoded: Vec<String> = serde_json::from_slice(mentions).unwrap();
            prop_assert_eq!(&decoded, &request.mentions);
        }
    }

    #[test]
    fn fp_01_distinct_requests_have_distinct_preimages(a in any_request(), b in any_request()) {
        let preimage = |r: &SendRequest| request_covered(r, &r.to.reference()).preimage();
        prop_assert_eq!(a == b, preimage(&a) == preimage(&b));
    }
}
