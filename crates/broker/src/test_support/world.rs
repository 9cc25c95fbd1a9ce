//! A small world: members with fixed ids, envelopes, and a gate over a store.

use std::sync::Arc;

use heddle_core::clock::{ManualClock, ManualIds, WallMs};
use heddle_core::ids::{ClientMessageId, MemberId, MeshId, Party};
use heddle_core::names::{AgentName, MemberName, MeshName, TopicName};
use heddle_core::retention::DedupeMode;
use heddle_wire::broker::{SendItem, Verdict};
use serde_json::json;
use serde_json::value::to_raw_value;
use ulid::Ulid;

use crate::accept::{Accept, Decided};
use crate::limiter::{Limiter, LocalLimiter};
use crate::principal::Principal;
use crate::storage::{SendId, Storage};

/// Meshes, by number.
pub(crate) fn mesh(number: u128) -> MeshId {
    MeshId(Ulid::from(number))
}

pub(crate) fn mesh_name(name: &str) -> MeshName {
    MeshName::parse(name).unwrap()
}

/// Members, by name: the same name is the same id, in the order of the alphabet.
pub(crate) fn member(name: &str) -> MemberId {
    let number = name.bytes().fold(0, |n, b| n << 8 | u128::from(b));
    MemberId(Ulid::from(number))
}

/// The name behind an id made by [`member`].
pub(crate) fn name_of(member: MemberId) -> String {
    let bytes = member.0.to_bytes();
    let text = bytes.iter().skip_while(|b| **b == 0).copied().collect();
    String::from_utf8(text).unwrap()
}

/// `member/agent`.
pub(crate) fn party(text: &str) -> Party {
    let (name, agent) = text.split_once('/').unwrap();
    Party {
        member: member(name),
        agent: AgentName::parse(agent).unwrap(),
    }
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::parse(name.strip_prefix('#').unwrap_or(name)).unwrap()
}

pub(crate) fn principal(name: &str) -> Principal {
    Principal {
        mesh: mesh(1),
        member: member(name),
        member_name: MemberName::parse(name).unwrap(),
    }
}

/// An envelope to `#topic`, `@member/agent`, `queue:name` or `log:ops`.
pub(crate) fn envelope(to: &str, body: &str, mentions: &[&str]) -> serde_json::Value {
    let (kind, reference) = match to.split_at(1) {
        ("#", name) => ("topic", name.to_owned()),
        ("@", name) => ("dm", party(name).to_string()),
        ("l", _) if to.starts_with("log:") => ("log", to.trim_start_matches("log:").to_owned()),
        _ => ("queue", to.trim_start_matches("queue:").to_owned()),
    };
    let mut mentions: Vec<String> = mentions.iter().map(|m| party(m).to_string()).collect();
    mentions.sort();
    json!({
        "v": 1, "kind": if kind == "log" { "op" } else { "message" }, "destination": {"kind": kind, "ref": reference},
        "priority": "next", "body": body, "mentions": mentions,
    })
}

pub(crate) fn send_item(agent: &str, id: &str, to: &str, body: &str) -> SendItem {
    SendItem {
        agent: AgentName::parse(agent).unwrap(),
        client_message_id: ClientMessageId::parse(id).unwrap(),
        epoch: None,
        envelope: to_raw_value(&envelope(to, body, &[])).unwrap(),
    }
}

/// The code of a refusal, or what the verdict was instead.
pub(crate) fn refused_code(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Created { .. } => "created",
        Verdict::Duplicate { .. } => "duplicate",
        Verdict::Conflict { .. } => "conflict",
        Verdict::Refused(refused) => &refused.code,
    }
}

/// A gate over a store, with mesh 1 and whatever else a test sets up.
pub(crate) struct Gate<S, L> {
    pub(crate) accept: Accept<S, L>,
    pub(crate) clock: Arc<ManualClock>,
}

impl<S: Storage> Gate<S, LocalLimiter> {
    /// With the default budget.
    pub(crate) async fn open(storage: Arc<S>) -> Self {
        let clock = Arc::new(ManualClock::at(WallMs(1_000_000)));
        let limiter = LocalLimiter::new(clock.clone(), crate::limiter::Budget::default());
        Gate::with(storage, Arc::new(limiter), clock).await
    }
}

impl<S: Storage, L: Limiter> Gate<S, L> {
    pub(crate) async fn with(storage: Arc<S>, limiter: Arc<L>, clock: Arc<ManualClock>) -> Self {
        storage
            .ensure_mesh(mesh(1), &mesh_name("home"))
            .await
            .unwrap();
        let accept = Accept {
            storage,
            limiter,
            clock: clock.clone(),
            ids: Arc::new(ManualIds::seeded(1)),
            dedupe: DedupeMode::RetentionScoped { days: 365 },
        };
        Self { accept, clock }
    }

    pub(crate) fn storage(&self) -> &S {
        &self.accept.storage
    }

    /// Makes agents, `member/agent` each, and subscribes them to `#ops`.
    pub(crate) async fn subscribe_all(&self, parties: &[&str]) {
        for text in parties {
            self.register(text).await;
            self.storage()
                .subscribe(mesh(1), &topic("#ops"), &party(text))
                .await
                .unwrap();
        }
    }

    pub(crate) async fn register(&self, text: &str) {
        let party = party(text);
        let name = MemberName::parse(&name_of(party.member)).unwrap();
        let storage = self.storage();
        storage
            .ensure_member(mesh(1), party.member, &name)
            .await
            .unwrap();
        storage.register_agent(mesh(1), &party).await.unwrap();
    }

    pub(crate) async fn batch(&self, from: &str, items: Vec<SendItem>) -> Decided {
        self.accept.accept(&principal(from), items).await
    }

    /// One message from `member/agent`.
    pub(crate) async fn send(&self, from: &str, id: &str, to: &str, body: &str) -> Verdict {
        let (name, agent) = from.split_once('/').unwrap();
        let decided = self.batch(name, vec![send_item(agent, id, to, body)]).await;
        decided.verdicts.into_iter().next().unwrap()
    }

    /// Whether the broker holds an id.
    pub(crate) async fn holds(&self, from: &str, id: &str) -> bool {
        let id = ClientMessageId::parse(id).unwrap();
        let id = SendId::new(mesh(1), party(from), id);
        let status = self.storage().status(mesh(1), id).await;
        status.unwrap().is_some()
    }
}
