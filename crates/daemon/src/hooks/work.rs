//! Plans what messages owe, and keeps up to eight hooks running. The table is the truth; arrivals and
//! events are hints.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use heddle_core::limits::{HOOK_EVENTS_WAITING_MAX, HOOKS_AT_ONCE_MAX};
use heddle_store::{AckedItems, InboxFilter, OwedHook, StoreError};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;

use super::one::{self, Happened};
use super::policy::{ON_DISCONNECT, ON_FILE_SHARE, ON_RECONNECT, ON_STARTUP, Policy};
use super::{Hooks, State, event};
use crate::events::Event;
use crate::shared::Shared;

/// Items that one plan looks at.
const PLAN_ITEMS_MAX: usize = 256;
const PLAN_BYTES_MAX: usize = 4 << 20;
/// After a failure of our own store.
const RETRY: Duration = Duration::from_secs(5);

type Key = (i64, String);

struct Worker {
    shared: Arc<Shared>,
    hooks: Arc<Hooks>,
    running: JoinSet<Option<Key>>,
    /// Owed runs that this process has begun and not yet paid.
    begun: BTreeSet<Key>,
    waiting: VecDeque<Happened>,
    /// Up to where everything is planned, as far as is known.
    planned_through: Option<i64>,
    connected_before: BTreeSet<String>,
}

/// To be called before anything can arrive: what arrives from then on is new mail.
pub(crate) async fn prepare(shared: &Shared, hooks: &Hooks) -> Result<(), StoreError> {
    match &hooks.state {
        State::Paused => Ok(()),
        State::On(policy) if policy.wants_messages() => shared.store.hooks_begin().await.map(drop),
        State::On(_) | State::None => shared.store.hooks_off(shared.clock.wall()).await,
    }
}

/// Runs until the daemon stops; then ends what runs. What was not paid stays owed.
pub(crate) async fn run(
    shared: Arc<Shared>,
    hooks: Arc<Hooks>,
    mut events: broadcast::Receiver<Event>,
) {
    let State::On(policy) = &hooks.state else {
        return;
    };
    let mut hint = shared.arrivals.subscribe();
    let mut worker = Worker {
        shared: Arc::clone(&shared),
        hooks: Arc::clone(&hooks),
        running: JoinSet::new(),
        begun: BTreeSet::new(),
        waiting: VecDeque::new(),
        planned_through: None,
        connected_before: BTreeSet::new(),
    };
    worker.happened(policy, ON_STARTUP, None, json!({}));
    while !shared.shutdown.is_cancelled() {
        hint.mark_unchanged();
        let retry = match worker.step(policy).await {
            Ok(true) => continue,
            Ok(false) => Duration::MAX,
            Err(error) => {
                tracing::warn!(%error, "hooks could not be planned or begun");
                RETRY
            }
        };
        tokio::select! {
            _ = hint.changed() => {}
            Some(ended) = worker.running.join_next() => worker.ended(ended.ok().flatten()),
            event = events.recv() => worker.told(policy, event),
            () = tokio::time::sleep(retry) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
    while worker.running.join_next().await.is_some() {}
}

impl Worker {
    /// One page planned, the free places filled; true when there is more to plan.
    async fn step(&mut self, policy: &Policy) -> Result<bool, StoreError> {
        let has_more = policy.wants_messages() && self.plan(policy).await?;
        while self.running.len() < HOOKS_AT_ONCE_MAX {
            let Some(happened) = self.waiting.pop_front() else {
                break;
            };
            let (shared, hooks) = (Arc::clone(&self.shared), Arc::clone(&self.hooks));
            self.running.spawn(async move {
                one::happened(&shared, &hooks, happened).await;
                None
            });
        }
        let free = HOOKS_AT_ONCE_MAX.saturating_sub(self.running.len());
        if free > 0 {
            // What has begun is still owed, so it is among the oldest.
            let owed = self.shared.store.hooks_owed(self.begun.len() + free);
            for owed in owed.await? {
                self.begin(owed);
            }
        }
        Ok(has_more)
    }

    fn begin(&mut self, owed: OwedHook) {
        let key = (owed.arrival, owed.hook.clone());
        if self.running.len() >= HOOKS_AT_ONCE_MAX || !self.begun.insert(key.clone()) {
            return;
        }
        let (shared, hooks) = (Arc::clone(&self.shared), Arc::clone(&self.hooks));
        self.running.spawn(async move {
            one::owed(&shared, &hooks, owed).await;
            Some(key)
        });
    }

    /// A run that panicked names no key: it stays begun, and is not begun again by this process.
    fn ended(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.begun.remove(&key);
        }
    }

    async fn plan(&mut self, policy: &Policy) -> Result<bool, StoreError> {
        let store = &self.shared.store;
        let from = match self.planned_through {
            Some(through) => through,
            None => store.hooks_begin().await?,
        };
        self.planned_through = Some(from);
        let page = store.inbox_page(behind(from, PLAN_ITEMS_MAX)).await?;
        let Some(last) = page.last() else {
            return Ok(false);
        };
        let through = last.arrival;
        let mut owed = Vec::new();
        for row in &page {
            let mesh = self.shared.meshes.iter().find(|m| m.mesh.mesh == row.mesh);
            let hooks = event::owed(policy, row, mesh.map(|mesh| mesh.mesh.member));
            owed.extend(hooks.into_iter().map(|hook| (row.arrival, hook)));
        }
        let now = self.shared.clock.wall();
        let is_planned = store.hooks_plan(from, through, owed, now).await?;
        self.planned_through = is_planned.then_some(through);
        Ok(true)
    }

    fn told(&mut self, policy: &Policy, event: Result<Event, RecvError>) {
        match event {
            Ok(Event::Disconnected { mesh, why }) => {
                self.happened(policy, ON_DISCONNECT, Some(mesh), json!({"why": why}));
            }
            Ok(Event::Connected { mesh, .. }) => {
                if !self.connected_before.insert(mesh.clone()) {
                    self.happened(policy, ON_RECONNECT, Some(mesh), json!({}));
                }
            }
            Ok(Event::FileShared(file)) => {
                let mesh = Some(file.mesh.clone());
                self.happened(policy, ON_FILE_SHARE, mesh, json!({"file": file}));
            }
            Ok(Event::OutboxPressureHigh(_) | Event::OutboxPressureEased(_))
            | Err(RecvError::Closed) => {}
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "events came faster than hooks could be told");
            }
        }
    }

    fn happened(
        &mut self,
        policy: &Policy,
        hook: &'static str,
        mesh: Option<String>,
        more: serde_json::Value,
    ) {
        if policy.rule(hook).is_none() {
            return;
        }
        if self.waiting.len() >= HOOK_EVENTS_WAITING_MAX {
            tracing::warn!(hook, "too many events wait for hooks; one is not told");
            return;
        }
        let id = self.shared.ids.ulid().to_string();
        let at = self.shared.clock.wall().to_rfc3339();
        let mut event = json!({"event": hook.trim_start_matches("on-"), "hook": hook, "id": id, "at": at,
            "mesh": mesh, "why": null});
        for (name, value) in more.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        self.waiting.push_back(Happened {
            hook,
            id,
            mesh,
            event,
        });
    }
}

/// Every item behind this arrival, of every mailbox.
pub(super) fn behind(arrival: i64, limit: usize) -> InboxFilter {
    InboxFilter {
        mesh: None,
        agent: None,
        after: Some(arrival),
        since: None,
        topic: None,
        from_member: None,
        from_agent: None,
        acked: AckedItems::All,
        limit,
        bytes_max: PLAN_BYTES_MAX,
    }
}
