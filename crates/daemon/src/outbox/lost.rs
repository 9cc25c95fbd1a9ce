//! What the broker has lost because an older file of it was put back: topics, subscriptions and messages of this home.
//!
//! A new epoch is the sign. Messages whose place is not in the history any more are noted in the store and sent again
//! under their own ids: whoever has one already knows its id, whoever has not gets it now, so each lands once. Work of a
//! queue that somebody may have done is not: that would do it twice. It waits for a person, who is told.

use std::time::Duration;

use heddle_core::drain::{RowMove, Waits, drain};
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::MemberId;
use heddle_core::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX, LOST_AGE_MAX};
use heddle_core::names::{AgentName, TopicName};
use heddle_core::sync::was_lost;
use heddle_store::{LostFigures, LostMessage, LostRow, LostSettle, LostState, StoreError};
use heddle_wire::broker::{
    Envelope, ReplyResult, Request, Roster, RosterAgent, RosterTopic, SendItem,
};
use heddle_wire::ipc::LostView;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::drain::answer_about;
use super::moved;
use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// After a failure, a broker that does not answer, or one that takes nothing for now.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two tries of what was refused: its recipient may come back.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);

/// Topics and own subscriptions that a broker of before knew, and this one does not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Forgotten {
    pub(crate) topics: Vec<TopicName>,
    pub(crate) subscriptions: Vec<(TopicName, AgentName)>,
}

impl Forgotten {
    /// Topics are never deleted, and nobody but this home ends a subscription of its agents.
    pub(crate) fn between(before: &Roster, now: &Roster, mesh: &MeshState) -> Self {
        let mut found = Self::default();
        for topic in &before.topics {
            let known = now.topics.iter().find(|one| one.topic == topic.topic);
            if known.is_none() {
                found.topics.push(topic.topic.clone());
            }
            let own = topic.subscribers.iter().filter(|one| {
                one.member == mesh.mesh.member
                    && mesh.is_own(&one.agent)
                    && known.is_none_or(|known| !known.subscribers.contains(one))
            });
            let own = own.map(|one| (topic.topic.clone(), one.agent.clone()));
            found.subscriptions.extend(own);
        }
        found
    }

    /// The roster as it will be when all of it is there again.
    pub(crate) fn add_to(&self, roster: &mut Roster, member: MemberId) {
        for topic in &self.topics {
            roster.topics.push(RosterTopic {
                topic: topic.clone(),
                subscribers: Vec::new(),
            });
        }
        for (topic, agent) in &self.subscriptions {
            let known = roster.topics.iter_mut().find(|one| one.topic == *topic);
            if let Some(known) = known {
                known.subscribers.push(RosterAgent {
                    member,
                    agent: agent.clone(),
                });
            }
        }
    }

    fn requests(&self) -> Vec<Request> {
        let create = |topic: &TopicName| Request::CreateTopic {
            topic: topic.clone(),
        };
        let subscribe = |(topic, agent): &(TopicName, AgentName)| Request::Subscribe {
            topic: topic.clone(),
            agent: agent.clone(),
        };
        let subscriptions = self.subscriptions.iter().map(subscribe);
        self.topics
            .iter()
            .map(create)
            .chain(subscriptions)
            .collect()
    }
}

