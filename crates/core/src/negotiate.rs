//! Feature negotiation after hello (v6 §15.1, floor of 7 days) and its close codes.
//!
//! A broker advertises features with a version and parameters; the daemon needs some of them and
//! closes with a code that tells an operator why it cannot run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::DEDUPE_RETENTION_DAYS_MIN;
use crate::retention::DedupeMode;

/// The name of the dedupe feature, at parameter version 2.
pub const DEDUPE: &str = "client_message_id_dedupe";
/// The name of the duplicate-identity feature.
pub const CONNECTION_POLICY: &str = "concurrent_connection_policy";

/// Bytes of large files pass from one member to another. A daemon works without it.
pub const BLOB_RELAY: &str = "blob_relay";
/// A large mesh is published as one snapshot. A daemon works without it.
pub const LOG_SNAPSHOT: &str = "log_snapshot";
/// Such a snapshot is uploaded in parts and shown by its commit. A daemon works without it.
pub const SNAPSHOT_UPLOAD: &str = "snapshot_upload";
/// What was decided about the effects of a mesh is taken over when the mesh moves. A daemon works without it.
pub const EFFECT_HAND_OVER: &str = "effect_hand_over";

/// One advertised feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    pub version: u32,
    #[serde(default)]
    pub params: Map<String, Value>,
}

pub type Features = BTreeMap<String, Feature>;

/// What stands for the protocol itself where a close names a feature.
pub const PROTOCOL: &str = "protocol";

/// Why a daemon will not work with a broker. The number is the WebSocket close code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseCode {
    /// The same identity connected again and the policy prefers the newest.
    ReplacedByNewer,
    /// The same identity is connected and the policy prefers the oldest.
    RefusedForOlder,
    /// The hello was not signed by the member's key.
    Unauthenticated,
    /// The member was shut out of the mesh.
    MemberRevoked,
    /// The member is blocked until an owner grants it a role again.
    MemberBlocked,
    FeatureUnavailable,
    FeatureParamInvalid,
    FeatureParamBelowFloor,
}

impl CloseCode {
    pub fn number(self) -> u16 {
        match self {
            Self::ReplacedByNewer => 4003,
            Self::RefusedForOlder => 4004,
            Self::Unauthenticated => 4005,
            Self::MemberRevoked => 4006,
            Self::MemberBlocked => 4007,
            Self::FeatureUnavailable => 4010,
            Self::FeatureParamInvalid => 4011,
            Self::FeatureParamBelowFloor => 4012,
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Self::ReplacedByNewer => "replaced_by_newer",
            Self::RefusedForOlder => "refused_for_older",
            Self::Unauthenticated => "unauthenticated",
            Self::MemberRevoked => "member_revoked",
            Self::MemberBlocked => "member_blocked",
            Self::FeatureUnavailable => "feature_unavailable",
            Self::FeatureParamInvalid => "feature_param_invalid",
            Self::FeatureParamBelowFloor => "feature_param_below_floor",
        }
    }
}

/// What a broker does when one identity connects twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPolicy {
    PreferNewest,
    PreferOldest,
    AllowConcurrent,
}

/// What daemon and broker agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    pub dedupe: DedupeMode,
    pub connection_policy: ConnectionPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {feature}: {detail}", code.reason())]
pub struct Refusal {
    pub code: CloseCode,
    pub feature: &'static str,
    pub detail: String,
}

impl Refusal {
    /// The close frame's reason. Short enough for the 123 bytes that a close frame holds.
    pub fn close_reason(&self) -> String {
        format!(
            r#"{{"reason":"{}","feature":"{}"}}"#,
            self.code.reason(),
            self.feature
        )
    }
}

/// What a broker advertises, as it stands in its welcome. What we need and cannot read is refused as a parameter
/// that makes no sense; anything else that we cannot read is not offered.
pub fn read_features(advertised: &Value) -> Result<Features, Refusal> {
    let refuse = |feature, detail: String| Refusal {
        code: CloseCode::FeatureParamInvalid,
        feature,
        detail,
    };
    let named = match advertised {
        Value::Null => return Ok(Features::new()),
        Value::Object(named) => named,
        _ => {
            return Err(refuse(DEDUPE, "the features are not an object".to_owned()));
        }
    };
    let mut features = Features::new();
    for (name, value) in named {
        let required = [DEDUPE, CONNECTION_POLICY];
        match (
            Feature::deserialize(value),
            required.iter().find(|one| *one == name),
        ) {
            (Ok(feature), _) => {
                features.insert(name.clone(), feature);
            }
            (Err(error), Some(required)) => return Err(refuse(*required, error.to_string())),
            (Err(_), None) => {}
        }
    }
    Ok(features)
}

