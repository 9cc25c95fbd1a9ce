//! What an agent lost since its last call, told with its next answer (DESIGN §13.6).
//!
//! IMPORTANT: [`tell`] is the only place where a warning comes to count as told, and it stands behind every handler: it
//! puts what it takes into the very answer that goes out, whether that is what was asked for or a refusal. A handler only
//! says who it answers.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use heddle_core::names::{AgentName, MeshName};
use heddle_store::{Loss, LossAbout, LossSide, LostValue};
use heddle_wire::ipc::{WarningSide, WarningView, WarningsView};
use heddle_wire::problem::PROBLEM_JSON;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::Value;

use super::data::address;
use super::lost_claim::{self, Holder};
use super::lost_write;
use super::send::agent;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::lock;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Query {
    agent: Option<String>,
    mesh: Option<String>,
}

/// For whoever has sent: the answer to a send carries none, so that it costs nothing (ADR 9).
pub(super) async fn get(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: Query = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let own = agent(&ipc, query.agent.as_deref())?;
    hears(mesh, &own);
    let warnings = Vec::new();
    ok(&WarningsView { warnings })
}

tokio::task_local! {
    /// Whom the request of this task is answered to, as soon as that is known.
    static HEARS: Mutex<Option<(MeshName, AgentName)>>;
}

/// This agent gets the answer, so it is told what it has lost in that mesh.
pub(super) fn hears(mesh: &MeshState, agent: &AgentName) {
    // Outside of a request nobody is answered.
    let _ = HEARS.try_with(|hears| {
        *lock(hears) = Some((mesh.mesh.name.clone(), agent.clone()));
    });
}

/// Around every route: what the agent is to be told goes out with its answer.
pub(super) async fn tell(State(ipc): State<Arc<Ipc>>, request: Request, next: Next) -> Response {
    let answering = async move {
        let response = next.run(request).await;
        (response, HEARS.with(|hears| lock(hears).take()))
    };
    let (response, hears) = HEARS.scope(Mutex::default(), answering).await;
    let Some((mesh, agent)) = hears.filter(|_| is_object(&response)) else {
        return response;
    };
    let Ok(mesh) = ipc.shared.mesh(Some(mesh.as_str())) else {
        return response;
    };
    let told = take(&ipc, mesh, &agent).await;
    if told.is_empty() {
        return response;
    }
    with(response, &told).await
}

/// Our JSON answers and our problems are objects; bytes of a file, a text or a stream are not.
fn is_object(response: &Response) -> bool {
    let media = response.headers().get(CONTENT_TYPE);
    let media = media.and_then(|media| media.to_str().ok());
    matches!(media, Some("application/json" | PROBLEM_JSON))
}

/// The same answer with the warnings in it.
async fn with(response: Response, told: &[WarningView]) -> Response {
    let (mut parts, body) = response.into_parts();
    // They were made in memory, by us: reading them again cannot fail.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let bytes = match (answer.as_object_mut(), serde_json::to_value(told)) {
        (Some(fields), Ok(told)) => {
            fields.insert("warnings".to_owned(), told);
            serde_json::to_vec(&answer).unwrap_or_default()
        }
        _ => {
            tracing::error!("an answer could not carry its warnings");
            bytes.to_vec()
        }
    };
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(bytes))
}

/// One look at an index for most calls. From here on they count as told.
async fn take(ipc: &Ipc, mesh: &MeshState, agent: &AgentName) -> Vec<WarningView> {
    let now = ipc.shared.clock.wall();
    let taken = ipc
        .shared
        .store
        .take_warnings(mesh.mesh.mesh, agent.clone(), now)
        .await;
    match taken {
        Ok(losses) => {
            let first = ipc.shared.meshes.first().map(|first| first.mesh.mesh);
            let mut told = Vec::new();
            for loss in losses {
                let holder = holder(ipc, mesh, agent, &loss).await;
                let mut warning = view(mesh, loss, holder);
                // Whoever runs it as it stands means this mesh.
                if first != Some(mesh.mesh.mesh) {
                    warning.next = in_mesh(&warning.next, mesh.mesh.name.as_str());
                }
                told.push(warning);
            }
            told
        }
        // The answer itself is worth more; what could not be read now is told later.
        Err(error) => {
            tracing::warn!(%error, "warnings could not be read");
            Vec::new()
        }
    }
}