/// Beside a connection: as long as something is to be sent again. Nothing is sent before topics that the broker has
/// forgotten are there again (`ready`): a message to one would be refused for good.
pub(crate) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    (forgotten, ready): (&Forgotten, &Notify),
) {
    while !make_again(mesh, live, forgotten).await {
        tokio::time::sleep(AGAIN).await;
    }
    ready.notify_one();
    loop {
        let wait = match round(shared, mesh, live).await {
            Ok(Round::Over) => {
                mesh.lost_again.notified().await;
                continue;
            }
            Ok(Round::Again(wait)) => wait,
            Err(StoreError::Stopped | StoreError::Poisoned(_)) => return,
            Err(error) => {
                tracing::warn!(%error, mesh = %mesh.mesh.name, "what the broker has lost could not be looked at");
                AGAIN
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = mesh.lost_again.notified() => {}
        }
    }
}

pub(super) enum Round {
    /// Nothing waits, until somebody says so.
    Over,
    Again(Duration),
}

/// The topics and subscriptions of before. False if the broker does not answer.
async fn make_again(mesh: &MeshState, live: &Live, forgotten: &Forgotten) -> bool {
    for request in forgotten.requests() {
        match live.request(request).await {
            Some(ReplyResult::Refused(refused)) => {
                let why = refused.detail;
                tracing::warn!(mesh = %mesh.mesh.name, %why, "a topic of before could not be made again");
            }
            Some(_) => {}
            None => return false,
        }
    }
    true
}

pub(super) async fn round(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
) -> Result<Round, StoreError> {
    if !look(shared, mesh, live).await? {
        return Ok(Round::Again(AGAIN));
    }
    let was_waiting = shared.store.lost_figures(mesh.mesh.mesh).await?.waiting;
    if !send_again(shared, mesh, live, LostState::Waiting).await? {
        return Ok(Round::Again(AGAIN));
    }
    send_again(shared, mesh, live, LostState::Refused).await?;
    let figures = shared.store.lost_figures(mesh.mesh.mesh).await?;
    if figures.waiting == 0 && was_waiting > 0 {
        let count = mesh.lost_again_count();
        tracing::info!(mesh = %mesh.mesh.name, count, "what the broker had lost was sent again under its ids");
    }
    Ok(match figures {
        LostFigures {
            waiting: 0,
            refused: 0,
            ..
        } => Round::Over,
        LostFigures { waiting: 0, .. } => Round::Again(REFUSED_AGAIN),
        _ => Round::Again(AGAIN),
    })
}

/// Up to which age a message is sent again: an older one would have died unsent by now, or nobody keeps it.
fn age_max(max_age_hours: Option<u32>) -> Duration {
    let agreed = max_age_hours.map(|hours| Duration::from_hours(u64::from(hours)));
    agreed.map_or(LOST_AGE_MAX, |agreed| agreed.min(LOST_AGE_MAX))
}

/// Looks for what was lost, once for every new epoch. False if the broker could not be asked.
async fn look(shared: &Shared, mesh: &MeshState, live: &Live) -> Result<bool, StoreError> {
    let id = mesh.mesh.mesh;
    let heard = shared.store.sync_head(id).await?.broker_epoch;
    if heard <= shared.store.lost_looked(id).await? {
        return Ok(true);
    }
    let asked = live.request(Request::Epochs).await;
    let Some(ReplyResult::Epochs { epoch, ends, .. }) = asked else {
        return Ok(false);
    };
    let too_old = shared
        .store
        .older_than(age_max(mesh.max_age_hours()))
        .await?;
    let (mut after, mut left_off) = (Some(shared.store.lost_since(id).await?), 0_u64);
    while let Some(from) = after {
        let known = ends.clone();
        let found =
            shared
                .store
                .note_lost(id, (from, too_old), shared.clock.wall(), move |place| {
                    was_lost(place, epoch, &known)
                });
        let found = found.await?;
        after = found.next;
        left_off = left_off.saturating_add(found.left_off);
    }
    if !moved::find(shared, mesh, live).await? {
        return Ok(false);
    }
    mesh.count_lost_old(left_off);
    shared.store.set_lost_looked(id, epoch.max(heard)).await?;
    let figures = shared.store.lost_figures(id).await?;
    if figures.open() > 0 || left_off > 0 {
        let count = figures.open();
        tracing::warn!(mesh = %mesh.mesh.name, count, too_old = left_off, "the broker is an earlier copy of itself, or another one: it does not have messages that were committed; those that are not too old are sent again");
    }
    Ok(true)
}

/// Sends everything in this state once. False if the broker does not answer, or wants it later.
async fn send_again(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    state: LostState,
) -> Result<bool, StoreError> {
    let id = mesh.mesh.mesh;
    let bounds = (BATCH_ITEMS_MAX, BATCH_BYTES_MAX);
    let mut after = 0;
    loop {
        // What is new goes first: what was lost has been there once.
        if mesh.window.left(shared.clock.mono()).is_some() {
            return Ok(false);
        }
        let rows = shared.store.lost_rows(id, state, after, bounds).await?;
        let Some(last) = rows.last() else {
            return Ok(true);
        };
        after = last.arrival;
        let (mut items, mut sent, mut settled) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            match item(&row) {
                Ok(item) => {
                    items.push(item);
                    sent.push(row);
                }
                Err(why) => settled.push(gone(shared, mesh, &row, why).await?),
            }
        }
        let mut is_later = false;
        if !items.is_empty() {
            match live.send(items).await {
                Some(verdicts) if verdicts.len() == sent.len() => {
                    for (row, verdict) in sent.iter().zip(verdicts) {
                        let was_there = moved::was_there(row, &verdict);
                        let next = drain(answer_about(verdict, &row.client_message_id));
                        note_limit(shared, mesh, &next);
                        match settle(row, next) {
                            Some(settle) => settled.push(LostSettle {
                                was_there,
                                ..settle
                            }),
                            None => is_later = true,
                        }
                    }
                }
                _ => is_later = true,
            }
        }
        let is_again = |one: &&LostSettle| one.state == LostState::Sent && !one.was_there;
        let again = settled.iter().filter(is_again);
        let again = u64::try_from(again.count()).unwrap_or(u64::MAX);
        metrics::counter!("heddle_outbox_lost_sent_again_total").increment(again);
        mesh.count_lost_again(again);
        let now = shared.clock.wall();
        shared.store.settle_lost(id, settled, now).await?;
        if is_later {
            return Ok(false);
        }
    }
}

