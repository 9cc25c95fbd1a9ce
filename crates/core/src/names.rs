//! Names of meshes, members, agents, topics and queues: normalised once, refused early.
//!
//! A name is NFC, made of letters, digits, `-`, `_` and `.`, and begins with a letter or a digit.
//! No name holds a NUL, a control character or one of the address signs, so the 0x00-joined
//! fingerprint form is unambiguous (C3).

use std::fmt;

use serde::{Deserialize, Serialize};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::limits::NAME_BYTES_MAX;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{article} {kind} name is empty", article = article(kind))]
    Empty { kind: &'static str },
    #[error("{article} {kind} name is longer than {NAME_BYTES_MAX} bytes", article = article(kind))]
    TooLong { kind: &'static str },
    #[error(
        "{kind} name {shown} holds {character:?}; use letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    Character {
        kind: &'static str,
        shown: String,
        character: char,
    },
}

fn article(kind: &str) -> &'static str {
    if kind.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}

/// The text in NFC. Borrowing callers pay nothing when it already is.
pub fn nfc(text: &str) -> String {
    if is_nfc(text) {
        text.to_owned()
    } else {
        text.nfc().collect()
    }
}

/// The text in NFD: what is looked for in texts that are kept as they came is looked for in both forms.
pub fn nfd(text: &str) -> String {
    text.nfd().collect()
}

fn check(kind: &'static str, text: &str) -> Result<String, NameError> {
    let name = nfc(text);
    if name.is_empty() {
        return Err(NameError::Empty { kind });
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { kind });
    }
    let wrong = name.chars().enumerate().find(|(index, c)| {
        !(c.is_alphanumeric() || (*index > 0 && (matches!(c, '-' | '_' | '.') || is_mark(*c))))
    });
    match wrong {
        Some((_, character)) => Err(NameError::Character {
            kind,
            shown: format!("{name:?}"),
            character,
        }),
        None => Ok(name),
    }
}

/// Combining marks that NFC leaves on their own (scripts without composed forms).
fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c)
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            pub fn parse(text: &str) -> Result<Self, NameError> {
                check($kind, text).map(Self)
            }

            /// In the place of a name that a disk has damaged, for whoever only shows it.
            pub fn unreadable() -> Self {
                Self("unreadable".to_owned())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

name_type!(
    /// A mesh, as people on this machine call it.
    MeshName,
    "mesh"
);
name_type!(
    /// A member of a mesh, as people call it. Its identity is [`crate::ids::MemberId`].
    MemberName,
    "member"
);
name_type!(
    /// A mailbox under a member.
    AgentName,
    "agent"
);
name_type!(TopicName, "topic");
name_type!(QueueName, "queue");
name_type!(
    /// A session of an agent, which keeps a read cursor of its own.
    SessionName,
    "session"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass() {
        for good in ["ops", "a", "Planner-2", "build_1.x", "größe", "日本", "9"] {
            assert_eq!(TopicName::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let said = |error: NameError| error.to_string();
        let (agent, topic) = (AgentName::parse(""), TopicName::parse(""));
        assert_eq!(said(agent.unwrap_err()), "an agent name is empty");
        assert_eq!(said(topic.unwrap_err()), "a topic name is empty");
        let long = AgentName::parse(&"x".repeat(NAME_BYTES_MAX + 1));
        assert!(said(long.unwrap_err()).starts_with("an agent name is longer than "));
    }

    #[test]
    fn composed_and_decomposed_spelling_are_one_name() {
        assert_eq!(
            AgentName::parse("cafe\u{301}").unwrap(),
            AgentName::parse("caf\u{e9}").unwrap()
        );
    }

    #[test]
    fn c3_control_characters_and_address_signs_are_refused() {
        for bad in [
            "a\0b",
            "a\nb",
            "\u{7f}",
            "a b",
            "a/b",
            "@a",
            "#a",
            "a:b",
            "-a",
            ".a",
            "",
            "a\u{202e}b",
            "a\u{200b}",
        ] {
            assert!(TopicName::parse(bad).is_err(), "{bad:?} passed");
        }
        assert!(TopicName::parse(&"x".repeat(NAME_BYTES_MAX + 1)).is_err());
        assert!(TopicName::parse(&"x".repeat(NAME_BYTES_MAX)).is_ok());
    }
}
