//! `send_message`: one durable send; the same id again is always safe.

use heddle_wire::ipc::SendBody;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Done, ID, Session, TEXT, Tool, arguments, id};

pub(super) const TOOL: Tool = Tool {
    name: "send_message",
    description: "Send to @agent, @member/agent, #topic or queue:name. Durable when it returns.",
    arguments: &[
        ("to", TEXT),
        ("text", TEXT),
        ("priority", r#"{"enum":["now","next","low"]}"#),
        ("reply_to", TEXT),
        ID,
    ],
    required: &["to", "text"],
    is_core: true,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    to: String,
    text: String,
    priority: Option<String>,
    reply_to: Option<String>,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let reply_to = given.reply_to.clone();
    let answer = session.client().send(&SendBody {
        to: given.to,
        message: given.text,
        priority: given.priority,
        reply_to_id: given.reply_to,
        client_message_id: id(given.id),
        mesh: session.mesh(),
        agent: session.agent(),
        ..SendBody::default()
    })?;
    let mut told = json!({
        "id": answer.client_message_id,
        "durability": answer.durability,
        "duplicate": answer.duplicate.unwrap_or(false),
    });
    if let Some(lost) = &answer.lost {
        told["lost"] = json!(lost.state);
        told["next"] = json!(answer.next);
    }
    let strange = reply_to.filter(|id| !id.is_empty() && answer.duplicate != Some(true));
    if let Some(id) = strange
        && let Ok(known) = session.client().known(&session.query(&[("id", &id)]))
        && !known.known
    {
        let instead = known.instead.as_deref();
        let next = match instead {
            Some(meant) => format!("Reply to {meant:?} next time; that is its id."),
            None => "Take the id from check_messages.".to_owned(),
        };
        told["warnings"] = json!([{
            "type": "reply_to_unknown",
            "message": format!("it was sent, but this mailbox knows no message {id:?}, so it may be shown as a reply to nothing"),
            "next": next,
        }]);
        told["reply_to_unknown"] = json!(known.instead.unwrap_or(id));
    }
    Ok(told)
}
