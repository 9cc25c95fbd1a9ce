//! Text becomes a frame.
//!
//! Serde buffers the fields of a tagged enum, and raw JSON does not survive that: the frames that
//! carry envelopes are read by themselves, so that an envelope keeps its bytes (DR-06).

use std::borrow::Cow;

use serde::Deserialize;

use super::frames::{ClientFrame, Delivery, ReplyResult, SendItem, ServerFrame};
use super::held::{HeldCursor, HeldItem};
use super::log::LogItem;
use super::queue::TakenItem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a frame: {0}")]
pub struct NotAFrame(pub String);

impl From<serde_json::Error> for NotAFrame {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct SendFrame {
    batch: u64,
    items: Vec<SendItem>,
}

#[derive(Deserialize)]
struct DeliverFrame {
    items: Vec<Delivery>,
}

#[derive(Deserialize)]
struct ResultKind<'a> {
    #[serde(borrow)]
    result: Cow<'a, str>,
}

#[derive(Deserialize)]
struct TakenFrame {
    request: u64,
    items: Vec<TakenItem>,
}

#[derive(Deserialize)]
struct HeldFrame {
    request: u64,
    items: Vec<HeldItem>,
    gone: u64,
    #[serde(default)]
    next: Option<HeldCursor>,
}

#[derive(Deserialize)]
struct LogFrame {
    request: u64,
    epoch: u64,
    items: Vec<LogItem>,
}

impl ClientFrame {
    pub fn parse(text: &str) -> Result<Self, NotAFrame> {
        if is_kind(text, "send")? {
            let SendFrame { batch, items } = serde_json::from_str(text)?;
            return Ok(Self::Send { batch, items });
        }
        Ok(serde_json::from_str(text)?)
    }
}

impl ServerFrame {
    pub fn parse(text: &str) -> Result<Self, NotAFrame> {
        if is_kind(text, "deliver")? {
            let DeliverFrame { items } = serde_json::from_str(text)?;
            return Ok(Self::Deliver { items });
        }
        if is_kind(text, "reply")? {
            let result = result_kind(text)?;
            if result == "taken" {
                let TakenFrame { request, items } = serde_json::from_str(text)?;
                let result = ReplyResult::Taken { items };
                return Ok(Self::Reply { request, result });
            }
            if result == "held" {
                let HeldFrame {
                    request,
                    items,
                    gone,
                    next,
                } = serde_json::from_str(text)?;
                let result = ReplyResult::Held { items, gone, next };
                return Ok(Self::Reply { request, result });
            }
            if result == "log" {
                let LogFrame {
                    request,
                    epoch,
                    items,
                } = serde_json::from_str(text)?;
                let result = ReplyResult::Log { epoch, items };
                return Ok(Self::Reply { request, result });
            }
        }
        Ok(serde_json::from_str(text)?)
    }
}

