//! `request_effect`: asks a person to approve something that must happen once.

use heddle_wire::ipc::EffectRequestBody;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Done, ID, Session, TEXT, Tool, arguments, id};
use crate::cli::commands::effect::record::Record;

pub(super) const TOOL: Tool = Tool {
    name: "request_effect",
    description: "Ask a person to approve a deploy, migration, payment, … that must happen once. key names it for ever: same key, same effect. Then see effect_status.",
    arguments: &[
        ("key", TEXT),
        ("op", TEXT),
        ("target", TEXT),
        (
            "artifact_hash",
            r#"{"type":"string","description":"SHA-256 of the file, lower-case hex"}"#,
        ),
        ("run", TEXT),
        ID,
    ],
    required: &["key", "op", "target"],
    is_core: false,
    shows_mail: false,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    key: String,
    op: String,
    target: String,
    artifact_hash: Option<String>,
    run: Option<String>,
    id: Option<String>,
}

fn run(session: &Session, given: Value) -> Done {
    let given: Arguments = arguments(given)?;
    let body = EffectRequestBody {
        key: given.key,
        op: given.op,
        target: given.target,
        artifact_hash: given.artifact_hash,
        run: given.run,
        mesh: session.mesh(),
        agent: session.agent(),
    };
    let own_id = id(given.id);
    let client = session.client();
    let answer = client.request_effect(&body, own_id.as_deref())?;
    let record = Record::open(&session.context());
    if !answer.duplicate {
        record.requested(&body, &answer);
    }
    // An approval is good for who asked.
    let own = body.agent.as_deref();
    let own = own.map_or_else(String::new, |agent| format!(", with --agent {agent}"));
    let next = match answer.status.as_str() {
        "awaiting_approval" => format!(
            "A person runs `heddle effect approve {}` and gives you the nonce, good for you and for who approved it; then run `heddle effect run --key … --nonce NONCE -- command`{own}.",
            answer.request_id
        ),
        "approved" => format!("Run it with `heddle effect run --key … -- command`{own}."),
        "waiting_for_broker" => {
            "The mesh's broker is away; the request is made when it is back. Call effect_status later."
                .to_owned()
        }
        _ => "It has been used: nothing is to be run. Call effect_status.".to_owned(),
    };
    Ok(json!({
        "request_id": answer.request_id,
        "status": answer.status,
        "duplicate": answer.duplicate,
        "expires_at": answer.expires_at,
        "journal": record.told(),
        "next": next,
    }))
}