/// Every command in the words with the mesh that it is about.
fn in_mesh(words: &str, mesh: &str) -> String {
    let parts = words.split('`').enumerate().map(|(place, part)| {
        if place % 2 == 1 {
            format!("{part} --mesh {mesh}")
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Who holds the task of a lost claim by now.
async fn holder(ipc: &Ipc, mesh: &MeshState, agent: &AgentName, loss: &Loss) -> Holder {
    let LossAbout::Task { id, .. } = &loss.about else {
        return Holder::Nobody;
    };
    let Ok(id) = id.parse() else {
        return Holder::Nobody;
    };
    let row = ipc.shared.store.task(mesh.mesh.mesh, id).await;
    let claim = row.ok().flatten().and_then(|row| row.task.claim);
    let own = mesh.party(agent.clone()).to_string();
    match claim {
        None => Holder::Nobody,
        Some(claim) if claim.by.as_str() == own => Holder::You,
        Some(claim) => Holder::Other(address(mesh, claim.by.as_str())),
    }
}

fn view(mesh: &MeshState, loss: Loss, holder: Holder) -> WarningView {
    let by = address(mesh, &loss.theirs.peer);
    let (message, next, named) = match loss.about {
        LossAbout::Task { id, title } => {
            // In one's own name twice: this home was put back from an older copy, and does not know its other one.
            let by = if loss.yours.peer == loss.theirs.peer {
                lost_claim::OWN_NAME
            } else {
                &by
            };
            let (message, next) = lost_claim::words(loss.kind, &title, by, &holder);
            (message, next.replace("ID", &id), (id, title, None))
        }
        LossAbout::Write { key, left_out } => {
            let sides = (&loss.yours, &loss.theirs, loss.now.as_ref());
            let words = lost_write::words(loss.kind, (&key, left_out), sides, &by);
            let named = (String::new(), key.clone(), Some(key));
            (words.message, words.next, named)
        }
    };
    let (task_id, title, key) = named;
    WarningView {
        kind: loss.kind.as_str().to_owned(),
        task_id,
        title,
        key,
        by_peer: by,
        at_lamport: loss.theirs.lamport,
        yours: side(mesh, loss.yours),
        theirs: side(mesh, loss.theirs),
        stands: loss.now.map(|now| side(mesh, now)),
        message,
        next,
    }
}

fn side(mesh: &MeshState, side: LossSide) -> WarningSide {
    let mut view = WarningSide {
        peer: address(mesh, &side.peer),
        lamport: side.lamport,
        ..WarningSide::default()
    };
    match side.value {
        None => {}
        Some(LostValue::Deleted) => view.deleted = true,
        // It was canonical JSON when it was kept.
        Some(LostValue::Whole(text)) => view.value = serde_json::from_str(&text).ok(),
        Some(LostValue::Begins(text, bytes)) => {
            view.value_begins = Some(text);
            view.value_bytes = Some(bytes);
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_warning_names_the_mesh_that_it_is_about() {
        let words = "Stop; `heddle task ready` shows more, `heddle task show T` too.";
        assert_eq!(
            in_mesh(words, "team"),
            "Stop; `heddle task ready --mesh team` shows more, `heddle task show T --mesh team` too."
        );
    }

    #[tokio::test]
    async fn an_answer_carries_its_warnings_whatever_it_is() {
        let told = [WarningView {
            stands: None,
            kind: "task_cancelled".to_owned(),
            ..WarningView::default()
        }];
        for (status, media) in [(200, "application/json"), (409, PROBLEM_JSON)] {
            let mut response = Response::new(Body::from(r#"{"a":1,"warnings":[]}"#));
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            let media = http::HeaderValue::from_static(media);
            response.headers_mut().insert(CONTENT_TYPE, media);
            assert!(is_object(&response));
            let response = with(response, &told).await;
            assert_eq!(response.status(), status);
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(answer["a"], 1);
            assert_eq!(answer["warnings"][0]["type"], "task_cancelled");
        }
        let bytes = Response::new(Body::from("bytes of a file"));
        assert!(!is_object(&bytes), "what cannot carry them takes none");
    }
}
