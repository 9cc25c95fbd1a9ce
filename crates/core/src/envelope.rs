//! What a caller asks to send: an address, a priority, a normalised request.
//!
//! Normalising comes before hashing (C34): defaults are filled in, absent and empty are one,
//! mentions are sorted and distinct.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{CanonicalError, canonicalize};
use crate::ids::{IdError, check_reply_to};
use crate::limits::MENTIONS_MAX;
use crate::names::{AgentName, MemberName, NameError, QueueName, TopicName};

/// The kind of envelope in the one pipe (DESIGN §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvelopeKind {
    Message,
    Op,
}

impl EnvelopeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Op => "op",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Now,
    #[default]
    Next,
    Low,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::Now, Self::Next, Self::Low];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Next => "next",
            Self::Low => "low",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == text)
    }

    /// 0 is served first.
    pub fn rank(self) -> u8 {
        match self {
            Self::Now => 0,
            Self::Next => 1,
            Self::Low => 2,
        }
    }

    pub fn from_rank(rank: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.rank() == rank)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationKind {
    Topic,
    Dm,
    Queue,
    /// The replicated ops of a mesh: every member reads them by cursor, nobody gets a delivery.
    Log,
}

/// The one log that a mesh has, as envelopes name it.
pub const LOG_REF: &str = "ops";

