//! `/v1/file/{share,list,delete,sweep}`: files that the agents of a mesh show each other, on this disk
//! first. Reading one is `file_get`.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use heddle_core::error_code::ErrorCode;
use heddle_core::file::{ContentHash, FilePath, FilePathError, MediaType};
use heddle_core::ids::OpId;
use heddle_core::lamport::PeerId;
use heddle_core::limits::{FILE_PATH_BYTES_MAX, SWEEP_GRACE};
use heddle_core::names::nfc;
use heddle_store::{
    Applied, BlobError, Blobs, FileBytes, FileFilter, FileFind, FileRow, Incoming, NewContent,
    NewFile,
};
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    ChangeAnswer, FileDeleteBody, FilePage, FileShareAnswer, FileShareBody, FileSharedEvent,
    FileView, SweepAnswer, SweepBody,
};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::{Value, json};

use super::data::{Asked, Change, Settled, address, stamp_view};
use super::memory::peer;
use super::send::agent;
use super::warnings;
use crate::events::Event;
use crate::files::source::Source;
use crate::files::{keep_problem, stream, sweep};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

pub(super) async fn share(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: FileShareBody = body::read(&parts, incoming).await?;
    let asked_for = ToShare::of(&body);
    let asked = Asked {
        verb: "file.share",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let ToShare {
        path,
        mime,
        content,
    } = match asked_for {
        Ok(asked_for) => asked_for,
        Err(problem) => return Err(change.refusal(problem).await.into()),
    };
    let given = content.hash();
    let room = change.if_there_is_room(());
    let place = Arc::clone(&ipc.load.files).try_acquire_owned();
    let read = match &place {
        Ok(_) => read_in(&ipc, content, room.is_ok()).await,
        Err(_) => Err(stream::no_place()),
    };
    let read = match read {
        Ok(read) => read,
        // What was shared may be gone by the time of an honest retry, and nobody is too busy for a known id.
        Err(problem) => {
            return match known_share(&change, (&path, given)).await? {
                Some(known) => ok(&known),
                None => Err(change.refusal(problem).await.into()),
            };
        }
    };
    let (hash, size) = (read.hash(), read.size());
    let fields = json!({"path": path.as_str(), "sha256": hash.to_string(), "size": size,
        "mime": mime.as_ref().map(MediaType::as_str)});
    let is_known = change.known().await?.is_some();
    let new = match room {
        Err(refusal) => Err(refusal),
        // The gate knows the answer; bytes that it will not need get no name.
        Ok(()) if is_known => Err(Problem::new(ErrorCode::Internal, "the id was forgotten")),
        // Its bytes are on the disk by now, and go again where they leave too little.
        Ok(()) => match ipc.shared.disk.refusal_for_a_file() {
            Some(refusal) => Err(refusal),
            None => Ok(NewFile {
                content: landed(read).await?,
                mime: mime.clone(),
            }),
        },
    };
    let store = &ipc.shared.store;
    let applied = store.share_file(change.key(&fields)?, path, new).await;
    let settled = change.settle(applied, || {
        Problem::new(ErrorCode::Internal, "nothing came")
    })?;
    let answer = share_answer(&change, &settled)?;
    if !settled.duplicate {
        let peer = address(change.mesh, settled.receipt.stamp.peer.as_str());
        let event = shared_event(&answer, peer, mime);
        ipc.shared.events.publish(Event::FileShared(event));
    }
    ok(&answer)
}

fn shared_event(
    answer: &FileShareAnswer,
    peer: String,
    mime: Option<MediaType>,
) -> FileSharedEvent {
    FileSharedEvent {
        mesh: answer.mesh.clone(),
        id: answer.id.clone(),
        path: answer.path.clone(),
        peer,
        sha256: answer.sha256.clone(),
        size: answer.size,
        mime: mime.map(|mime| mime.to_string()),
    }
}

/// What is to be shared.
struct ToShare {
    path: FilePath,
    mime: Option<MediaType>,
    content: Given,
}

impl ToShare {
    fn of(body: &FileShareBody) -> Result<Self, Problem> {
        let mime = body.mime.as_deref().map(MediaType::parse).transpose();
        Ok(Self {
            path: file_path(&body.path)?,
            mime: mime.map_err(|error| from_wire::invalid(error.to_string()))?,
            content: Given::of(body)?,
        })
    }
}

/// Where the content of a share is to be found.
enum Given {
    Bytes(Vec<u8>),
    From(String),
}

impl Given {
    fn of(body: &FileShareBody) -> Result<Self, Problem> {
        match (&body.content_base64, &body.from) {
            (Some(text), None) => {
                let bytes = STANDARD.decode(text);
                let bytes = bytes.map_err(|error| {
                    from_wire::invalid(format!("content_base64 is not base64: {error}"))
                })?;
                Ok(Self::Bytes(bytes))
            }
            (None, Some(from)) => Ok(Self::From(from.clone())),
            _ => Err(from_wire::invalid(
                "a share has either content_base64 or from, an absolute path on this machine",
            )),
        }
    }
}

impl Given {
    /// Of bytes that are here; a file must be read for it.
    fn hash(&self) -> Option<ContentHash> {
        match self {
            Self::Bytes(bytes) => Some(ContentHash::of(bytes)),
            Self::From(_) => None,
        }
    }
}

/// Content that was read to its end.
enum ReadIn {
    Kept(Incoming),
    /// There is no room for it: only who it is.
    Measured(ContentHash, u64),
}

impl ReadIn {
    fn hash(&self) -> ContentHash {
        match self {
            Self::Kept(incoming) => incoming.hash(),
            Self::Measured(hash, _) => *hash,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Kept(incoming) => incoming.size(),
            Self::Measured(_, size) => *size,
        }
    }
}

async fn read_in(ipc: &Arc<Ipc>, given: Given, keep: bool) -> Result<ReadIn, Problem> {
    let ipc = Arc::clone(ipc);
    let read = tokio::task::spawn_blocking(move || {
        let blobs = &ipc.shared.blobs;
        match given {
            Given::Bytes(bytes) => take(blobs, &mut &bytes[..], keep),
            Given::From(path) => {
                let mut source = Source::open(&path, &ipc.home)?;
                let read = take(blobs, &mut source, keep)?;
                source.check_unchanged()?;
                Ok(read)
            }
        }
    });
    let read = read.await;
    read.unwrap_or_else(|error| Err(Problem::new(ErrorCode::Internal, error.to_string())))
}

fn take(blobs: &Blobs, source: &mut dyn Read, keep: bool) -> Result<ReadIn, Problem> {
    let read = if keep {
        blobs.take_in(source).map(ReadIn::Kept)
    } else {
        Blobs::measure(source).map(|(hash, size)| ReadIn::Measured(hash, size))
    };
    read.map_err(|error| keep_problem(&error))
}

async fn landed(read: ReadIn) -> Result<NewContent, Problem> {
    let landed = stream::on_a_thread(move || match read {
        ReadIn::Kept(Incoming::Inline { bytes, .. }) => Ok(NewContent::Inline(bytes)),
        ReadIn::Kept(Incoming::Blob(landing)) => landing.land().map(NewContent::Blob),
        ReadIn::Measured(..) => Err(BlobError::Full),
    });
    landed.await.map_err(|error| keep_problem(&error))
}

/// The first answer to a share under this id of this path, if there was one.
async fn known_share(
    change: &Change<'_>,
    (path, hash): (&FilePath, Option<ContentHash>),
) -> Result<Option<FileShareAnswer>, Problem> {
    let Some(known) = change.known().await? else {
        return Ok(None);
    };
    let note = &known.receipt.note;
    let is_other = hash.is_some_and(|hash| note["sha256"] != hash.to_string());
    if note["path"] != path.as_str() || note["sha256"].is_null() || is_other {
        return Ok(None);
    }
    let settled = Settled {
        duplicate: true,
        receipt: known.receipt,
    };
    share_answer(change, &settled).map(Some)
}

fn share_answer(change: &Change<'_>, settled: &Settled) -> Result<FileShareAnswer, Problem> {
    let Settled { duplicate, receipt } = settled;
    let text = |name: &str| receipt.note[name].as_str().map(str::to_owned);
    let known = text("path").zip(text("sha256"));
    let known = known.zip(receipt.note["size"].as_u64());
    let ((path, sha256), size) =
        known.ok_or_else(|| Problem::new(ErrorCode::Internal, "the answer to this id was lost"))?;
    Ok(FileShareAnswer {
        client_message_id: change.id.to_string(),
        id: receipt.stamp.op.to_string(),
        path,
        sha256,
        size,
        replaced: text("replaced"),
        mesh: change.mesh.mesh.name.to_string(),
        agent: change.agent.to_string(),
        duplicate: *duplicate,
        durability: "local".to_owned(),
        stamp: stamp_view(&receipt.stamp, receipt.incarnation),
        at: receipt.at.to_rfc3339(),
        warnings: Vec::new(),
    })
}

pub(super) async fn delete(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: FileDeleteBody = body::read(&parts, incoming).await?;
    let asked = Asked {
        verb: "file.delete",
        id: body.client_message_id.as_deref(),
        mesh: body.mesh.as_deref(),
        agent: body.agent.as_deref(),
    };
    let change = Change::begin(&ipc, &parts.headers, asked).await?;
    let own = PeerId::new(&change.mesh.party(change.agent.clone()).to_string());
    let (find, fields) = match (&body.id, &body.path) {
        (Some(id), None) => {
            let id = match file_id(id) {
                Ok(id) => id,
                Err(problem) => return Err(change.refusal(problem).await.into()),
            };
            (FileFind::Id(id), json!({"id": id.to_string()}))
        }
        (None, Some(path)) => {
            let path = file_path(path)?;
            let fields = json!({"path": path.as_str()});
            (FileFind::Path(own, path), fields)
        }
        _ => return Err(from_wire::invalid("a delete has either id or path").into()),
    };
    let what = fields.clone();
    let store = &ipc.shared.store;
    let applied: Result<Applied<Problem>, _> = store
        .delete_file(change.key(&fields)?, find, not_the_owner)
        .await;
    let Settled { duplicate, receipt } = change.settle(applied, || unknown_file(&what))?;
    ipc.shared.file_deleted.notify_one();
    ok(&ChangeAnswer {
        client_message_id: change.id.to_string(),
        key: receipt.note["path"].as_str().unwrap_or_default().to_owned(),
        mesh: change.mesh.mesh.name.to_string(),
        agent: change.agent.to_string(),
        duplicate,
        durability: "local".to_owned(),
        stamp: stamp_view(&receipt.stamp, receipt.incarnation),
        at: receipt.at.to_rfc3339(),
        warnings: Vec::new(),
    })
}

fn not_the_owner(row: &FileRow) -> Problem {
    let detail = format!("{:?} is a file of another agent", row.path);
    Problem::new(ErrorCode::NotTheOwner, detail)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    prefix: String,
    scope: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
    agent: Option<String>,
    mesh: Option<String>,
}

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: ListQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    warnings::hears(mesh, &agent(&ipc, query.agent.as_deref())?);
    let prefix = nfc(&query.prefix);
    if prefix.len() > FILE_PATH_BYTES_MAX || prefix.chars().any(char::is_control) {
        let detail = "the prefix is too long or holds a control character; no path begins so";
        return Err(from_wire::invalid(detail).into());
    }
    let scope = query.scope.as_deref().unwrap_or("all");
    let peer = scope_peer(&ipc, mesh, scope, query.agent.as_deref())?;
    let after = query.cursor.as_deref().map(str::parse).transpose();
    let filter = FileFilter {
        mesh: mesh.mesh.mesh,
        peer,
        prefix,
        after: after.map_err(|_| from_wire::invalid("cursor is not one of a list"))?,
        limit: body::page_rows(query.limit)?,
    };
    let (store, left_out) = ipc.shared.store.leniently();
    let found = store.list_files(filter).await;
    let (rows, more) = found.map_err(|error| store_problem(&error))?;
    let last = rows.last().map(|row| row.place.to_string());
    ok(&FilePage {
        cursor: last.filter(|_| more),
        items: rows.iter().map(|row| listed(&ipc, mesh, row)).collect(),
        warnings: Vec::new(),
        left_out: ipc.shared.unreadable.left_out(&left_out),
    })
}

