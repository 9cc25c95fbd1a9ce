//! `GET /v1/explain/{id}` where the outbox has no row: a message that came, or one that only the broker still knows
//! because an older store was put back. Told from what there is, with the layers that have nothing.
//!
//! Texts are not told here, and of what others sent only what lies in mailboxes of this home: a broker answers a sender
//! about its own ids only.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::envelope::DestinationKind;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, HistoryId, Party};
use heddle_core::names::AgentName;
use heddle_store::{InboxFind, InboxRow, OutboxFind};
use heddle_wire::broker::Explained;
use heddle_wire::from_wire;
use heddle_wire::ipc::{
    BrokerView, InboxCopyView, LayerView, LayersView, LimiterView, MessageStory,
};
use heddle_wire::problem::Problem;

use super::explain::{Asking, ask_for, broker};
use super::explain_own::deliveries;
use super::inbox::item;
use super::send::agent;
use crate::ipc::Ipc;
use crate::mesh::MeshState;
use crate::shared::store_problem;

/// How long the broker has for all of its answers.
const ASK_WITHIN: Duration = Duration::from_secs(3);
/// Own agents that a broker is asked about; in a home with more the sender must be named.
const SENDERS_ASKED_MAX: usize = 64;
/// Possible senders whose past messages are looked for; of a larger mesh only what still lies in a mailbox is told.
const SENDERS_MAX: usize = 2_000;

/// What was found, or how far the search came.
pub(super) enum Found {
    Story(Box<MessageStory>),
    Nothing,
    /// Nothing here, and a broker that might know could not be asked: why.
    NotKnown(String),
}

struct Search<'i> {
    ipc: &'i Ipc,
    id: &'i str,
    meshes: Vec<&'i Arc<MeshState>>,
    /// The sender, or the mailbox, that the caller named.
    agent: Option<AgentName>,
}

/// In the mesh and of the agent that were named, or wherever it is.
pub(super) async fn find(
    ipc: &Ipc,
    (mesh, name): (Option<&str>, Option<&str>),
    id: &str,
) -> Result<Found, Problem> {
    let meshes = match mesh {
        Some(name) => vec![ipc.shared.mesh(Some(name))?],
        None => ipc.shared.meshes.iter().collect(),
    };
    let agent = match name {
        Some(name) => Some(agent(ipc, Some(name))?),
        None => None,
    };
    let search = Search {
        ipc,
        id,
        meshes,
        agent,
    };
    if let Some(story) = search.received().await? {
        return Ok(Found::Story(Box::new(story)));
    }
    search.at_broker().await
}

