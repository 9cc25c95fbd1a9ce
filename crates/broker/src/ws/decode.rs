//! Text becomes a client frame within bounds, or the reason why it is none.

use heddle_core::limits::{AGENTS_MAX, BATCH_ITEMS_MAX, PUSH_WINDOW_MAX};
use heddle_wire::broker::{ClientFrame, Request};

/// More than an honest daemon would ever send is not worth the work it asks for.
pub(super) fn client_frame(text: &str) -> Result<ClientFrame, &'static str> {
    let frame = ClientFrame::parse(text).map_err(|_| "not_a_frame")?;
    match &frame {
        ClientFrame::Send { items, .. } if items.len() > BATCH_ITEMS_MAX => Err("too_many_items"),
        ClientFrame::Ack { items } if items.len() > PUSH_WINDOW_MAX => Err("too_many_acks"),
        ClientFrame::Hello { agents, .. } if agents.len() > AGENTS_MAX => Err("too_many_agents"),
        ClientFrame::Request { body, .. } if list_len(body) > PUSH_WINDOW_MAX => {
            Err("too_many_items")
        }
        ClientFrame::Request {
            body: Request::UploadChunk { items, .. },
            ..
        } if items.len() > BATCH_ITEMS_MAX => Err("too_many_items"),
        _ => Ok(frame),
    }
}

/// The length of the list that a request holds, if it holds one.
fn list_len(request: &Request) -> usize {
    match request {
        Request::Receipts { items } => items.len(),
        Request::QueueAck { items, .. } | Request::QueueRelease { items, .. } => items.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_bounded_in_every_list_it_holds() {
        let send = |count| {
            let item = r#"{"agent":"a","client_message_id":"x","envelope":{"v":1}}"#;
            let items = vec![item; count].join(",");
            format!(r#"{{"type":"send","batch":1,"items":[{items}]}}"#)
        };
        let ack = |count| {
            let items = vec![r#"{"history_id":"1.1","agent":"a"}"#; count].join(",");
            format!(r#"{{"type":"ack","items":[{items}]}}"#)
        };
        let hello = |count| {
            let agents = vec![r#""a""#; count].join(",");
            let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
            format!(
                r#"{{"type":"hello","protocol":1,"mesh":"{id}","member":"{id}","member_name":"m","agents":[{agents}],"seen":"0.0"}}"#
            )
        };
        for (text, over, reason) in [
            (
                send(BATCH_ITEMS_MAX),
                send(BATCH_ITEMS_MAX + 1),
                "too_many_items",
            ),
            (
                ack(PUSH_WINDOW_MAX),
                ack(PUSH_WINDOW_MAX + 1),
                "too_many_acks",
            ),
            (hello(AGENTS_MAX), hello(AGENTS_MAX + 1), "too_many_agents"),
        ] {
            assert!(client_frame(&text).is_ok(), "{reason}");
            assert_eq!(client_frame(&over).err(), Some(reason));
        }
        assert_eq!(client_frame("{}").err(), Some("not_a_frame"));
    }
}