pub(super) async fn sweep_now(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: SweepBody = body::read(&parts, incoming).await?;
    let place = Arc::clone(&ipc.load.files).try_acquire_owned();
    let _place = place.map_err(|_| stream::no_place())?;
    let grace = body.grace_seconds.map_or(SWEEP_GRACE, Duration::from_secs);
    let swept = sweep::once(&ipc.shared, grace).await;
    let swept = swept.map_err(|error| store_problem(&error))?;
    ok(&SweepAnswer {
        blobs: swept.blobs,
        bytes: swept.bytes,
        young: swept.young,
        failed: swept.failed,
        tombstones: swept.tombstones,
    })
}

/// Whose files: `None` for everybody's.
pub(super) fn scope_peer(
    ipc: &Ipc,
    mesh: &MeshState,
    scope: &str,
    own: Option<&str>,
) -> Result<Option<PeerId>, Problem> {
    let peer = match scope {
        "all" => return Ok(None),
        "self" => mesh.party(agent(ipc, own)?).to_string(),
        other => peer(mesh, other)?,
    };
    Ok(Some(PeerId::new(&peer)))
}

pub(super) fn file_path(text: &str) -> Result<FilePath, Problem> {
    FilePath::parse(text).map_err(|error| {
        let problem = from_wire::invalid(error.to_string());
        match error {
            FilePathError::Absolute => problem.next(
                "Share it under a relative path; where it lies on this machine goes into `from`.",
            ),
            _ => problem,
        }
    })
}

