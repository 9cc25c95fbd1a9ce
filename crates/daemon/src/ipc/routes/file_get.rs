//! `GET /v1/file/get`: what is known of a file with its bytes where they are few, or the bytes alone.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use heddle_core::error_code::ErrorCode;
use heddle_core::file::ContentHash;
use heddle_core::limits::{FILE_FETCH_WAIT, FILE_JSON_BYTES_MAX};
use heddle_store::{BlobError, BlobReader, FileBefore, FileBytes, FileFind, FileRow};
use heddle_wire::from_wire;
use heddle_wire::ipc::NewerFile;
use heddle_wire::problem::Problem;
use http::header::{ACCEPT, HeaderName};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::file::{file_id, file_path, scope_peer, unknown_file, view};
use super::inbox::Freshness;
use crate::files::{lost, read_problem, stream};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

/// Of bytes alone that may not be the last: up to when they were.
const STALE_AS_OF: HeaderName = HeaderName::from_static("heddle-stale-as-of");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GetQuery {
    id: Option<String>,
    path: Option<String>,
    scope: Option<String>,
    raw: bool,
    agent: Option<String>,
    mesh: Option<String>,
}

/// How a file was asked for.
struct Asked<'a> {
    ipc: &'a Ipc,
    mesh: &'a MeshState,
    find: FileFind,
    words: Value,
}

pub(super) async fn get(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, _) = request.into_parts();
    let query: GetQuery = body::query(&parts)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let asked = asked(&ipc, mesh, &query)?;
    let wants_raw = query.raw || accepts_bytes(&parts.headers);
    let Some(mut row) = find(&asked).await? else {
        // Asked for by the id that it had, it is that one and no other.
        let before = match asked.find {
            FileFind::Id(id) => {
                let store = &ipc.shared.store;
                store.file_before_by_id(mesh.mesh.mesh, id).await
            }
            FileFind::Path(..) => Ok(None),
        };
        let before = before.map_err(|error| store_problem(&error))?;
        let before = before.ok_or_else(|| unknown_file(&asked.words))?;
        return was(&asked, before, wants_raw).await;
    };
    if row.bytes == FileBytes::Elsewhere {
        row = on_its_way(&asked, row).await?;
    }
    if row.bytes == FileBytes::Elsewhere {
        let before = ipc.shared.store.file_before(mesh.mesh.mesh, &row).await;
        let before = before.map_err(|error| store_problem(&error))?;
        let problem = elsewhere(mesh, &row, before.as_ref());
        return match before {
            // An id means these bytes and no others; a path means the last that can be had (seed §14).
            Some(before) if is_by_path(&asked) && !mesh.is_answering() => {
                let was = was(&asked, before, wants_raw).await;
                // What cannot be read of it is not the fault of who asks for the file.
                was.map_err(|_| problem.into())
            }
            _ => Err(problem.into()),
        };
    }
    let fresh = Fresh::of(mesh, &row);
    if row.bytes == FileBytes::Inline {
        let bytes = inline(&asked, &row).await?;
        return inline_answer(mesh, (&row, &fresh), bytes, wants_raw);
    }
    blob_answer(&asked, (&row, &fresh), wants_raw, async |row| {
        blob(&asked, row).await
    })
    .await
}

/// How fresh what is read is (C29).
#[derive(Default)]
struct Fresh {
    stale: bool,
    as_of: Option<String>,
    newer: Option<NewerFile>,
}

impl Fresh {
    /// One's own is what one shared last; somebody else's only as far as the mesh is heard.
    fn of(mesh: &MeshState, row: &FileRow) -> Self {
        let own = format!("{}/", mesh.mesh.member);
        if row.stamp.peer.as_str().starts_with(&own) {
            return Self::default();
        }
        let Freshness { stale, as_of } = Freshness::of(mesh);
        Self {
            stale,
            as_of,
            newer: None,
        }
    }

    fn before(before: &FileBefore) -> Self {
        let newer_at = before.newer_at.to_rfc3339();
        Self {
            stale: true,
            as_of: Some(newer_at.clone()),
            newer: Some(NewerFile {
                id: before.newer.to_string(),
                updated_at: newer_at,
            }),
        }
    }

