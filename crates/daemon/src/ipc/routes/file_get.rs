//! `GET /v1/file/get`: what is known of a file with its bytes where they are few, or the bytes alone.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use heddle_core::error_code::ErrorCode;
use heddle_core::file::ContentHash;
use heddle_core::limits::{FILE_FETCH_WAIT, FILE_JSON_BYTES_MAX};
use heddle_store::{BlobError, BlobReader, FileBytes, FileFind, FileRow};
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use http::HeaderMap;
use http::header::ACCEPT;
use serde::Deserialize;
use serde_json::{Value, json};

use super::file::{file_id, file_path, scope_peer, unknown_file, view};
use crate::files::{lost, read_problem, stream};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

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
    let mut row = find(&asked)
        .await?
        .ok_or_else(|| unknown_file(&asked.words))?;
    if row.bytes == FileBytes::Elsewhere {
        row = on_its_way(&asked, row).await?;
    }
    let wants_raw = query.raw || accepts_bytes(&parts.headers);
    match row.bytes {
        FileBytes::Elsewhere => Err(elsewhere(mesh, &row).into()),
        FileBytes::Inline => {
            let bytes = inline(&asked, &row).await?;
            if wants_raw {
                return Ok(stream::raw(Body::from(bytes), row.size));
            }
            ok(&with_bytes(mesh, &row, Some(bytes)))
        }
        FileBytes::Blob => {
            let place = Arc::clone(&ipc.load.files).try_acquire_owned();
            let place = place.map_err(|_| stream::no_place())?;
            if wants_raw {
                let reader = blob(&asked, &row).await?;
                return Ok(stream::answer(reader, place));
            }
            // A person who looks at a large file by mistake gets its name, not its bytes.
            if row.size > FILE_JSON_BYTES_MAX {
                return ok(&with_bytes(mesh, &row, None));
            }
            let reader = blob(&asked, &row).await?;
            let bytes = stream::whole(reader).await;
            let bytes = bytes.map_err(|error| read_problem(&error))?;
            ok(&with_bytes(mesh, &row, Some(bytes)))
        }
    }
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
            Some(again) if again.hash == row.hash => Err(elsewhere(asked.mesh, &again)),
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
        return Err(elsewhere(asked.mesh, &row));
    }
    let reader = stream::verified(&shared.blobs, &row).await;
    reader.map_err(|error| read_problem(&error))
}

fn with_bytes(
    mesh: &MeshState,
    row: &FileRow,
    bytes: Option<Vec<u8>>,
) -> heddle_wire::ipc::FileView {
    let mut view = view(mesh, row);
    view.content_base64 = bytes.map(|bytes| STANDARD.encode(bytes));
    view
}

fn elsewhere(mesh: &MeshState, row: &FileRow) -> Problem {
    let view = view(mesh, row);
    let so_far = match mesh.fetch.have(row.hash) {
        Some(have) => format!("; {have} of them have come so far, and the rest is on its way"),
        None => String::new(),
    };
    let detail = format!(
        "{:?} was shared by {}, and its {} bytes are not on this machine{so_far}",
        view.path, view.peer, view.size
    );
    Problem::new(ErrorCode::FileElsewhere, detail)
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
