//! Whom a message names beside its recipients. A mention gives nobody a copy: it marks a message for those who get it
//! anyway, so whoever names somebody else is told.

use heddle_core::envelope::{Address, SendRequest};
use heddle_core::names::AgentName;
use heddle_store::OutboxRow;
use heddle_wire::ipc::{ExplainView, MentionView};

use crate::mesh::MeshState;
use crate::roster::Known;

/// Those of the mentioned who get no copy, as far as this home knows who follows what.
pub(crate) fn unreached(mesh: &MeshState, request: &SendRequest) -> Vec<String> {
    if request.mentions.is_empty() {
        return Vec::new();
    }
    mesh.with_known(|known| {
        let to = known.resolve(&request.to).ok();
        let gets_it = |reference: &String| match &request.to {
            Address::Dm { .. } => to.as_ref() == Some(reference),
            Address::Topic(topic) => {
                let mut topics = known.roster.topics.iter();
                let topic = topics.find(|one| one.topic == *topic);
                topic.is_some_and(|topic| {
                    let mut followers = topic.subscribers.iter();
                    followers.any(|one| format!("{}/{}", one.member, one.agent) == *reference)
                })
            }
            // One consumer takes it, whoever that will be.
            Address::Queue(_) => true,
        };
        let mentions = request.mentions.iter();
        let missed = mentions.filter(|text| reference(known, text).is_some_and(|r| !gets_it(&r)));
        missed.cloned().collect()
    })
}

fn reference(known: &Known<'_>, mention: &str) -> Option<String> {
    known.resolve(&Address::parse(mention).ok()?).ok()
}

/// The mentions of a row, each with whether it got a copy; that is not known while the list of recipients is not whole.
pub(crate) fn of_row(
    mesh: Option<&MeshState>,
    row: &OutboxRow,
    story: &ExplainView,
) -> Vec<MentionView> {
    let called = |mention: &String| {
        let mesh = mesh?;
        let reference = mesh.with_known(|known| reference(known, mention))?;
        let (member, agent) = reference.split_once('/')?;
        Some(mesh.address(member.parse().ok()?, &AgentName::parse(agent).ok()?))
    };
    let is_queue = story.broker.as_ref().is_some_and(|b| b.queue.is_some());
    let is_whole = story.broker.is_some()
        && !is_queue
        && !story.stale
        && !story.deliveries_partial
        && story.deliveries_left_off == 0;
    let view = |mention: &String| {
        let agent = called(mention).unwrap_or_else(|| mention.clone());
        let gets_it = story.deliveries.iter().any(|one| one.recipient == agent);
        MentionView {
            agent,
            gets_it: (gets_it || is_whole).then_some(gets_it),
        }
    };
    row.mentions.iter().map(view).collect()
}