impl Search<'_> {
    fn client_id(&self) -> Option<ClientMessageId> {
        ClientMessageId::parse(self.id).ok()
    }

    fn is_of(&self, agent: &AgentName) -> bool {
        self.agent.as_ref().is_none_or(|named| named == agent)
    }

    /// From the copies in mailboxes of this home, or from what is left of them.
    async fn received(&self) -> Result<Option<MessageStory>, Problem> {
        let find = InboxFind {
            id: self.client_id(),
            message: self.id.parse().ok(),
            place: self.id.parse().ok(),
            mesh: match self.meshes.as_slice() {
                [one] => Some(one.mesh.mesh),
                _ => None,
            },
            agent: self.agent.clone(),
        };
        let store = &self.ipc.shared.store;
        let mut copies = store
            .inbox_find(find)
            .await
            .map_err(|error| store_problem(&error))?;
        copies.retain(|copy| self.meshes.iter().any(|m| m.mesh.mesh == copy.mesh));
        let Some(first) = copies.first().cloned() else {
            return self.past().await;
        };
        let is_other = |copy: &InboxRow| copy.sender != first.sender || copy.mesh != first.mesh;
        if copies.iter().any(is_other) {
            return Err(several(self, copies.iter()));
        }
        let Some(mesh) = self.meshes.iter().find(|m| m.mesh.mesh == first.mesh) else {
            return Ok(None);
        };
        Ok(Some(self.of_copies(mesh, &copies).await?))
    }

    async fn of_copies(
        &self,
        mesh: &MeshState,
        copies: &[InboxRow],
    ) -> Result<MessageStory, Problem> {
        let shared = &self.ipc.shared;
        let inbox: Vec<InboxCopyView> = copies
            .iter()
            .map(|row| copy_view(mesh, &item(shared, row)))
            .collect();
        let first = &copies[0];
        let (outbox, next) = self
            .outbox_layer(mesh, &first.sender, &first.client_message_id)
            .await?;
        let asked = if first.sender.member == mesh.mesh.member {
            let (sender, id) = (&first.sender.agent, &first.client_message_id);
            Some(ask_for(mesh, sender, id, ASK_WITHIN).await)
        } else {
            None
        };
        let of_delivery = BrokerView {
            broker_message_id: first.broker_message_id.to_string(),
            history_id: first.history_id.to_string(),
            wire_fingerprint_prefix: first.fingerprint.map(Fingerprint::prefix),
            first_seen_at: None,
            committed_at: None,
            expires_at: None,
            history_available: None,
            destination: None,
            queue: None,
        };
        let (mut story, layer) = self.told_by_broker(mesh, asked, Some(of_delivery));
        story.id = first.client_message_id.to_string();
        story.says = received_words(&inbox, &story.id);
        story.layers = LayersView {
            outbox,
            broker: layer,
            inbox: LayerView::new(
                "present",
                match inbox.len() {
                    1 => format!("a copy lies in the mailbox of @{}", inbox[0].agent),
                    count => format!("copies lie in {count} mailboxes of this home"),
                },
            ),
        };
        story.inbox = inbox;
        story.next = next;
        story.receipts = story.receipts();
        Ok(story)
    }

    /// Whether an outbox row of this home is beside the copies, and the command that tells its story.
    async fn outbox_layer(
        &self,
        mesh: &MeshState,
        sender: &Party,
        id: &ClientMessageId,
    ) -> Result<(LayerView, Option<String>), Problem> {
        if sender.member != mesh.mesh.member {
            let says = "not a send of this home";
            return Ok((LayerView::new("absent", says), None));
        }
        let found = self
            .ipc
            .shared
            .store
            .outbox_find(OutboxFind::ClientMessageId {
                id: id.clone(),
                mesh: Some(mesh.mesh.mesh),
                agent: Some(sender.agent.clone()),
            });
        let found = found.await.map_err(|error| store_problem(&error))?;
        Ok(if found.is_empty() {
            let says = "no row, though an agent of this home sent it: this store is older than the send, or another one";
            (LayerView::new("absent", says), None)
        } else {
            let says = format!("@{} of this home sent it", sender.agent);
            let next = format!(
                "heddle explain {id} --agent {} --mesh {}",
                sender.agent, mesh.mesh.name
            );
            (LayerView::new("present", says), Some(next))
        })
    }

    /// Of what retention took, or was taken from a queue, the id alone is left.
    async fn past(&self) -> Result<Option<MessageStory>, Problem> {
        let Some(id) = self.client_id() else {
            return Ok(None);
        };
        for mesh in &self.meshes {
            let senders: Vec<Party> = mesh.with_known(|known| {
                let all = known.agents().into_iter();
                let all = all.map(|one| Party {
                    member: one.member,
                    agent: one.agent,
                });
                all.collect()
            });
            if senders.len() > SENDERS_MAX {
                continue;
            }
            let agents: Vec<AgentName> = mesh
                .own_agents()
                .into_iter()
                .filter(|agent| self.is_of(agent))
                .collect();
            let store = &self.ipc.shared.store;
            let past = store.inbox_past_of(mesh.mesh.mesh, senders, id.clone(), agents);
            let past = past.await.map_err(|error| store_problem(&error))?;
            if let Some((agent, sender, place)) = past.into_iter().next() {
                return Ok(Some(
                    self.of_past(mesh, (&agent, &sender, place), &id).await?,
                ));
            }
        }
        Ok(None)
    }

    async fn of_past(
        &self,
        mesh: &MeshState,
        (agent, sender, place): (&AgentName, &Party, HistoryId),
        id: &ClientMessageId,
    ) -> Result<MessageStory, Problem> {
        let (outbox, next) = self.outbox_layer(mesh, sender, id).await?;
        let asked = if sender.member == mesh.mesh.member {
            Some(ask_for(mesh, &sender.agent, id, ASK_WITHIN).await)
        } else {
            None
        };
        let (mut story, broker) = self.told_by_broker(mesh, asked, None);
        let from = mesh.address(sender.member, &sender.agent);
        story.says = format!(
            "@{agent} had it from {from}, at {place} of the history; it lies in no mailbox any more"
        );
        story.layers = LayersView {
            outbox,
            broker,
            inbox: LayerView::new(
                "past",
                format!(
                    "only the id is left at @{agent}: it was work taken from a queue, or retention has taken it since"
                ),
            ),
        };
        story.next = next;
        story.receipts = story.receipts();
        Ok(story)
    }

    /// From the broker alone: this home may have sent it before its store was replaced by an older one.
    async fn at_broker(&self) -> Result<Found, Problem> {
        let Some(id) = self.client_id() else {
            return Ok(Found::Nothing);
        };
        let mut not_known = None;
        let mut found = Vec::new();
        for mesh in &self.meshes {
            for sender in self.senders(mesh) {
                match ask_for(mesh, &sender, &id, ASK_WITHIN).await {
                    Asking::Explained(told) => found.push((*mesh, sender, told)),
                    Asking::Absent => {}
                    Asking::Unreachable(why) => {
                        not_known = Some(why);
                        break;
                    }
                }
            }
        }
        let own = |agent: &AgentName| *agent == self.ipc.default_agent;
        if found.len() > 1 && found.iter().filter(|(_, agent, _)| own(agent)).count() == 1 {
            found.retain(|(_, agent, _)| own(agent));
        }
        if found.len() > 1 {
            let senders = found
                .iter()
                .map(|(mesh, agent, _)| (agent.to_string(), mesh.mesh.name.to_string()));
            return Err(ambiguous(senders));
        }
        Ok(match (found.pop(), not_known) {
            (Some((mesh, sender, told)), _) => {
                Found::Story(Box::new(self.of_broker(mesh, &sender, told)))
            }
            (None, Some(why)) => Found::NotKnown(why),
            (None, None) => Found::Nothing,
        })
    }

    /// Agents of this home that may have sent it: the one that was named, or all that anybody knows of.
    fn senders(&self, mesh: &MeshState) -> Vec<AgentName> {
        if let Some(named) = &self.agent {
            return vec![named.clone()];
        }
        let own: BTreeSet<AgentName> = mesh.with_known(|known| {
            let all = known.agents().into_iter();
            all.filter(|one| one.member == known.own_member)
                .map(|one| one.agent)
                .collect()
        });
        own.into_iter().take(SENDERS_ASKED_MAX).collect()
    }

    fn of_broker(
        &self,
        mesh: &MeshState,
        sender: &AgentName,
        told: Box<Explained>,
    ) -> MessageStory {
        let to = destination(mesh, &told);
        let (mut story, broker) = self.told_by_broker(mesh, Some(Asking::Explained(told)), None);
        let at = story.broker.as_ref().and_then(|b| b.first_seen_at.clone());
        story.says = format!(
            "{} was committed at {} from @{sender} of this home to {}; this home has no row of it",
            self.id,
            at.unwrap_or_default(),
            to,
        );
        story.layers = LayersView {
            outbox: LayerView::new(
                "absent",
                "no row: this store is older than the send, or another one; the id stays taken at the broker",
            ),
            broker,
            inbox: LayerView::new("absent", "no copy in a mailbox of this home"),
        };
        story.receipts = story.receipts();
        story
    }

    /// What the broker tells, where it was asked, and what is to be said of that layer.
    fn told_by_broker(
        &self,
        mesh: &MeshState,
        asked: Option<Asking>,
        otherwise: Option<BrokerView>,
    ) -> (MessageStory, LayerView) {
        let mut story = MessageStory {
            id: self.id.to_owned(),
            kind: "message".to_owned(),
            mesh: mesh.mesh.name.to_string(),
            says: String::new(),
            layers: LayersView {
                outbox: LayerView::new("absent", ""),
                broker: LayerView::new("absent", ""),
                inbox: LayerView::new("absent", ""),
            },
            outbox: None,
            broker: otherwise,
            limiter: None,
            deliveries: Vec::new(),
            deliveries_left_off: 0,
            inbox: Vec::new(),
            receipts: Vec::new(),
            stale: false,
            stale_why: None,
            next: None,
        };
        let layer = match asked {
            None => LayerView::new(
                "not_asked",
                "it had it when it delivered it; a broker tells the sender's home alone what else it knows",
            ),
            Some(Asking::Absent) => LayerView::new(
                "absent",
                "the broker does not know the id any more: its time was over, or an earlier copy of its file was put back",
            ),
            Some(Asking::Unreachable(why)) => {
                story.stale = true;
                story.stale_why = Some(why.clone());
                LayerView::new("unreachable", why)
            }
            Some(Asking::Explained(told)) => {
                let now: WallMs = self.ipc.shared.clock.wall();
                story.broker = Some(broker(Some(mesh), &told, now));
                story.limiter =
                    LimiterView::of(told.limiter.map(|one| (one.window, one.counted)), &[]);
                story.deliveries = deliveries(Some(mesh), &told);
                story.deliveries_left_off = told.deliveries_left_off;
                LayerView::new("present", "the broker has it")
            }
        };
        (story, layer)
    }
}