/// The budget is the mesh's, whatever uses it up.
fn note_limit(shared: &Shared, mesh: &MeshState, next: &RowMove) {
    if let RowMove::Retry {
        waits: Waits::Window(wait),
        ..
    } = next
    {
        let random = shared.ids.below(u64::MAX);
        mesh.window.is_full(shared.clock.mono(), *wait, random);
    }
}

/// Where it goes; `None` while that is not known.
fn settle(row: &LostRow, next: RowMove) -> Option<LostSettle> {
    let to = |state, reason| LostSettle {
        arrival: row.arrival,
        state,
        reason,
        place: None,
        was_there: false,
    };
    match next {
        RowMove::Done {
            broker_message_id,
            history_id,
        } => Some(LostSettle {
            place: Some((broker_message_id, history_id)),
            ..to(LostState::Sent, String::new())
        }),
        RowMove::Dead { reason } | RowMove::Park { reason } => {
            tracing::warn!(id = %row.client_message_id, %reason, "a message that the broker has lost is refused now");
            Some(to(LostState::Refused, reason))
        }
        RowMove::Retry { .. } => None,
    }
}

/// A message without its bytes. Where a mailbox of this home has it, nothing is missing.
async fn gone(
    shared: &Shared,
    mesh: &MeshState,
    row: &LostRow,
    why: &str,
) -> Result<LostSettle, StoreError> {
    let sender = mesh.party(row.agent.clone());
    let mut has_arrived = false;
    for agent in mesh.own_agents() {
        let id = row.client_message_id.clone();
        let known = shared
            .store
            .inbox_knows(mesh.mesh.mesh, vec![sender.clone()], id, agent);
        has_arrived |= known.await?;
    }
    let (state, reason) = match (has_arrived, row.to.starts_with('@')) {
        (true, true) => (
            LostState::Sent,
            "its recipient, in this home, has it".to_owned(),
        ),
        (true, false) => (
            LostState::Gone,
            format!("{why}; a mailbox of this home has received it"),
        ),
        (false, _) => (LostState::Gone, why.to_owned()),
    };
    Ok(LostSettle {
        arrival: row.arrival,
        state,
        reason,
        place: None,
        was_there: false,
    })
}

/// The row as it was sent before.
fn item(row: &LostRow) -> Result<SendItem, &'static str> {
    const UNREADABLE: &str = "its bytes here are not those that were accepted";
    if row.payload.is_empty() {
        return Err("its text was given back since, and only whoever received it has it");
    }
    let text = std::str::from_utf8(&row.payload).map_err(|_| UNREADABLE)?;
    let envelope = Envelope::parse(text.as_bytes()).map_err(|_| UNREADABLE)?;
    let found: Fingerprint = envelope.wire_fingerprint().map_err(|_| UNREADABLE)?;
    if found != row.wire_fingerprint {
        return Err(UNREADABLE);
    }
    Ok(SendItem {
        agent: row.agent.clone(),
        client_message_id: row.client_message_id.clone(),
        epoch: None,
        envelope: RawValue::from_string(text.to_owned()).map_err(|_| UNREADABLE)?,
    })
}

