//! Doors inward: bytes become values of `heddle-core`, or a problem that says what is wrong.

use heddle_core::canonical::parse_ijson;
use heddle_core::envelope::SendRequest;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ipc::{QueuePushBody, SendBody, TopicPostBody};
use crate::problem::Problem;

/// Parses a request body strictly: I-JSON, a known shape, no unknown field.
pub fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value = parse_ijson(bytes).map_err(|error| invalid(error.to_string()))?;
    // Serde would take an array for a struct, field by field in our order.
    if !value.is_object() {
        return Err(invalid("the body is not a JSON object"));
    }
    match serde_json::from_value(value) {
        Ok(body) => Ok(body),
        // Only a refusal is worth the look for the field.
        Err(_) => typed(parse_ijson(bytes).map_err(|error| invalid(error.to_string()))?),
    }
}

/// A value of a known shape; a refusal names the field, which the words of a value that does not fit do not.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (place, words) = (error.path().to_string(), error.inner().to_string());
        // Of a field that is not known the words have the name, and the place begins with where it stands.
        let place = if words.starts_with("unknown field") {
            place.rsplit_once('.').map_or("", |(above, _)| above)
        } else {
            place.as_str()
        };
        invalid(match place {
            "" | "." => words,
            place => format!("{place}: {words}"),
        })
    })
}

pub fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, detail)
}

/// The id of a request: header and body must agree where both are given (OB-15, C46).
pub fn client_message_id(
    header: Option<&str>,
    body: Option<&str>,
) -> Result<Option<ClientMessageId>, Problem> {
    let chosen = match (header, body) {
        (Some(header), Some(body)) if header != body => {
            return Err(invalid(
                "the Idempotency-Key header and client_message_id in the body differ",
            )
            .next("Send one of them, or the same value in both; nothing was consumed."));
        }
        (Some(id), _) | (None, Some(id)) => id,
        (None, None) => return Ok(None),
    };
    ClientMessageId::parse(chosen)
        .map(Some)
        .map_err(|error| invalid(error.to_string()))
}

/// The normalised request of a send body.
pub fn send_request(body: &SendBody) -> Result<SendRequest, Problem> {
    normalised(body, body.message.clone())
}

/// The same for the hot path: the message is moved out of the body, not copied.
pub fn take_send_request(body: &mut SendBody) -> Result<SendRequest, Problem> {
    let message = std::mem::take(&mut body.message);
    normalised(body, message)
}

fn normalised(body: &SendBody, message: String) -> Result<SendRequest, Problem> {
    SendRequest::normalise(
        &body.to,
        message,
        body.priority.as_deref(),
        body.meta.as_ref(),
        body.reply_to_id.as_deref(),
        &body.mentions,
    )
    .map_err(|error| invalid(error.to_string()))
}

/// A topic's name as people type it, with or without its sign.
pub fn topic_name(text: &str) -> Result<heddle_core::names::TopicName, Problem> {
    heddle_core::names::TopicName::parse(text.strip_prefix('#').unwrap_or(text))
        .map_err(|error| invalid(error.to_string()))
}

/// A post is a send to the topic.
pub fn post_as_send(post: TopicPostBody) -> Result<SendBody, Problem> {
    Ok(SendBody {
        to: format!("#{}", topic_name(&post.topic)?),
        message: post.message,
        priority: post.priority,
        meta: post.meta,
        reply_to_id: post.reply_to_id,
        mentions: post.mentions,
        client_message_id: post.client_message_id,
        mesh: post.mesh,
        agent: post.agent,
    })
}

/// A queue's name as people type it, with or without its prefix.
pub fn queue_name(text: &str) -> Result<heddle_core::names::QueueName, Problem> {
    heddle_core::names::QueueName::parse(text.strip_prefix("queue:").unwrap_or(text))
        .map_err(|error| invalid(error.to_string()))
}

/// A push is a send to the queue.
pub fn push_as_send(push: QueuePushBody) -> Result<SendBody, Problem> {
    Ok(SendBody {
        to: format!("queue:{}", queue_name(&push.queue)?),
        message: push.message,
        priority: push.priority,
        meta: push.meta,
        reply_to_id: push.reply_to_id,
        mentions: push.mentions,
        client_message_id: push.client_message_id,
        mesh: push.mesh,
        agent: push.agent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_15_header_beats_body_beats_minted_and_disagreement_is_refused() {
        let id = |h, b| client_message_id(h, b).map(|id| id.map(|id| id.to_string()));
        assert_eq!(id(Some("a"), None).unwrap().as_deref(), Some("a"));
        assert_eq!(id(None, Some("b")).unwrap().as_deref(), Some("b"));
        assert_eq!(id(Some("a"), Some("a")).unwrap().as_deref(), Some("a"));
        assert_eq!(id(None, None).unwrap(), None);
        assert_eq!(id(Some("a"), Some("b")).unwrap_err().status, 400);
        assert_eq!(id(Some(""), None).unwrap_err().status, 400);
    }

    #[test]
    fn unknown_fields_and_lossy_json_are_refused() {
        for bad in [
            r##"{"to":"#a","message":"m","colour":"red"}"##,
            r##"{"to":"#a","message":"m","message":"n"}"##,
            r##"{"to":"#a","message":"m","meta":{"n":9007199254740993}}"##,
            r##"{"to":"#a"}"##,
            r##"{"to":"#a","message":7}"##,
            "[]",
            r##"["#a","m"]"##,
            "null",
        ] {
            assert_eq!(
                body::<SendBody>(bad.as_bytes()).unwrap_err().status,
                400,
                "{bad}"
            );
        }
    }
}