impl DestinationKind {
    pub const ALL: [Self; 4] = [Self::Topic, Self::Dm, Self::Queue, Self::Log];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Dm => "dm",
            Self::Queue => "queue",
            Self::Log => "log",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Where a caller wants a message to go, as it was addressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    Topic(TopicName),
    Dm {
        member: Option<MemberName>,
        agent: AgentName,
    },
    Queue(QueueName),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("address {0:?} does not say where: use @agent, @member/agent, #topic or queue:name")]
    Address(String),
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("{0}")]
    Id(#[from] IdError),
    #[error("priority {0:?} is not one of now, next, low")]
    Priority(String),
    #[error("mention {0:?} is not of the form @agent or @member/agent")]
    Mention(String),
    #[error("{0} mentions are more than the {MENTIONS_MAX} allowed")]
    Mentions(usize),
    #[error("meta must be a JSON object")]
    MetaShape,
    #[error("meta is {0}")]
    Meta(#[from] CanonicalError),
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, EnvelopeError> {
        if let Some(name) = text.strip_prefix('#') {
            return Ok(Self::Topic(TopicName::parse(name)?));
        }
        if let Some(name) = text.strip_prefix("queue:") {
            return Ok(Self::Queue(QueueName::parse(name)?));
        }
        let Some(name) = text.strip_prefix('@') else {
            return Err(EnvelopeError::Address(text.chars().take(60).collect()));
        };
        let (member, agent) = match name.split_once('/') {
            Some((member, agent)) => (Some(MemberName::parse(member)?), agent),
            None => (None, name),
        };
        Ok(Self::Dm {
            member,
            agent: AgentName::parse(agent)?,
        })
    }

    pub fn kind(&self) -> DestinationKind {
        match self {
            Self::Topic(_) => DestinationKind::Topic,
            Self::Dm { .. } => DestinationKind::Dm,
            Self::Queue(_) => DestinationKind::Queue,
        }
    }

    /// The part after the sign, as the fingerprint covers it.
    pub fn reference(&self) -> String {
        match self {
            Self::Topic(name) => name.to_string(),
            Self::Queue(name) => name.to_string(),
            Self::Dm {
                member: Some(member),
                agent,
            } => format!("{member}/{agent}"),
            Self::Dm {
                member: None,
                agent,
            } => agent.to_string(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self {
            Self::Topic(_) => "#",
            Self::Dm { .. } => "@",
            Self::Queue(_) => "queue:",
        };
        write!(f, "{sign}{}", self.reference())
    }
}

/// A send request after normalisation: everything that makes it the send it is, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendRequest {
    pub to: Address,
    pub body: String,
    pub priority: Priority,
    /// A non-empty object as the caller wrote it, or none.
    pub meta: Option<Value>,
    /// Its RFC 8785 bytes, or empty. Not to be parsed again: 1e16 is canonical as an integer, which a
    /// strict reader would refuse.
    pub meta_canonical: Vec<u8>,
    /// Empty when this answers nothing.
    pub reply_to: String,
    /// Sorted by bytes, distinct, each with its `@`.
    pub mentions: Vec<String>,
}

impl SendRequest {
    /// Fills in defaults and refuses what cannot be hashed or stored without loss.
    pub fn normalise(
        to: &str,
        body: String,
        priority: Option<&str>,
        meta: Option<&Value>,
        reply_to: Option<&str>,
        mentions: &[String],
    ) -> Result<Self, EnvelopeError> {
        let priority = match priority {
            None => Priority::default(),
            Some(text) => {
                Priority::parse(text).ok_or_else(|| EnvelopeError::Priority(text.to_owned()))?
            }
        };
        let reply_to = reply_to.unwrap_or_default();
        if !reply_to.is_empty() {
            check_reply_to(reply_to)?;
        }
        let meta_canonical = canonical_meta(meta)?;
        Ok(Self {
            meta: meta.filter(|_| !meta_canonical.is_empty()).cloned(),
            to: Address::parse(to)?,
            body,
            priority,
            meta_canonical,
            reply_to: reply_to.to_owned(),
            mentions: normalise_mentions(mentions)?,
        })
    }
}

/// Absent, null and `{}` are one and the same: nothing.
fn canonical_meta(meta: Option<&Value>) -> Result<Vec<u8>, EnvelopeError> {
    match meta {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(map)) if map.is_empty() => Ok(Vec::new()),
        Some(object @ Value::Object(_)) => Ok(canonicalize(object)?),
        Some(_) => Err(EnvelopeError::MetaShape),
    }
}

fn normalise_mentions(mentions: &[String]) -> Result<Vec<String>, EnvelopeError> {
    if mentions.len() > MENTIONS_MAX {
        return Err(EnvelopeError::Mentions(mentions.len()));
    }
    let mut normal = mentions
        .iter()
        .map(|text| match Address::parse(text) {
            Ok(address @ Address::Dm { .. }) => Ok(address.to_string()),
            _ => Err(EnvelopeError::Mention(text.chars().take(60).collect())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    normal.sort_unstable();
    normal.dedup();
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_were_written() {
        for text in ["#ops", "@planner", "@alice/planner", "queue:builds"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn addresses_that_point_nowhere_are_refused() {
        for bad in [
            "", "ops", "#", "@", "@a/", "@/a", "@a/b/c", "queue:", "#a\0", "##a", "#a b",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad:?} passed");
        }
    }

    #[test]
    fn c34_absent_and_empty_are_one() {
        let bare = SendRequest::normalise("#ops", "m".into(), None, None, None, &[]).unwrap();
        let empty = serde_json::json!({});
        let spelled = SendRequest::normalise(
            "#ops",
            "m".into(),
            Some("next"),
            Some(&empty),
            Some(""),
            &[],
        )
        .unwrap();
        assert_eq!(bare, spelled);
    }

    #[test]
    fn bad_fields_are_refused() {
        let with = |priority: Option<&str>, meta: Option<Value>, mentions: &[&str]| {
            let mentions: Vec<String> = mentions.iter().map(ToString::to_string).collect();
            SendRequest::normalise(
                "#ops",
                String::new(),
                priority,
                meta.as_ref(),
                None,
                &mentions,
            )
        };
        assert!(with(Some("urgent"), None, &[]).is_err());
        assert!(with(None, Some(serde_json::json!([1])), &[]).is_err());
        assert!(with(None, None, &["bob"]).is_err());
        assert!(with(None, None, &["#ops"]).is_err());
        let many: Vec<String> = (0..=MENTIONS_MAX).map(|n| format!("@a{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(matches!(
            with(None, None, &many),
            Err(EnvelopeError::Mentions(_))
        ));
        assert!(
            SendRequest::normalise("#o", String::new(), None, None, Some("a\u{1}"), &[]).is_err()
        );
    }
}
