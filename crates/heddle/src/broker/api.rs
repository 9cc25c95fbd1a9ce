//! The HTTP door of a team broker (local-first §9): `POST /api/my/meshes`, `POST /api/my/meshes/SLUG/invites` and
//! `POST /api/my/meshes/SLUG/snapshot/…`.
//!
//! The operator, who holds the admin token, makes meshes and invitations. Whoever holds the daemons' token may bring
//! a mesh of its own and own it here. Every call may come again: it changes nothing then.

use heddle_broker::members::Members as _;
use heddle_broker::storage::{Queues as _, Storage as _, StorageError, Upkeep as _};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{BrokerId, MeshId, Party};
use heddle_core::limits::{HELLO_TIMEOUT, INVITE_LIFE_DEFAULT, REQUEST_BYTES_MAX};
use heddle_core::membership::Role;
use heddle_core::names::MeshName;
use heddle_wire::broker::{BrokerInviteBody, RegisterMeshAnswer, RegisterMeshBody, RegisterOwner};
use heddle_wire::problem::Problem;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, ORIGIN};
use hyper::{Method, Request, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::door::{Door, Entry, Page, is_bearer, page, refusing};
use super::invites::{InviteError, InviteSpec, Source, make, refuse_keyless};
use super::pages::Pages;
use super::snapshot;
use crate::cli::parse_seconds;

pub const PREFIX: &str = "/api/";
const MESHES: &str = "/api/my/meshes";

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Operator,
    Daemon,
}

impl From<InviteError> for Box<Problem> {
    fn from(error: InviteError) -> Self {
        Self::new(match error {
            InviteError::Refused(code, why) => Problem::new(code, why),
            InviteError::Storage(error) => storage(error),
        })
    }
}

pub(super) type Answered = Result<Page, Box<Problem>>;

pub(super) fn no(code: ErrorCode, why: impl Into<String>) -> Box<Problem> {
    Box::new(Problem::new(code, why.into()))
}

fn storage(error: StorageError) -> Problem {
    if let StorageError::TopicFull(_) = error {
        return Problem::new(ErrorCode::InvalidRequest, error.to_string())
            .next("Unsubscribe some of them, then send it again; what was done of it stays.");
    }
    Problem::new(ErrorCode::StorageUnavailable, error.to_string())
        .next("Nothing is half done: send it again in a moment.")
}

pub(super) fn broken(error: StorageError) -> Box<Problem> {
    Box::new(storage(error))
}

pub async fn answer(door: &Door, pages: &Pages, request: Request<Incoming>) -> Page {
    match route(door, pages, request).await {
        Ok(page) => page,
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            refusing(shown(status, &*problem, "application/problem+json"), "POST")
        }
    }
}

pub(super) fn shown(status: StatusCode, body: &impl Serialize, kind: &'static str) -> Page {
    let text = serde_json::to_string(body).unwrap_or_default();
    let mut page = page(status, &format!("{text}\n"));
    let headers = page.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}

async fn route(door: &Door, pages: &Pages, request: Request<Incoming>) -> Answered {
    let headers = request.headers();
    if headers.contains_key(ORIGIN) {
        return Err(no(ErrorCode::ForbiddenOrigin, "not for browsers")
            .next_is("Send it from a program, without an Origin header; no page of a browser is served here."));
    }
    let caller = caller(door, pages, headers.get(AUTHORIZATION))?;
    let path = request.uri().path().to_owned();
    let Some(what) = Route::of(&path) else {
        return Err(no(ErrorCode::NotFound, format!("there is no {path}")));
    };
    if request.method() != Method::POST {
        return Err(no(ErrorCode::MethodNotAllowed, "only POST").next_is("Send a POST."));
    }
    // A name may have letters that an address writes as bytes.
    let slug = |text: &str| {
        let invalid = |why: String| no(ErrorCode::InvalidRequest, why);
        let text = percent_decode_str(text).decode_utf8();
        let text = text.map_err(|error| invalid(format!("the name of the mesh: {error}")))?;
        MeshName::parse(&text).map_err(|error| invalid(error.to_string()))
    };
    let is_operator = caller == Caller::Operator;
    match what {
        Route::Meshes => register(door, caller, read(request, REQUEST_BYTES_MAX).await?).await,
        Route::Invites(_) if !is_operator => Err(no(
            ErrorCode::Unauthorized,
            "only the operator, with the admin token, invites here",
        )
        .next_is("Send the content of admin_token; an owner of the mesh invites with `heddle mesh invite`.")),
        Route::Snapshot(..) if !is_operator => Err(no(
            ErrorCode::Unauthorized,
            "only the operator, with the admin token, uploads here",
        )
        .next_is("Send the content of admin_token; an owner's home uploads by itself with `heddle mesh publish`.")),
        Route::Invites(text) => invite(door, slug(text)?, request).await,
        Route::Snapshot(text, step) => snapshot::answer(door, slug(text)?, step, request).await,
    }
}