/// One of them, as it is told.
pub(crate) fn view(lost: LostMessage) -> LostView {
    LostView {
        state: lost.state.as_str().to_owned(),
        open: lost.state.is_open(),
        history_id: lost.place.to_string(),
        reason: lost.reason,
        at: lost.at.to_rfc3339(),
    }
}

/// What is said of a loss.
pub(crate) struct Said {
    pub(crate) words: String,
    /// Something of it is still to be done, by this home or by a person; otherwise it is only worth knowing.
    pub(crate) is_open: bool,
}

/// What to say of a broker that has lost messages of this home; `None` where it has not, as far as this process and its
/// store know.
pub(crate) async fn said(shared: &Shared, mesh: &MeshState) -> Result<Option<Said>, StoreError> {
    let figures = shared.store.lost_figures(mesh.mesh.mesh).await?;
    let again = mesh.lost_again_count();
    let old = mesh.lost_old_count();
    if figures.open() == 0 && again == 0 && old == 0 {
        return Ok(None);
    }
    let mut parts = Vec::new();
    let mut part = |count: u64, one: &str, many: &str| match count {
        0 => {}
        1 => parts.push(format!("1 {one}")),
        count => parts.push(format!("{count} {many}")),
    };
    part(
        again,
        "was sent again under its id",
        "were sent again under their ids",
    );
    part(
        figures.waiting,
        "is being sent again",
        "are being sent again",
    );
    part(
        figures.held,
        "is work of a queue that may have been done",
        "are work of queues that may have been done",
    );
    part(
        figures.refused,
        "is refused by the broker now",
        "are refused by the broker now",
    );
    part(
        figures.gone,
        "cannot be sent again, because its text was given back",
        "cannot be sent again, because their text was given back",
    );
    part(
        old,
        "is too old to be sent again",
        "are too old to be sent again",
    );
    part(
        figures.dropped,
        "was dropped by an operator",
        "were dropped by an operator",
    );
    let told = [figures.open(), again, old, figures.dropped];
    let count = told.into_iter().fold(0, u64::saturating_add);
    let messages = match count {
        1 => "1 message".to_owned(),
        count => format!("{count} messages"),
    };
    Ok(Some(Said {
        words: format!(
            "the broker of mesh {} is an earlier copy of itself: it had lost {messages} of this home; {}",
            mesh.mesh.name,
            parts.join(", ")
        ),
        is_open: figures.open() > 0,
    }))
}

/// What a person can do about that.
pub(crate) fn next(figures: LostFigures) -> &'static str {
    if figures.open() == figures.waiting {
        "There is nothing to do: whoever had received one knows its id, so each arrives once. Work of queues that was finished since that copy may be handed out again: `heddle queue list` shows what is open. After the next `heddle down` and `heddle up` this is not said any more."
    } else {
        "Each is listed below: `heddle doctor --retry ID` sends one again under its id, `heddle doctor --drop ID` says that it is well as it is. One without its text is sent anew under another id, if anybody misses it. If the newer broker.db is still there, stop with `heddle down` and put it back instead."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verdict_settles_what_the_broker_has_lost() {
        let row = LostRow {
            arrival: 7,
            agent: AgentName::parse("one").unwrap(),
            client_message_id: heddle_core::ids::ClientMessageId::parse("m1").unwrap(),
            to: "@two".to_owned(),
            wire_fingerprint: Fingerprint([0; 32]),
            broker_message_id: None,
            payload: Vec::new(),
        };
        let retry = RowMove::Retry {
            error: "rate_limited: later".to_owned(),
            waits: Waits::Row,
        };
        assert_eq!(settle(&row, retry), None);
        let dead = RowMove::Dead {
            reason: "unknown_recipient: nobody".to_owned(),
        };
        let state = settle(&row, dead).map(|one| one.state);
        assert_eq!(state, Some(LostState::Refused));
        assert!(item(&row).unwrap_err().contains("given back"));
    }
}
