//! `GET /v1/inbox`: a peek at a mailbox, from a cursor or from where a session stands.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::clock::WallMs;
use heddle_core::envelope::Address;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{MeshId, Party};
use heddle_core::limits::RESPONSE_BYTES_MAX;
use heddle_core::names::{AgentName, SessionName};
use heddle_store::{AckedItems, InboxFilter, InboxRow, InboxRows, SessionCursor, SessionKey};
use heddle_wire::from_wire;
use heddle_wire::ipc::{InboxItem, InboxPage};
use heddle_wire::problem::Problem;
use serde::Deserialize;
use serde_json::Value;

use super::send::agent;
use super::warnings;
use crate::inbox::damage;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::{Shared, store_problem};

/// Envelope bytes on one page: rendered twice as long, it still is below the response limit.
const INBOX_PAGE_BYTES_MAX: usize = RESPONSE_BYTES_MAX / 4;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct InboxQuery {
    pub(super) agent: Option<String>,
    pub(super) mesh: Option<String>,
    pub(super) since: Option<String>,
    pub(super) topic: Option<String>,
    pub(super) from: Option<String>,
    pub(super) limit: Option<usize>,
    pub(super) all: bool,
    pub(super) session: Option<String>,
    pub(super) advance: bool,
}

pub(super) async fn page(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: InboxQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let owner = agent(&ipc, query.agent.as_deref())?;
    must_be_own(mesh, &owner)?;
    warnings::hears(mesh, &owner);
    let session = session(mesh, &owner, &query)?;
    let mut filter = InboxFilter {
        agent: Some(owner.clone()),
        ..filter(Some(mesh.mesh.mesh), &query)?
    };
    let wanted = wanted(&filter);
    let store = &ipc.shared.store;
    // IMPORTANT: held until the cursor has moved, or another reader of the session would be given the same.
    let _turn = match &session {
        Some(session) if query.advance => Some(ipc.load.turn_of(session).await),
        _ => None,
    };
    // Read before the rows: behind it, nothing can have been missed.
    let last_arrival = store.last_arrival().await.map_err(|e| store_problem(&e))?;
    if let Some(session) = &session {
        let cursor = place_of(&ipc.shared, session).await?;
        filter.after = filter.after.max(Some(cursor.read_through));
        if !query.all {
            filter.acked = cursor
                .created_at
                .map_or(AckedItems::None, AckedItems::Since);
        }
    }
    let page = store.inbox_rows(filter).await;
    let InboxRows { rows, more } = page.map_err(|error| store_problem(&error))?;
    if let (Some(session), Some(last), true) = (session, rows.last(), query.advance) {
        let now = ipc.shared.clock.wall();
        let moved = store.inbox_seen(session, last.arrival, now).await;
        moved.map_err(|error| store_problem(&error))?;
    }
    let freshness = Freshness::of(mesh);
    let is_told = rows.is_empty() && !freshness.stale;
    ok(&InboxPage {
        note: is_told.then(|| slip(mesh, &wanted)).flatten(),
        cursor: rows
            .last()
            .map_or(last_arrival, |row| row.arrival)
            .to_string(),
        items: rows.iter().map(|row| item(&ipc.shared, row)).collect(),
        more,
        stale: freshness.stale,
        as_of: freshness.as_of,
        warnings: Vec::new(),
    })
}

/// Whom a filter names: a topic, an agent.
fn wanted(filter: &InboxFilter) -> Vec<Address> {
    let agent = filter.from_agent.clone().map(|agent| Address::Dm {
        member: filter.from_member.clone(),
        agent,
    });
    let topic = filter.topic.clone().map(Address::Topic);
    topic.into_iter().chain(agent).collect()
}

/// That the mesh knows none of that name: a filter that is misspelt finds nothing either. Whoever is cut off asks nobody this.
fn slip(mesh: &MeshState, wanted: &[Address]) -> Option<String> {
    let is_unknown = |to: &&Address| {
        let found = mesh.resolve(to);
        found.is_err_and(|problem| problem.known_code() == Some(ErrorCode::UnknownRecipient))
    };
    let name = &mesh.mesh.name;
    wanted.iter().find(is_unknown).map(|unknown| match unknown {
        Address::Topic(topic) => format!(
            "there is no topic #{topic} in mesh {name}; `heddle topic list` shows those that exist"
        ),
        other => format!(
            "there is no agent {other} in mesh {name}; `heddle peers` shows those that exist"
        ),
    })
}

/// Where the session stands. One that reads for the first time is known from then on, also if it only peeks: what a
/// sibling acknowledges afterwards is still there for it.
async fn place_of(shared: &Shared, session: &SessionKey) -> Result<SessionCursor, Problem> {
    let store = &shared.store;
    let found = store.inbox_session(session.clone()).await;
    let found = found.map_err(|error| store_problem(&error))?;
    if found.created_at.is_some() {
        return Ok(found);
    }
    match store
        .inbox_enter(session.clone(), shared.clock.wall())
        .await
    {
        Ok(entered) => Ok(entered),
        // A full disk is no reason not to read.
        Err(error) => {
            tracing::warn!(%error, "a session that reads could not be noted");
            Ok(found)
        }
    }
}

/// The session that reads, if one is named. Advancing moves it behind everything, so what a filter
/// left out would never be given to it.
fn session(
    mesh: &MeshState,
    agent: &AgentName,
    query: &InboxQuery,
) -> Result<Option<SessionKey>, Problem> {
    let Some(name) = query.session.as_deref() else {
        if query.advance {
            return Err(from_wire::invalid(
                "advance needs a session, whose cursor it moves",
            ));
        }
        return Ok(None);
    };
    if query.advance && (query.topic.is_some() || query.from.is_some() || query.since.is_some()) {
        return Err(from_wire::invalid(
            "advance does not go with topic, from or since: it would move past what they leave out",
        ));
    }
    Ok(Some(SessionKey {
        mesh: mesh.mesh.mesh,
        agent: agent.clone(),
        session: SessionName::parse(name).map_err(|e| from_wire::invalid(e.to_string()))?,
    }))
}