/// What a path is about.
enum Route<'p> {
    Meshes,
    Invites(&'p str),
    Snapshot(&'p str, snapshot::Step<'p>),
}

impl<'p> Route<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let rest = path.strip_prefix(MESHES)?;
        if rest.is_empty() {
            return Some(Self::Meshes);
        }
        match rest.strip_prefix('/')?.split_once('/')? {
            (slug, "invites") => Some(Self::Invites(slug)),
            (slug, rest) => {
                let step = snapshot::Step::of(rest.strip_prefix("snapshot/")?)?;
                Some(Self::Snapshot(slug, step))
            }
        }
    }
}

/// The next step, in better words than the code's own.
pub(super) trait NextIs {
    fn next_is(self, next: &str) -> Self;
}

impl NextIs for Box<Problem> {
    fn next_is(self, next: &str) -> Self {
        Self::new((*self).next(next))
    }
}

fn caller(
    door: &Door,
    pages: &Pages,
    presented: Option<&HeaderValue>,
) -> Result<Caller, Box<Problem>> {
    if is_bearer(presented, &pages.admin) {
        return Ok(Caller::Operator);
    }
    match &door.entry {
        Entry::Anybody { token, .. } if is_bearer(presented, token) => Ok(Caller::Daemon),
        _ => Err(no(
            ErrorCode::Unauthorized,
            "this needs the token of the broker",
        )
        .next_is(
            "Send `Authorization: Bearer <token>` with the content of admin_token or broker_token in the data folder.",
        )),
    }
}

pub(super) async fn read<T: DeserializeOwned>(
    request: Request<Incoming>,
    bytes_max: usize,
) -> Result<T, Box<Problem>> {
    let body = Limited::new(request.into_body(), bytes_max).collect();
    let body = tokio::time::timeout(HELLO_TIMEOUT, body).await;
    let body = body.map_err(|_| no(ErrorCode::RequestTimeout, "the body did not come in time"))?;
    let body = body.map_err(|error| unread(error.as_ref(), bytes_max))?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| no(ErrorCode::InvalidRequest, error.to_string()))
}

