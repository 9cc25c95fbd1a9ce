//! `GET /v1/inbox/search`: an agent's messages by their words, newest first, never behind the inbox.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_store::{InboxFilter, InboxRows, SearchQuery};
use heddle_wire::from_wire;
use heddle_wire::ipc::SearchPage;
use heddle_wire::problem::Problem;
use serde::Deserialize;

use super::inbox::{Freshness, InboxQuery, filter, item, must_be_own};
use super::send::agent;
use crate::inbox::index;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::shared::store_problem;

/// What one search may index by itself: some fifty thousand messages, well within an answer's time.
const CATCH_UP_CHUNKS_MAX: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Query {
    q: String,
    cursor: Option<String>,
    agent: Option<String>,
    mesh: Option<String>,
    since: Option<String>,
    topic: Option<String>,
    from: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn search(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: Query = body::query(&request.into_parts().0)?;
    let words = SearchQuery::parse(&query.q);
    let words = words.map_err(|error| from_wire::invalid(error.to_string()))?;
    let before = query.cursor.as_deref().map(str::parse::<i64>).transpose();
    let before = before.map_err(|_| from_wire::invalid("cursor is not one of a search"))?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let owner = agent(&ipc, query.agent.as_deref())?;
    must_be_own(mesh, &owner)?;
    let narrowed = InboxQuery {
        since: query.since,
        topic: query.topic,
        from: query.from,
        limit: query.limit,
        ..InboxQuery::default()
    };
    let filter = InboxFilter {
        agent: Some(owner),
        ..filter(Some(mesh.mesh.mesh), &narrowed)?
    };
    bring_up_to_date(&ipc).await?;
    let store = &ipc.shared.store;
    let page = if words.has_parts() {
        store
            .inbox_scan(words, before, filter, index::body_of)
            .await
    } else {
        store.inbox_search(words, before, filter).await
    };
    let InboxRows { rows, more } = page.map_err(|error| store_problem(&error))?;
    let freshness = Freshness::of(mesh);
    ok(&SearchPage {
        cursor: rows.last().map(|row| row.arrival.to_string()),
        items: rows.iter().map(|row| item(&ipc.shared, row)).collect(),
        more,
        stale: freshness.stale,
        as_of: freshness.as_of,
    })
}

/// Nothing that has arrived by now is missing from the answer.
async fn bring_up_to_date(ipc: &Ipc) -> Result<(), Problem> {
    match index::catch_up(&ipc.shared, CATCH_UP_CHUNKS_MAX).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Problem::new(
            ErrorCode::DaemonBusy,
            "the search index is still catching up with the inbox",
        )
        .next("Wait a moment and search again; it is being indexed.")),
        Err(error) => Err(store_problem(&error)),
    }
}