/// Where it went, as people write it.
fn destination(mesh: &MeshState, told: &Explained) -> String {
    let reference = &told.destination_ref;
    match told.destination_kind {
        DestinationKind::Topic => format!("#{reference}"),
        DestinationKind::Log => "the log of the mesh".to_owned(),
        DestinationKind::Queue => format!("queue:{reference}"),
        DestinationKind::Dm => match reference.parse::<Party>() {
            Ok(party) => mesh.address(party.member, &party.agent),
            Err(_) => format!("@{reference}"),
        },
    }
}

fn several<'c>(search: &Search<'_>, copies: impl Iterator<Item = &'c InboxRow>) -> Problem {
    let called = |copy: &InboxRow| {
        let mesh = search.meshes.iter().find(|m| m.mesh.mesh == copy.mesh);
        let from = mesh.map_or_else(
            || copy.sender.agent.to_string(),
            |mesh| mesh.address(copy.sender.member, &copy.sender.agent),
        );
        format!("{} (from {from})", copy.broker_message_id)
    };
    let candidates: BTreeSet<String> = copies.map(called).collect();
    from_wire::invalid("messages of several senders came under this id")
        .with("candidates", candidates.into_iter().collect::<Vec<_>>())
        .next("Ask for one by the broker's id of it.")
}

