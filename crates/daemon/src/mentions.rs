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
        // Who follows what now is not known: nobody is said to miss it.
        if known.stale.is_some() {
            return Vec::new();
        }
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

/// The mentions of a row, each with whether it is a recipient; that is not known while the list of them is not whole, or
/// nobody has taken the work.
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
    let gets_it = |agent: &String| {
        if row.to.starts_with('@') {
            // Whether that one takes what this home sends is its own affair, and told to nobody.
            return Some(called(&row.to).as_ref() == Some(agent));
        }
        let broker = story.broker.as_ref()?;
        if let Some(queue) = &broker.queue {
            let has_it = queue.holder.as_ref() == Some(agent) && queue.status != "waiting";
            return (has_it || queue.status == "acked").then_some(has_it);
        }
        let is_listed = story.deliveries.iter().any(|one| one.recipient == *agent);
        let is_whole = !story.stale && !story.deliveries_partial && story.deliveries_left_off == 0;
        (is_listed || is_whole).then_some(is_listed)
    };
    let view = |mention: &String| {
        let agent = called(mention).unwrap_or_else(|| mention.clone());
        let gets_it = gets_it(&agent);
        MentionView { agent, gets_it }
    };
    row.mentions.iter().map(view).collect()
}