/// Decides whether this daemon can work with a broker that advertises these features.
pub fn negotiate(advertised: &Features) -> Result<Negotiated, Refusal> {
    Ok(Negotiated {
        dedupe: negotiate_dedupe(required(advertised, DEDUPE)?)?,
        connection_policy: negotiate_policy(required(advertised, CONNECTION_POLICY)?)?,
    })
}

fn required<'a>(advertised: &'a Features, name: &'static str) -> Result<&'a Feature, Refusal> {
    advertised.get(name).ok_or_else(|| Refusal {
        code: CloseCode::FeatureUnavailable,
        feature: name,
        detail: "the broker does not offer it".to_owned(),
    })
}

fn negotiate_dedupe(feature: &Feature) -> Result<DedupeMode, Refusal> {
    let refuse = |code, detail: &str| Refusal {
        code,
        feature: DEDUPE,
        detail: detail.to_owned(),
    };
    // Version 1 compares no fingerprints: for us that is the feature missing.
    match feature.version {
        0 | 1 => {
            return Err(refuse(
                CloseCode::FeatureUnavailable,
                "version 2 with fingerprints is needed",
            ));
        }
        2 => {}
        _ => return Err(refuse(CloseCode::FeatureParamInvalid, "unknown version")),
    }
    let param = |name: &str| feature.params.get(name);
    if param("request_fingerprint") != Some(&Value::Bool(true)) {
        return Err(refuse(
            CloseCode::FeatureParamInvalid,
            "request_fingerprint must be true",
        ));
    }
    match param("mode").and_then(Value::as_str) {
        Some("permanent") => Ok(DedupeMode::Permanent),
        Some("retention_scoped") => {
            let days = param("dedupe_retention_days")
                .and_then(Value::as_u64)
                .and_then(|days| u32::try_from(days).ok());
            match days {
                None => Err(refuse(
                    CloseCode::FeatureParamInvalid,
                    "dedupe_retention_days is missing or not a number",
                )),
                Some(days) if days < DEDUPE_RETENTION_DAYS_MIN => Err(refuse(
                    CloseCode::FeatureParamBelowFloor,
                    &format!(
                        "dedupe_retention_days is {days}, at least {DEDUPE_RETENTION_DAYS_MIN} are needed"
                    ),
                )),
                Some(days) => Ok(DedupeMode::RetentionScoped { days }),
            }
        }
        _ => Err(refuse(
            CloseCode::FeatureParamInvalid,
            "mode is missing or unknown",
        )),
    }
}

fn negotiate_policy(feature: &Feature) -> Result<ConnectionPolicy, Refusal> {
    let refuse = |detail: &str| Refusal {
        code: CloseCode::FeatureParamInvalid,
        feature: CONNECTION_POLICY,
        detail: detail.to_owned(),
    };
    if feature.version != 1 {
        return Err(refuse("unknown version"));
    }
    match feature.params.get("default_policy") {
        None => Ok(ConnectionPolicy::PreferNewest),
        Some(value) => {
            serde_json::from_value(value.clone()).map_err(|_| refuse("default_policy is unknown"))
        }
    }
}