/// Several senders of this home used the id.
pub(super) fn ambiguous(senders: impl Iterator<Item = (String, String)>) -> Problem {
    let senders: Vec<(String, String)> = senders.collect();
    let names: Vec<&str> = senders.iter().map(|(agent, _)| agent.as_str()).collect();
    let rows = senders
        .iter()
        .map(|(agent, mesh)| serde_json::json!({"agent": agent, "mesh": mesh}));
    let rows: Vec<serde_json::Value> = rows.collect();
    from_wire::invalid("several senders used this id")
        .with("candidates", names)
        .with("senders", rows)
        .next("Name the sender's agent, and its mesh where that is not enough, or use the row's own id.")
}

fn copy_view(mesh: &MeshState, item: &heddle_wire::ipc::InboxItem) -> InboxCopyView {
    let recipient = AgentName::parse(&item.agent).map_or_else(
        |_| format!("@{}", item.agent),
        |agent| mesh.address(mesh.mesh.member, &agent),
    );
    InboxCopyView {
        id: item.id.clone(),
        mesh: item.mesh.clone(),
        agent: item.agent.clone(),
        recipient,
        from: item.from.clone(),
        client_message_id: item.client_message_id.clone(),
        topic: item.topic.clone(),
        priority: item.priority.clone(),
        broker_message_id: item.broker_message_id.clone(),
        history_id: item.history_id.clone(),
        received_at: item.received_at.clone(),
        shown_at: item.shown_at.clone(),
        acked_at: item.acked_at.clone(),
        reply_to_id: item.reply_to_id.clone(),
        damaged: item.damaged,
    }
}

/// From whom it came, and how far it has come here.
fn received_words(inbox: &[InboxCopyView], id: &str) -> String {
    let Some(first) = inbox.first() else {
        return String::new();
    };
    let place = first
        .topic
        .as_ref()
        .map_or_else(String::new, |topic| format!(" on #{topic}"));
    let levels: Vec<String> = inbox
        .iter()
        .map(|copy| {
            let damaged = if copy.damaged { ", damaged" } else { "" };
            format!("{} at @{}{damaged}", copy.level().as_str(), copy.agent)
        })
        .collect();
    format!(
        "{id} came from {}{place}: {}",
        first.from,
        levels.join(", ")
    )
}
