//! Text becomes a client frame, within bounds, or the reason why it is none.

use std::borrow::Cow;

use heddle_core::limits::{BATCH_ITEMS_MAX, PUSH_WINDOW_MAX};
use heddle_wire::broker::{ClientFrame, SendItem};
use serde::Deserialize;

use super::config::HELLO_AGENTS_MAX;

/// How our own daemons begin a batch, which is nearly every frame.
const SEND_HEAD: &str = r#"{"type":"send""#;

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// The frame of a batch by itself. The tagged enum cannot be read when it holds raw JSON: serde
/// buffers the fields of a tagged enum, and a raw value does not survive that.
#[derive(Deserialize)]
struct SendFrame {
    batch: u64,
    items: Vec<SendItem>,
}

pub(super) fn client_frame(text: &str) -> Result<ClientFrame, &'static str> {
    let is_send = text.starts_with(SEND_HEAD) || kind_of(text)? == "send";
    let frame = if is_send {
        serde_json::from_str(text)
            .map(|SendFrame { batch, items }| ClientFrame::Send { batch, items })
    } else {
        serde_json::from_str(text)
    };
    bounded(frame.map_err(|_| "not_a_frame")?)
}

fn kind_of(text: &str) -> Result<Cow<'_, str>, &'static str> {
    serde_json::from_str(text)
        .map(|Kind { kind }| kind)
        .map_err(|_| "not_a_frame")
}

/// More than an honest daemon would ever send is not worth the work it asks for.
fn bounded(frame: ClientFrame) -> Result<ClientFrame, &'static str> {
    match &frame {
        ClientFrame::Send { items, .. } if items.len() > BATCH_ITEMS_MAX => Err("too_many_items"),
        ClientFrame::Ack { items } if items.len() > PUSH_WINDOW_MAX => Err("too_many_acks"),
        ClientFrame::Hello { agents, .. } if agents.len() > HELLO_AGENTS_MAX => {
            Err("too_many_agents")
        }
        _ => Ok(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: &str = r#"{"agent":"a","client_message_id":"x","envelope":{"v": 1}}"#;

    #[test]
    fn a_batch_is_read_whatever_the_order_of_its_fields_and_keeps_its_bytes() {
        for text in [
            format!(r#"{{"type":"send","batch":7,"items":[{ITEM}]}}"#),
            format!(r#"{{ "batch":7,"items":[{ITEM}],"type":"send"}}"#),
        ] {
            let Ok(ClientFrame::Send { batch: 7, items }) = client_frame(&text) else {
                panic!("{text}");
            };
            assert_eq!(items[0].envelope.get(), r#"{"v": 1}"#);
        }
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
            r#"{"type":"sender","batch":1,"items":[]}"#,
            r#"{"type":"send","batch":-1,"items":[]}"#,
            r#"{"type":"ack","items":[{"history_id":"1","agent":"a"}]}"#,
            r#"{"type":"send","batch":1,"items":[{"agent":"a b","client_message_id":"x","envelope":{}}]}"#,
        ] {
            assert_eq!(client_frame(bad).err(), Some("not_a_frame"), "{bad}");
        }
        let items = vec![ITEM; BATCH_ITEMS_MAX + 1].join(",");
        let many = format!(r#"{{"type":"send","batch":1,"items":[{items}]}}"#);
        assert_eq!(client_frame(&many).err(), Some("too_many_items"));
    }
}