/// What our own broker advertises.
pub fn advertise(dedupe: DedupeMode, policy: ConnectionPolicy) -> Features {
    let mut params = Map::new();
    params.insert("request_fingerprint".to_owned(), Value::Bool(true));
    match dedupe {
        DedupeMode::Permanent => {
            params.insert("mode".to_owned(), Value::from("permanent"));
        }
        DedupeMode::RetentionScoped { days } => {
            params.insert("mode".to_owned(), Value::from("retention_scoped"));
            params.insert("dedupe_retention_days".to_owned(), Value::from(days));
        }
    }
    let mut policy_params = Map::new();
    policy_params.insert(
        "default_policy".to_owned(),
        serde_json::to_value(policy).unwrap_or(Value::Null),
    );
    Features::from([
        (DEDUPE.to_owned(), Feature { version: 2, params }),
        (
            CONNECTION_POLICY.to_owned(),
            Feature {
                version: 1,
                params: policy_params,
            },
        ),
        (
            BLOB_RELAY.to_owned(),
            Feature {
                version: 1,
                params: Map::new(),
            },
        ),
        (
            LOG_SNAPSHOT.to_owned(),
            Feature {
                version: 1,
                params: Map::new(),
            },
        ),
        (
            SNAPSHOT_UPLOAD.to_owned(),
            Feature {
                version: 1,
                params: Map::new(),
            },
        ),
        (
            EFFECT_HAND_OVER.to_owned(),
            Feature {
                version: 1,
                params: Map::new(),
            },
        ),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn features(version: u32, params: Value) -> Features {
        let mut all = advertise(DedupeMode::Permanent, ConnectionPolicy::PreferNewest);
        let Value::Object(params) = params else {
            unreachable!("params are an object")
        };
        all.insert(DEDUPE.to_owned(), Feature { version, params });
        all
    }

    fn code(features: &Features) -> u16 {
        negotiate(features).unwrap_err().code.number()
    }

    #[test]
    fn what_we_advertise_we_accept() {
        for dedupe in [
            DedupeMode::Permanent,
            DedupeMode::RetentionScoped { days: 7 },
        ] {
            for policy in [
                ConnectionPolicy::PreferNewest,
                ConnectionPolicy::PreferOldest,
                ConnectionPolicy::AllowConcurrent,
            ] {
                let negotiated = negotiate(&advertise(dedupe, policy)).unwrap();
                assert_eq!(negotiated.dedupe, dedupe);
                assert_eq!(negotiated.connection_policy, policy);
            }
        }
    }

    #[test]
    fn br_19_missing_invalid_and_too_low_have_their_own_codes() {
        let good = json!({"mode": "retention_scoped", "dedupe_retention_days": 7, "request_fingerprint": true});
        assert!(negotiate(&features(2, good.clone())).is_ok());
        assert_eq!(code(&Features::new()), 4010);
        assert_eq!(code(&features(1, good.clone())), 4010);
        assert_eq!(code(&features(3, good)), 4011);
        for bad in [
            json!({}),
            json!({"mode": "permanent"}),
            json!({"mode": "permanent", "request_fingerprint": false}),
            json!({"mode": "sometimes", "request_fingerprint": true}),
            json!({"mode": "retention_scoped", "request_fingerprint": true}),
            json!({"mode": "retention_scoped", "dedupe_retention_days": -7, "request_fingerprint": true}),
            json!({"mode": "retention_scoped", "dedupe_retention_days": "30", "request_fingerprint": true}),
        ] {
            assert_eq!(code(&features(2, bad)), 4011);
        }
        for days in 0..7 {
            let low = json!({"mode": "retention_scoped", "dedupe_retention_days": days, "request_fingerprint": true});
            assert_eq!(code(&features(2, low)), 4012);
        }
    }

    #[test]
    fn br_19_features_of_the_wrong_type_are_a_parameter_that_makes_no_sense() {
        let good = serde_json::to_value(advertise(
            DedupeMode::Permanent,
            ConnectionPolicy::PreferNewest,
        ));
        let good = good.unwrap();
        assert!(negotiate(&read_features(&good).unwrap()).is_ok());
        for bad in [
            json!([]),
            json!("all"),
            json!(2),
            json!(true),
            json!([good]),
        ] {
            assert_eq!(
                read_features(&bad).unwrap_err().code.number(),
                4011,
                "{bad}"
            );
        }
        for name in [DEDUPE, CONNECTION_POLICY] {
            for bad in [
                json!("2"),
                json!([]),
                json!({}),
                json!({"version": "2"}),
                json!({"version": -2}),
                json!({"version": 2.5}),
                json!({"version": 2, "params": []}),
                json!({"version": 2, "params": null}),
            ] {
                let mut all = good.clone();
                all[name] = bad.clone();
                let refusal = read_features(&all).unwrap_err();
                assert_eq!(
                    (refusal.code.number(), refusal.feature),
                    (4011, name),
                    "{bad}"
                );
            }
        }
        // What we can do without is not offered then.
        let mut all = good;
        all[BLOB_RELAY] = json!("1");
        let features = read_features(&all).unwrap();
        assert!(!features.contains_key(BLOB_RELAY) && negotiate(&features).is_ok());
        // None at all is not offered, either.
        assert_eq!(code(&read_features(&Value::Null).unwrap()), 4010);
    }

    #[test]
    fn a_close_reason_fits_its_frame_and_is_json() {
        let refusal = negotiate(&Features::new()).unwrap_err();
        let reason = refusal.close_reason();
        assert!(reason.len() <= 123);
        assert!(serde_json::from_str::<Value>(&reason).is_ok());
    }
}
