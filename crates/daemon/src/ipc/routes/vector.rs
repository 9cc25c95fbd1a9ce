//! `/v1/vector/{store,search,delete,list}`: texts by nearness, on this disk first.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::data::{DataError, DataValue};
use heddle_core::ids::MeshId;
use heddle_core::limits::{RESPONSE_BYTES_MAX, VECTOR_HITS_DEFAULT, VECTOR_HITS_MAX};
use heddle_core::op::{NewVector, VectorContent};
use heddle_core::vector::{Embedding, ModelFingerprint, ModelIdentity, Scan};
use heddle_store::{Applied, ModelRow, Store, VectorCursor, VectorFilter, VectorQuery, VectorRow};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    VectorDeleteBody, VectorHits, VectorPage, VectorSearchBody, VectorStoreBody, VectorView,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::{Value, json};

use super::data::{Asked, Change, address, data_key, data_problem, stamp_view, stored_value};
use super::send::agent;
use super::warnings;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;
use crate::vectors::{ModelRef, check_length};

/// Of a page's bytes, what its contents may take; keys and stamps need the rest.
const CONTENT_BYTES_MAX: usize = RESPONSE_BYTES_MAX / 8;

pub(super) async fn store(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: VectorStoreBody = body::read(&parts, incoming).await?;
    let key = data_key(&body.key)?;
    let refused = |error: DataError| data_problem(&error);
    let content = VectorContent::new(body.content.clone()).map_err(refused)?;
    let metadata = body.metadata.clone().unwrap_or(Value::Null);
    let kept = DataValue::new(&metadata).map_err(refused)?;
    let given = body.embedding.as_deref().map(embedding).transpose()?;
    let asked = Asked {
        verb: "vector.store",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let fields = json!({
        "key": key.as_str(), "content": body.content, "metadata": metadata,
        "model": body.model, "embedding": body.embedding,
    });
    let id = change.key(&fields)?;
    let store = &ipc.shared.store;
    let embedder = &ipc.shared.embedder;
    let model = body.model.as_deref();
    let (identity, embedding) = match given {
        Some(embedding) => match embedder.given(model, embedding.dim()) {
            Ok(identity) => (identity, embedding),
            Err(problem) => {
                let known = change.before(&id).await?.ok_or(problem)?;
                return ok(&change.answer(&key, Ok(known))?);
            }
        },
        None => {
            // A known id is answered without asking a provider, which may be slow, dear, or gone.
            let known = store.store_vector(id.clone(), key.clone(), Err(())).await;
            if let Some(known) = known.map_or_else(|error| Some(Err(error)), known_before) {
                return ok(&change.answer(&key, known)?);
            }
            embedder
                .embed(embedder.maker(model)?, &body.content)
                .await?
        }
    };
    let new = NewVector::new(identity, embedding, content, kept);
    let new = new.map_err(|error| from_wire::invalid(error.to_string()))?;
    let applied = store.store_vector(id, key.clone(), change.if_there_is_room(new));
    ok(&change.answer(&key, applied.await)?)
}

/// What a look at the gate says of a key that is taken.
fn known_before<E>(applied: Applied<()>) -> Option<Result<Applied<Problem>, E>> {
    match applied {
        Applied::Fresh(receipt) => Some(Ok(Applied::Fresh(receipt))),
        Applied::Duplicate(receipt) => Some(Ok(Applied::Duplicate(receipt))),
        Applied::Conflict { stored, at } => Some(Ok(Applied::Conflict { stored, at })),
        Applied::Absent | Applied::Refused(()) => None,
    }
}

fn embedding(numbers: &[f64]) -> Result<Embedding, Problem> {
    Embedding::from_doubles(numbers).map_err(|error| from_wire::invalid(error.to_string()))
}

pub(super) async fn delete(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: VectorDeleteBody = body::read(&parts, incoming).await?;
    let key = data_key(&body.key)?;
    let asked = Asked {
        verb: "vector.delete",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let id = change.key(&json!({"key": key.as_str(), "model": body.model}))?;
    let model = match &body.model {
        None => Ok(None),
        Some(model) => {
            let mesh = ipc.shared.mesh(body.mesh.as_deref())?.mesh.mesh;
            let (store, left_out) = ipc.shared.store.leniently();
            let found = called((&store, mesh), model).await;
            ipc.shared.unreadable.left_out(&left_out);
            // Where no vector is of it, none is under this key.
            found.and_then(|found| {
                found
                    .map(Some)
                    .ok_or_else(|| super::data::unknown_key(&key))
            })
        }
    };
    let applied = match model {
        Ok(model) => ipc.shared.store.delete_vector(id, key.clone(), model).await,
        // The model may have gone since the first time.
        Err(problem) => Ok(change.before(&id).await?.ok_or(problem)?),
    };
    ok(&change.answer(&key, applied)?)
}

/// The model that has vectors in the mesh and is called so, or has this fingerprint: that one needs no row that can be read.
pub(super) async fn called(
    (store, mesh): (&Store, MeshId),
    model: &str,
) -> Result<Option<ModelFingerprint>, Problem> {
    let found = ModelRef::parse(model)?.among(&models(store).await?)?;
    if found.is_some() {
        return Ok(found);
    }
    let Ok(print) = model.parse::<ModelFingerprint>() else {
        return Ok(None);
    };
    let has = store.has_vectors_of(mesh, print).await;
    Ok(has.map_err(|error| store_problem(&error))?.then_some(print))
}

pub(super) async fn search(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: VectorSearchBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, body.agent.as_deref())?);
    let limit = body.limit.unwrap_or(VECTOR_HITS_DEFAULT);
    if limit == 0 || limit > VECTOR_HITS_MAX {
        let why = format!("limit is 1 to {VECTOR_HITS_MAX}");
        return Err(from_wire::invalid(why).into());
    }
    let embedder = &ipc.shared.embedder;
    let (store, left_out) = ipc.shared.store.leniently();
    let model = body.model.as_deref();
    let (identity, embedding) = match (&body.query, &body.embedding) {
        (Some(text), None) => embedder.embed(embedder.maker(model)?, text).await?,
        (None, Some(numbers)) => {
            let embedding = embedding(numbers)?;
            let identity = embedder.given(model, embedding.dim())?;
            check_length(&models(&store).await?, &identity)?;
            (identity, embedding)
        }
        _ => {
            return Err(from_wire::invalid("ask with a query or with an embedding")
                .next("Send one of the two.")
                .into());
        }
    };
    let scan = match body.exact {
        Some(true) => Scan::Exact,
        _ => Scan::Sketched,
    };
    let query = VectorQuery {
        mesh: mesh.mesh.mesh,
        model: identity.clone(),
        embedding,
        scan,
        limit,
    };
    let began = ipc.shared.clock.mono();
    let hits = store.search_vectors(query).await;
    let hits = hits.map_err(|error| store_problem(&error))?;
    let took = ipc.shared.clock.mono().saturating_sub(began);
    metrics::histogram!("heddle_vector_search_seconds").record(took.as_secs_f64());
    note_read((&ipc, &store), &identity, !hits.is_empty()).await?;
    let under_other_models = if hits.len() < limit {
        let counts = store.count_vectors(mesh.mesh.mesh, String::new()).await;
        let counts = counts.map_err(|error| store_problem(&error))?;
        let others = counts
            .iter()
            .filter(|one| one.model != identity.fingerprint());
        others.map(|one| one.all).sum()
    } else {
        0
    };
    let items = hits.iter().map(|hit| {
        let distance = Some(f64::from(hit.distance));
        view(mesh, &hit.row, identity.to_string(), distance)
    });
    ok(&VectorHits {
        items: items.collect::<Result<_, _>>()?,
        model: identity.to_string(),
        under_other_models,
        warnings: Vec::new(),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

/// A model that was left stays as long as somebody asks for it; one whose row was lost is called by whoever finds something.
async fn note_read(
    (ipc, store): (&Ipc, &Store),
    identity: &ModelIdentity,
    is_found: bool,
) -> Result<(), Problem> {
    let models = models(store).await?;
    let known = models.iter().find(|model| model.identity == *identity);
    let now = ipc.shared.clock.wall();
    let noted = match known {
        Some(model) if model.left_at.is_some() => {
            store.note_vector_read(identity.fingerprint(), now).await
        }
        None if is_found => store.know_vector_model(identity.clone(), now).await,
        _ => return Ok(()),
    };
    noted.map_err(|error| store_problem(&error))
}

/// Those that can be read; the others are noted by the lenient store that is asked.
async fn models(store: &Store) -> Result<Vec<ModelRow>, Problem> {
    let models = store.vector_models().await;
    models.map_err(|error| store_problem(&error))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    model: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
    agent: Option<String>,
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    let (store, left_out) = ipc.shared.store.leniently();
    let mut filter = VectorFilter {
        mesh: mesh.mesh.mesh,
        model: None,
        model_not: None,
        peer: None,
        peer_prefix: String::new(),
        after: cursor(query.cursor.as_deref())?,
        limit: body::page_rows(query.limit)?,
        bytes_max: CONTENT_BYTES_MAX,
    };
    if let Some(model) = &query.model {
        filter.model = called((&store, filter.mesh), model).await?;
        if filter.model.is_none() {
            let items = Vec::new();
            return ok(&VectorPage {
                items,
                cursor: None,
                warnings: Vec::new(),
                left_out: ipc.shared.unreadable.left_out(&left_out),
            });
        }
    }
    let models = models(&store).await?;
    let found = store.list_vectors(filter).await;
    let (rows, more) = found.map_err(|error| store_problem(&error))?;
    let name = |row: &VectorRow| name(&models, row.model);
    let items = rows.iter().map(|row| view(mesh, row, name(row), None));
    ok(&VectorPage {
        items: items.collect::<Result<_, _>>()?,
        cursor: rows.last().filter(|_| more).map(cursor_of),
        warnings: Vec::new(),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

fn name(models: &[ModelRow], model: ModelFingerprint) -> String {
    let mut identities = models.iter().map(|row| &row.identity);
    let identity = identities.find(|identity| identity.fingerprint() == model);
    identity.map_or_else(|| model.to_string(), ToString::to_string)
}

/// A place in the list, as text that nobody has to understand.
pub(super) fn cursor_of(row: &VectorRow) -> String {
    json!([row.key, row.stamp.peer.as_str(), row.model.to_string()]).to_string()
}

pub(super) fn cursor(text: Option<&str>) -> Result<VectorCursor, Problem> {
    let Some(text) = text else {
        return Ok(VectorCursor::default());
    };
    let parts: Result<(String, String, String), _> = serde_json::from_str(text);
    let (key, peer, model) =
        parts.map_err(|_| from_wire::invalid("cursor is not one of a list"))?;
    Ok(VectorCursor { key, peer, model })
}

fn view(
    mesh: &MeshState,
    row: &VectorRow,
    model: String,
    distance: Option<f64>,
) -> Result<VectorView, Problem> {
    Ok(VectorView {
        key: row.key.clone(),
        content: row.content.clone(),
        metadata: stored_value(&row.metadata)?,
        model,
        peer: address(mesh, row.stamp.peer.as_str()),
        updated_at: row.updated_at.to_rfc3339(),
        stamp: stamp_view(&row.stamp, row.incarnation),
        distance,
    })
}