    fn mark(&self, mut answer: Response) -> Response {
        if self.stale {
            let as_of = self.as_of.as_deref().unwrap_or("unknown");
            let as_of = HeaderValue::from_str(as_of);
            let unknown = HeaderValue::from_static("unknown");
            let headers = answer.headers_mut();
            headers.insert(STALE_AS_OF, as_of.unwrap_or(unknown));
        }
        answer
    }
}

fn is_by_path(asked: &Asked<'_>) -> bool {
    matches!(asked.find, FileFind::Path(..))
}

/// A file as it was before its owner shared it anew.
async fn was(asked: &Asked<'_>, before: FileBefore, wants_raw: bool) -> Answered {
    let fresh = Fresh::before(&before);
    let row = &before.row;
    match before.content {
        Some(bytes) => inline_answer(asked.mesh, (row, &fresh), bytes, wants_raw),
        None => {
            let blobs = &asked.ipc.shared.blobs;
            blob_answer(asked, (row, &fresh), wants_raw, async |row| {
                let reader = stream::verified(blobs, row).await;
                reader.map_err(|error| read_problem(&error))
            })
            .await
        }
    }
}

fn inline_answer(
    mesh: &MeshState,
    of: (&FileRow, &Fresh),
    bytes: Vec<u8>,
    wants_raw: bool,
) -> Answered {
    if wants_raw {
        return Ok(of.1.mark(stream::raw(Body::from(bytes), of.0.size)));
    }
    ok(&with_bytes(mesh, of, Some(bytes)))
}

async fn blob_answer(
    asked: &Asked<'_>,
    of: (&FileRow, &Fresh),
    wants_raw: bool,
    open: impl AsyncFnOnce(&FileRow) -> Result<BlobReader, Problem>,
) -> Answered {
    let place = Arc::clone(&asked.ipc.load.files).try_acquire_owned();
    let place = place.map_err(|_| stream::no_place())?;
    if wants_raw {
        let reader = open(of.0).await?;
        return Ok(of.1.mark(stream::answer(reader, place)));
    }
    // A person who looks at a large file by mistake gets its name, not its bytes.
    if of.0.size > FILE_JSON_BYTES_MAX {
        return ok(&with_bytes(asked.mesh, of, None));
    }
    let reader = open(of.0).await?;
    let bytes = stream::whole(reader).await;
    let bytes = bytes.map_err(|error| read_problem(&error))?;
    ok(&with_bytes(asked.mesh, of, Some(bytes)))
}

fn asked<'a>(ipc: &'a Ipc, mesh: &'a MeshState, query: &GetQuery) -> Result<Asked<'a>, Problem> {
    let (find, words) = match (&query.id, &query.path) {
        (Some(id), None) if query.scope.is_none() => {
            (FileFind::Id(file_id(id)?), json!({"id": id}))
        }
        (None, Some(path)) => {
            let path = file_path(path)?;
            let scope = query.scope.as_deref().unwrap_or("self");
            let peer = scope_peer(ipc, mesh, scope, query.agent.as_deref())?;
            let peer = peer.ok_or_else(|| {
                from_wire::invalid("a path is somebody's; the scope `all` names nobody")
                    .next("Give the owner as the scope; `heddle file list` shows who that is.")
            })?;
            let words = json!({"path": path.as_str()});
            (FileFind::Path(peer, path), words)
        }
        _ => {
            return Err(from_wire::invalid(
                "a file is asked for by id, or by path and, where it is not your own, scope",
            ));
        }
    };
    Ok(Asked {
        ipc,
        mesh,
        find,
        words,
    })
}

async fn find(asked: &Asked<'_>) -> Result<Option<FileRow>, Problem> {
    let store = &asked.ipc.shared.store;
    let found = store.find_file(asked.mesh.mesh.mesh, asked.find.clone());
    found.await.map_err(|error| store_problem(&error))
}

/// Waits a little for bytes that are being fetched. Without a connection nobody brings them.
async fn on_its_way(asked: &Asked<'_>, row: FileRow) -> Result<FileRow, Problem> {
    // Those who wait are few, as those who read are: nobody else is kept out by them.
    let Ok(_place) = asked.ipc.load.files.try_acquire() else {
        return Ok(row);
    };
    let fetch = &asked.mesh.fetch;
    let mut arrivals = fetch.arrivals();
    let end = tokio::time::sleep(FILE_FETCH_WAIT);
    tokio::pin!(end);
    let mut row = row;
    fetch.wake();
    while asked.mesh.is_connected() {
        row = find(asked)
            .await?
            .ok_or_else(|| unknown_file(&asked.words))?;
        if row.bytes != FileBytes::Elsewhere {
            break;
        }
        let shutdown = &asked.ipc.shared.shutdown;
        let is_over = tokio::select! {
            changed = arrivals.changed() => changed.is_err(),
            () = &mut end => true,
            () = shutdown.cancelled() => true,
        };
        if is_over {
            break;
        }
    }
    Ok(row)
}

