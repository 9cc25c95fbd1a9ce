//! The body of a send as nearly everybody writes it, parsed in one pass.
//!
//! The strict way of `from_wire::body` builds a tree first, because only a tree shows every lossy number
//! and repeated key of a free-form `meta`. A body that has only texts can hold neither, so it is read
//! straight into its fields. Whatever is not such a body is `None` here and judged by the strict way.

use serde::Deserialize;

use super::SendBody;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    to: String,
    message: String,
    #[serde(default)]
    priority: Option<String>,
    #[serde(default)]
    reply_to_id: Option<String>,
    #[serde(default)]
    mentions: Vec<String>,
    #[serde(default)]
    client_message_id: Option<String>,
    #[serde(default)]
    mesh: Option<String>,
    #[serde(default)]
    agent: Option<String>,
}

impl SendBody {
    /// The body, if it is an object of known texts, each given once.
    pub fn plain(bytes: &[u8]) -> Option<Self> {
        // Serde would take an array for a struct, field by field in our order.
        if bytes.first() != Some(&b'{') {
            return None;
        }
        let texts: Texts = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            to: texts.to,
            message: texts.message,
            priority: texts.priority,
            meta: None,
            reply_to_id: texts.reply_to_id,
            mentions: texts.mentions,
            client_message_id: texts.client_message_id,
            mesh: texts.mesh,
            agent: texts.agent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_wire;

    /// Bodies, and whether the short way may take them.
    const BODIES: &[(&str, bool)] = &[
        (r##"{"to":"#a","message":"m"}"##, true),
        (
            r##"{ "message" : "m\u00e9\ud83d\ude00\n" , "to" : "#a" } "##,
            true,
        ),
        (
            r##"{"to":"#a","message":"m","priority":null,"mesh":"x","agent":"@b"}"##,
            true,
        ),
        (
            r##"{"to":"#a","message":"m","mentions":["@x","@y"],"reply_to_id":"7"}"##,
            true,
        ),
        (
            r##"{"to":"#a","message":"m","client_message_id":"1"}"##,
            true,
        ),
        (r##"{"to":"#a","message":"m","meta":{"a":1}}"##, false),
        (r##"{"to":"#a","message":"m","meta":null}"##, false),
        (r##"{"to":"#a","message":"m","colour":"red"}"##, false),
        (r##"{"to":"#a","message":"m","message":"n"}"##, false),
        (
            "{\"to\":\"#a\",\"message\":\"m\",\"\\u0074o\":\"#b\"}",
            false,
        ),
        (r##"{"to":"#a","message":"m","mentions":null}"##, false),
        (r##"{"to":"#a","message":"\ud800"}"##, false),
        (r##"{"to":"#a","message":7}"##, false),
        (r##"{"to":"#a"}"##, false),
        (r##"{"to":"#a","message":"m"} x"##, false),
        (r##"{"to":"#a","message":"m",}"##, false),
        (r##"["#a","m"]"##, false),
        (" {\"to\":\"#a\",\"message\":\"m\"}", false),
        ("null", false),
        ("", false),
    ];

    #[test]
    fn what_the_short_way_takes_the_strict_way_reads_the_same() {
        for (text, is_plain) in BODIES {
            let plain = SendBody::plain(text.as_bytes());
            assert_eq!(plain.is_some(), *is_plain, "{text}");
            if let Some(plain) = plain {
                assert_eq!(
                    from_wire::body::<SendBody>(text.as_bytes()).unwrap(),
                    plain,
                    "{text}"
                );
            }
        }
        assert!(SendBody::plain(b"{\"to\":\"#a\",\"message\":\"\xff\"}").is_none());
    }
}