pub(super) fn file_id(text: &str) -> Result<OpId, Problem> {
    let id = text.parse();
    id.map_err(|_| {
        from_wire::invalid("id is not the id of a file")
            .next("Use an id that `heddle file list` shows, or ask by path.")
    })
}

/// `what` is how it was asked for.
pub(super) fn unknown_file(what: &Value) -> Problem {
    let name = what["path"].as_str().or_else(|| what["id"].as_str());
    let detail = format!("no file is shared as {:?}", name.unwrap_or_default());
    Problem::new(ErrorCode::UnknownFile, detail)
}

/// One whose bytes were met as gone is not said to be here.
fn listed(ipc: &Ipc, mesh: &MeshState, row: &FileRow) -> FileView {
    let mut listed = view(mesh, row);
    let shared = &ipc.shared;
    if row.bytes == FileBytes::Blob && shared.gone.is(&shared.blobs, row.hash) {
        "gone".clone_into(&mut listed.content);
    }
    listed
}

pub(super) fn view(mesh: &MeshState, row: &FileRow) -> FileView {
    FileView {
        id: row.id().to_string(),
        path: row.path.clone(),
        peer: address(mesh, row.stamp.peer.as_str()),
        sha256: row.hash.to_string(),
        size: row.size,
        mime: row.mime.clone(),
        content: match row.bytes {
            FileBytes::Inline => "inline",
            FileBytes::Blob => "blob",
            FileBytes::Elsewhere => "elsewhere",
        }
        .to_owned(),
        content_base64: None,
        updated_at: row.updated_at.to_rfc3339(),
        stamp: stamp_view(&row.stamp, row.incarnation),
        stale: false,
        as_of: None,
        newer: None,
    }
}
