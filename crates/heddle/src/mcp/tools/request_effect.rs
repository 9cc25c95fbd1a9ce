//! `request_effect`: asks a person to approve something that must happen once.

use heddle_core::approvers;
use heddle_core::shell::options;
use heddle_wire::client::ClientError;
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
    let record = Record::open(&session.context());
    let answer = client.request_effect(&body, own_id.as_deref());
    if let Err(ClientError::Problem(problem)) = &answer {
        let who = ("request", body.agent.as_deref());
        record.refused(Some(&body.key), who, problem);
    }
    let answer = answer?;
    if !answer.duplicate {
        record.requested(&body, &answer);
    }
    let context = session.context();
    let run = |nonce: &str| {
        let artifact = body.artifact_hash.as_ref().map_or("", |_| "FILE");
        let named = options(&[
            ("--key", &body.key),
            ("--op", &body.op),
            ("--target", &body.target),
            ("--run", body.run.as_deref().unwrap_or_default()),
            ("--artifact", artifact),
            ("--nonce", nonce),
            // An approval is good for who asked.
            ("--agent", body.agent.as_deref().unwrap_or_default()),
        ]);
        context.spelled(&format!("heddle effect run{named} -- COMMAND"))
    };
    let next = match answer.status.as_str() {
        "awaiting_approval" => {
            let (all, mesh) = (&answer.approvers, answer.mesh_id.as_str());
            let who = approvers::in_words(all, mesh);
            let approve = format!("heddle effect approve {}", answer.request_id);
            let approve = context.spelled(&approvers::run_by(all, mesh, &approve));
            format!(
                "A person{who} runs `{approve}` and gives you the nonce, good for you and for who approved it; then run `{}`.",
                run("NONCE")
            )
        }
        "approved" => format!(
            "Run it with `{}`; where a person has approved it, add the `--nonce` that they were shown.",
            run("")
        ),
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
        "approvers": answer.approvers,
        "journal": record.told(),
        "next": next,
    }))
}