/// How fresh an answer is (C29).
pub(super) struct Freshness {
    pub(super) stale: bool,
    /// When the broker was last heard of, where `stale`.
    pub(super) as_of: Option<String>,
}

impl Freshness {
    pub(super) fn of(mesh: &MeshState) -> Self {
        let stale = !mesh.is_answering();
        Self {
            stale,
            as_of: if stale { mesh.as_of() } else { None },
        }
    }
}

/// A mailbox of another home cannot be read here, and a misspelt one must not look empty (C29).
pub(super) fn must_be_own(mesh: &MeshState, agent: &AgentName) -> Result<(), Problem> {
    if mesh.is_own(agent) {
        return Ok(());
    }
    let own: Vec<String> = mesh.own_agents().iter().map(ToString::to_string).collect();
    Err(Problem::new(
        ErrorCode::UnknownAgent,
        format!("this home has no agent called {agent}"),
    )
    .with("candidates", own)
    .next(format!(
        "Run `heddle agent register {agent}`, or name one of the candidates."
    )))
}

/// Everything of the query but whose mailbox it is.
pub(super) fn filter(mesh: Option<MeshId>, query: &InboxQuery) -> Result<InboxFilter, Problem> {
    let (after, received_since) = match query.since.as_deref() {
        None | Some("") => (None, None),
        Some(text) => since(text)?,
    };
    let topic = query
        .topic
        .as_deref()
        .map(from_wire::topic_name)
        .transpose()?;
    let (from_member, from_agent) = match query.from.as_deref() {
        None => (None, None),
        Some(text) => from(text)?,
    };
    Ok(InboxFilter {
        mesh,
        agent: None,
        after,
        since: received_since,
        topic,
        from_member,
        from_agent,
        acked: if query.all {
            AckedItems::All
        } else {
            AckedItems::None
        },
        limit: body::page_rows(query.limit)?,
        bytes_max: INBOX_PAGE_BYTES_MAX,
    })
}

/// A cursor of an earlier page, or a time.
fn since(text: &str) -> Result<(Option<i64>, Option<WallMs>), Problem> {
    if let Ok(arrival) = text.parse() {
        return Ok((Some(arrival), None));
    }
    match WallMs::parse_time(text) {
        Some(at) => Ok((None, Some(at))),
        None => Err(from_wire::invalid(format!(
            "since is neither a cursor nor a time: {text:?}"
        ))
        .next("Say the cursor of an earlier page, a time as 2026-11-16T09:30:00Z, or a day as 2026-11-16, which begins at midnight in UTC.")),
    }
}

type FromFilter = (Option<heddle_core::names::MemberName>, Option<AgentName>);

fn from(text: &str) -> Result<FromFilter, Problem> {
    let text = format!("@{}", text.strip_prefix('@').unwrap_or(text));
    match Address::parse(&text) {
        Ok(Address::Dm { member, agent }) => Ok((member, Some(agent))),
        Ok(_) => Err(from_wire::invalid("from must name an agent")),
        Err(error) => Err(from_wire::invalid(error.to_string())),
    }
}

/// A row as its reader sees it. A body that cannot be read is never shown as text (C30).
pub(crate) fn item(shared: &Shared, row: &InboxRow) -> InboxItem {
    let mesh = shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh);
    let envelope = damage::readable(&row.envelope, row.fingerprint);
    if envelope.is_none() {
        shared.damage.note(row.arrival, row.acked_at.is_some());
    }
    let damaged = envelope.is_none();
    let name = |member, agent: &AgentName| match mesh {
        Some(mesh) => mesh.address(member, agent),
        None => format!("@{member}/{agent}"),
    };
    let mention = |text: &String| match text.split_once('/') {
        Some((member, agent)) => match (member.parse(), AgentName::parse(agent)) {
            (Ok(member), Ok(agent)) => name(member, &agent),
            _ => text.clone(),
        },
        None => text.clone(),
    };
    let Party {
        agent: sender,
        member: sender_id,
    } = &row.sender;
    let called = mesh.map_or_else(
        || row.sender_name.to_string(),
        |mesh| mesh.with_known(|known| known.called(*sender_id, &row.sender_name)),
    );
    let (body, meta, mentions, reply_to) = match envelope {
        Some(envelope) => (
            envelope.body,
            envelope.meta.unwrap_or(Value::Null),
            envelope.mentions.iter().map(mention).collect(),
            (!envelope.reply_to.is_empty()).then_some(envelope.reply_to),
        ),
        None => (String::new(), Value::Null, Vec::new(), None),
    };
    InboxItem {
        id: row.arrival.to_string(),
        client_message_id: row.client_message_id.to_string(),
        broker_message_id: row.broker_message_id.to_string(),
        history_id: row.history_id.to_string(),
        mesh: mesh.map_or_else(|| row.mesh.to_string(), |m| m.mesh.name.to_string()),
        agent: row.agent.to_string(),
        topic: row.topic.as_ref().map(ToString::to_string),
        from: format!("@{called}/{sender}"),
        body,
        damaged,
        priority: row.priority.as_str().to_owned(),
        meta,
        mentions,
        received_at: row.received_at.to_rfc3339(),
        shown_at: row.shown_at.map(WallMs::to_rfc3339),
        acked_at: row.acked_at.map(WallMs::to_rfc3339),
        reply_to_id: reply_to,
    }
}