/// Our own replies say right behind their type and number what they hold; only those of others are read twice.
fn result_kind(text: &str) -> Result<Cow<'_, str>, NotAFrame> {
    let is_digit = |c: char| c.is_ascii_digit();
    if let Some(rest) = text.strip_prefix(r#"{"type":"reply","request":"#)
        && let Some(rest) = rest
            .trim_start_matches(is_digit)
            .strip_prefix(r#","result":""#)
        && let Some((result, _)) = rest.split_once('"')
        && !result.contains('\\')
    {
        return Ok(Cow::Borrowed(result));
    }
    let ResultKind { result } = serde_json::from_str(text)?;
    Ok(result)
}

/// Our own frames begin with their type; only those of others must be read to find it.
fn is_kind(text: &str, wanted: &str) -> Result<bool, NotAFrame> {
    if let Some(rest) = text.strip_prefix(r#"{"type":""#)
        && let Some((kind, _)) = rest.split_once('"')
        && !kind.contains('\\')
    {
        return Ok(kind == wanted);
    }
    let Kind { kind } = serde_json::from_str(text)?;
    Ok(kind == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: &str = r#"{"agent":"a","client_message_id":"x","envelope":{"v": 1}}"#;

    #[test]
    fn dr_06_a_batch_is_read_whatever_the_order_of_its_fields_and_keeps_its_bytes() {
        for text in [
            format!(r#"{{"type":"send","batch":7,"items":[{ITEM}]}}"#),
            format!(r#"{{ "batch":7,"items":[{ITEM}],"type":"send"}}"#),
            format!(r#"{{"type":"\u0073end","batch":7,"items":[{ITEM}]}}"#),
        ] {
            let Ok(ClientFrame::Send { batch: 7, items }) = ClientFrame::parse(&text) else {
                panic!("{text}");
            };
            assert_eq!(items[0].envelope.get(), r#"{"v": 1}"#);
        }
    }

    #[test]
    fn a_delivery_survives_the_way_there_and_back() {
        let text = r#"{"type":"deliver","items":[{"history_id":"1.2","agent":"a","from":{"member":"01HZX000000000000000000001","agent":"b","member_name":"m"},"client_message_id":"x","broker_message_id":"01HZX000000000000000000002","destination_kind":"dm","destination_ref":"r","accepted_at":5,"envelope":{"v": 1}}]}"#;
        let frame = ServerFrame::parse(text).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
    }

    #[test]
    fn a_reply_is_read_whatever_the_order_of_its_fields() {
        let ours = r#"{"type":"reply","request":7,"result":"log","epoch":3,"items":[]}"#;
        for text in [
            ours,
            r#"{ "type":"reply","request":7,"result":"log","epoch":3,"items":[]}"#,
            r#"{"type":"reply","result":"log","request":7,"epoch":3,"items":[]}"#,
            r#"{"type":"reply","request":7,"result":"\u006cog","epoch":3,"items":[]}"#,
            r#"{"items":[],"epoch":3,"result":"log","request":7,"type":"reply"}"#,
        ] {
            let frame = ServerFrame::parse(text).unwrap();
            assert_eq!(serde_json::to_string(&frame).unwrap(), ours, "{text}");
        }
        for bad in [
            r#"{"type":"reply","request":7,"result":"log"#,
            r#"{"type":"reply","request":7,"result":"log""#,
            r#"{"type":"reply","request":-7,"result":"log","epoch":3,"items":[]}"#,
            r#"{"type":"reply","request":,"result":"log","epoch":3,"items":[]}"#,
            r#"{"type":"reply","request":7,"result":"dance","epoch":3,"items":[]}"#,
        ] {
            assert!(ServerFrame::parse(bad).is_err(), "{bad}");
        }
    }

    const DELIVERY: &str = r#"{"history_id":"1.2","agent":"a","from":{"member":"01HZX000000000000000000001","agent":"b","member_name":"m"},"client_message_id":"x","broker_message_id":"01HZX000000000000000000002","destination_kind":"queue","destination_ref":"r","accepted_at":5,"envelope":{"v": 1}}"#;

    #[test]
    fn dr_06_what_is_taken_from_a_queue_keeps_its_bytes() {
        let text = format!(
            r#"{{"type":"reply","request":7,"result":"taken","items":[{{"delivery":{DELIVERY},"fence":3,"lease_ms":9,"delivery_count":2}}]}}"#
        );
        let frame = ServerFrame::parse(&text).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
    }

    #[test]
    fn dr_06_what_is_given_again_keeps_its_bytes() {
        let text = format!(
            r#"{{"type":"reply","request":7,"result":"held","items":[{{"delivery":{DELIVERY},"delivered_at":3,"acked_at":9}}],"gone":2,"next":{{"priority":1,"history_id":"1.2","agent":"a"}}}}"#
        );
        let frame = ServerFrame::parse(&text).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
    }

    #[test]
    fn dr_06_what_is_read_of_the_log_keeps_its_bytes() {
        let text = r#"{"type":"reply","request":7,"result":"log","epoch":3,"items":[{"history_id":"3.2","previous":"1.9","from":{"member":"01HZX000000000000000000001","agent":"b"},"client_message_id":"x","envelope":{"v": 1}}]}"#;
        let frame = ServerFrame::parse(text).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), text);
        let hint = r#"{"type":"log_grew"}"#;
        let frame = ServerFrame::parse(hint).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), hint);
        let ask =
            r#"{"type":"request","request":1,"body":{"what":"log_read","after":"1.9","limit":5}}"#;
        let frame = ClientFrame::parse(ask).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), ask);
    }

    #[test]
    fn a_roster_of_an_older_broker_is_read_without_queues_and_presence() {
        let text = r#"{"type":"roster","roster":{"members":[{"member":"01HZX000000000000000000001","name":"m","online":true}],"agents":[],"topics":[]}}"#;
        assert!(ServerFrame::parse(text).is_ok());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bad in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"type":7}"#,
            r#"{"type":"dance"}"#,
            r#"{"type":"send"}"#,
            r#"{"type":""#,
            r#"{"type":"sender","batch":1,"items":[]}"#,
            r#"{"type":"send","batch":-1,"items":[]}"#,
            r#"{"type":"ack","items":[{"history_id":"1","agent":"a"}]}"#,
            r#"{"type":"send","batch":1,"items":[{"agent":"a b","client_message_id":"x","envelope":{}}]}"#,
        ] {
            assert!(ClientFrame::parse(bad).is_err(), "{bad}");
            assert!(ServerFrame::parse(bad).is_err(), "{bad}");
        }
    }
}