fn unread(error: &(dyn std::error::Error + 'static), bytes_max: usize) -> Box<Problem> {
    if error.is::<LengthLimitError>() {
        let why = format!("the request body is larger than {bytes_max} bytes");
        return no(ErrorCode::PayloadTooLarge, why);
    }
    no(ErrorCode::InvalidRequest, format!("broken body: {error}"))
}

async fn invite(door: &Door, mesh: MeshName, request: Request<Incoming>) -> Answered {
    let text = |name: &str| {
        let value = request.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let (key, host) = (text("idempotency-key"), text(HOST.as_str()));
    let secret = text(AUTHORIZATION.as_str()).unwrap_or_default();
    let body: BrokerInviteBody = read(request, REQUEST_BYTES_MAX).await?;
    let invalid = |why: String| no(ErrorCode::InvalidRequest, why);
    let role = body.role.as_deref().unwrap_or(Role::Member.as_str());
    let role = Role::parse(role).ok_or_else(|| invalid("a role is owner or member".to_owned()))?;
    let life = match body.expires_in.as_deref().map(parse_seconds) {
        Some(seconds) => std::time::Duration::from_secs(seconds.map_err(invalid)?),
        None => INVITE_LIFE_DEFAULT,
    };
    let is_encrypted = door.tls.is_some() || door.is_behind_proxy;
    let scheme = if is_encrypted { "wss" } else { "ws" };
    let url = body
        .url
        .or_else(|| host.map(|host| format!("{scheme}://{host}/")));
    let spec = InviteSpec {
        mesh,
        role,
        uses_max: body.uses.unwrap_or(1),
        life,
        url: url.ok_or_else(|| invalid("say in url where the broker is reached".to_owned()))?,
    };
    let source = match &key {
        Some(id) => Source::Key {
            secret: &secret,
            id,
        },
        None => Source::Fresh,
    };
    let accept = door.broker.accept();
    if body.create == Some(false) {
        let meshes = accept.storage.meshes().await.map_err(broken)?;
        if !meshes.iter().any(|(_, name)| *name == spec.mesh) {
            let why = format!("there is no mesh {}", spec.mesh);
            return Err(no(ErrorCode::NotFound, why).next_is(
                "Correct the name, or leave create out to make the mesh; nothing was changed.",
            ));
        }
    }
    let sources = (accept.ids.as_ref(), accept.clock.wall());
    let made = make(accept.storage.as_ref(), sources, &spec, source).await?;
    // The seed's name for it, beside our own.
    let mut shape = serde_json::to_value(&made).unwrap_or_default();
    shape["url"] = serde_json::Value::String(made.link.clone());
    Ok(shown(StatusCode::OK, &shape, "application/json"))
}

async fn register(door: &Door, caller: Caller, body: RegisterMeshBody) -> Answered {
    if body
        .kind
        .as_deref()
        .is_some_and(|kind| kind != "shared_owner")
    {
        return Err(no(ErrorCode::InvalidRequest, "kind is shared_owner"));
    }
    let accept = door.broker.accept();
    let (tables, ids) = (accept.storage.as_ref(), accept.ids.as_ref());
    let (mesh, fresh) = match (&body.owner, caller) {
        (Some(owner), _) => (owner.mesh_id, own(door, &body.slug, owner).await?),
        (None, Caller::Operator) => {
            let named = tables.mesh_named(&body.slug, MeshId(ids.ulid())).await;
            named.map_err(broken)?
        }
        (None, Caller::Daemon) => {
            let why = "a mesh without an owner is made by the operator, with the admin token";
            return Err(no(ErrorCode::Unauthorized, why).next_is(
                "Send the content of admin_token in the data folder of the broker (or of the file that it was given with \
                 --admin-token-file), not of broker_token; a home brings a mesh of its own with `heddle mesh publish NAME --to URL`.",
            ));
        }
    };
    let meshes = tables.meshes().await.map_err(broken)?;
    let slug = meshes.into_iter().find(|(id, _)| *id == mesh);
    let answer = RegisterMeshAnswer {
        server_id: tables
            .broker_id(BrokerId(ids.ulid()))
            .await
            .map_err(broken)?,
        mesh_id: mesh,
        slug: slug.map_or(body.slug, |(_, name)| name),
        broker_epoch: tables.epoch(mesh).await.map_err(broken)?,
        duplicate: !fresh,
    };
    if fresh {
        tracing::info!(%mesh, slug = %answer.slug, "a mesh was registered");
    }
    Ok(shown(StatusCode::OK, &answer, "application/json"))
}

/// A mesh that moves here with its owner; the same again changes nothing. IMPORTANT: the owner is enrolled before its
/// mailboxes are made, so that nobody else can own the mesh from the first moment on.
async fn own(door: &Door, slug: &MeshName, owner: &RegisterOwner) -> Result<bool, Box<Problem>> {
    let accept = door.broker.accept();
    let tables = accept.storage.as_ref();
    let mesh = owner.mesh_id;
    match tables.credentials(mesh, owner.member_id).await {
        Err(StorageError::UnknownMesh(_)) => {
            tables.ensure_mesh(mesh, slug).await.map_err(broken)?;
        }
        Err(error) => return Err(broken(error)),
        Ok(found) => {
            let is_same = |one: &heddle_broker::members::Standing| {
                one.is_founder && one.is_owner() && one.key == owner.key
            };
            if found.mesh_has_keys && !found.standing.as_ref().is_some_and(is_same) {
                let why = "this mesh is here already, and is somebody else's";
                return Err(no(ErrorCode::NameTaken, why)
                    .next_is("Ask its owner for an invitation; nothing was changed."));
            }
            refuse_keyless(tables, mesh).await?;
        }
    }
    let at = accept.clock.wall();
    let enrolled = tables.enrol_owner(mesh, owner.member_id, &owner.member, owner.key, at);
    let fresh = enrolled.await.map_err(broken)?;
    let party = |agent: &heddle_core::names::AgentName| Party {
        member: owner.member_id,
        agent: agent.clone(),
    };
    for agent in &owner.agents {
        let registered = tables.register_agent(mesh, &party(agent)).await;
        registered.map_err(broken)?;
    }
    for topic in &owner.topics {
        tables
            .create_topic(mesh, &topic.topic)
            .await
            .map_err(broken)?;
        for agent in &topic.subscribers {
            tables
                .register_agent(mesh, &party(agent))
                .await
                .map_err(broken)?;
            let subscribed = tables.subscribe(mesh, &topic.topic, &party(agent)).await;
            subscribed.map_err(broken)?;
        }
    }
    for queue in &owner.queues {
        tables.create_queue(mesh, queue).await.map_err(broken)?;
    }
    Ok(fresh)
}