async fn inline(asked: &Asked<'_>, row: &FileRow) -> Result<Vec<u8>, Problem> {
    let store = &asked.ipc.shared.store;
    let bytes = store.file_content(asked.mesh.mesh.mesh, row).await;
    let bytes = bytes.map_err(|error| store_problem(&error))?;
    // Shared anew or deleted between the two looks.
    let bytes = bytes.ok_or_else(|| unknown_file(&asked.words))?;
    if ContentHash::of(&bytes) != row.hash {
        let why = "its row holds other bytes".to_owned();
        let hash = row.hash;
        return Err(read_problem(&BlobError::Damaged { hash, why }));
    }
    Ok(bytes)
}

async fn blob(asked: &Asked<'_>, row: &FileRow) -> Result<BlobReader, Problem> {
    match stream::verified(&asked.ipc.shared.blobs, row).await {
        Ok(reader) => Ok(reader),
        Err(error @ BlobError::Missing { .. }) => match find(asked).await? {
            Some(again) if again.bytes == FileBytes::Blob && again.hash == row.hash => {
                fetched_again(asked, row, &error).await
            }
            // Lost a moment ago, and wanted since.
            Some(again) if again.hash == row.hash => Err(elsewhere(asked.mesh, &again, None)),
            // Deleted between the two looks.
            _ => Err(unknown_file(&asked.words)),
        },
        Err(error) => fetched_again(asked, row, &error).await,
    }
}

/// The blob, after its bytes were found gone or wrong: fetched again from a member who has them, if there may be one.
async fn fetched_again(
    asked: &Asked<'_>,
    row: &FileRow,
    error: &BlobError,
) -> Result<BlobReader, Problem> {
    let problem = read_problem(error);
    let shared = &asked.ipc.shared;
    if !lost(shared, asked.mesh, (row.hash, row.size), error).await {
        return Err(problem);
    }
    let wanted = FileRow {
        bytes: FileBytes::Elsewhere,
        ..row.clone()
    };
    let row = on_its_way(asked, wanted).await?;
    if row.bytes != FileBytes::Blob {
        return Err(elsewhere(asked.mesh, &row, None));
    }
    let reader = stream::verified(&shared.blobs, &row).await;
    reader.map_err(|error| read_problem(&error))
}

fn with_bytes(
    mesh: &MeshState,
    (row, fresh): (&FileRow, &Fresh),
    bytes: Option<Vec<u8>>,
) -> heddle_wire::ipc::FileView {
    let mut view = view(mesh, row);
    view.content_base64 = bytes.map(|bytes| STANDARD.encode(bytes));
    view.stale = fresh.stale;
    view.as_of.clone_from(&fresh.as_of);
    view.newer.clone_from(&fresh.newer);
    view
}

fn elsewhere(mesh: &MeshState, row: &FileRow, before: Option<&FileBefore>) -> Problem {
    let view = view(mesh, row);
    let so_far = match mesh.fetch.have(row.hash) {
        Some(have) => format!("; {have} of them have come so far, and the rest is on its way"),
        None => String::new(),
    };
    let detail = format!(
        "{:?} was shared by {}, and its {} bytes are not on this machine{so_far}",
        view.path, view.peer, view.size
    );
    let problem = match before {
        Some(before) => Problem::new(ErrorCode::FileElsewhere, detail)
            .with("before", before.row.id().to_string())
            .next("It is fetched as soon as somebody who has it is connected: try again then. What it was before is here, under the id `before`."),
        None => Problem::new(ErrorCode::FileElsewhere, detail),
    };
    problem
        .with("id", view.id)
        .with("path", view.path)
        .with("peer", view.peer)
        .with("sha256", view.sha256)
        .with("size", view.size)
}

fn accepts_bytes(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| {
        let mut kinds = accept.split(',');
        kinds.any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/octet-stream")
        })
    })
}
