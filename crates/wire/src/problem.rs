//! Problem details (RFC 9457): the one shape of every error that leaves a daemon or a broker.

use heddle_core::error_code::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    #[serde(rename = "type")]
    pub type_uri: String,
    pub title: String,
    pub status: u16,
    pub code: String,
    pub detail: String,
    /// `never`, `same_id` or `new_id`.
    pub retry: String,
    /// What to do next, as a sentence.
    pub next: String,
    /// Fields that only some codes have (`conflict`, `candidates`, …).
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Problem {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            type_uri: format!("urn:heddle:error:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.as_str().to_owned(),
            detail: detail.into(),
            retry: code.retry().as_str().to_owned(),
            next: code.next().to_owned(),
            extra: Map::new(),
        }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// Replaces the general advice by one that fits this case.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    pub fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::parse(&self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_fields_stand_beside_the_standard_ones() {
        let problem = Problem::new(ErrorCode::UnknownRecipient, "no agent is called bob")
            .with("candidates", vec!["@rob"]);
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["candidates"][0], "@rob");
        assert_eq!(json["status"], 404);
        assert_eq!(json["type"], "urn:heddle:error:unknown_recipient");
        assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
    }
}
