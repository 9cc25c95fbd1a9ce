//! Requests and their replies, and the roster that goes round.

use heddle_core::ids::ClientMessageId;
use heddle_core::names::AgentName;
use heddle_wire::broker::{ReplyResult, Request, Roster};

use super::client::Client;
use super::house::{House, end};
use crate::test_support::{member, send_item, topic};

fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

async fn ask(client: &mut Client, body: Request) -> String {
    match client.request(body).await {
        ReplyResult::Ok { changed } => format!("changed={changed}"),
        ReplyResult::Committed { history_id, .. } => format!("committed {history_id}"),
        ReplyResult::Absent => "absent".to_owned(),
        ReplyResult::Roster { roster } => format!("{} topics", roster.topics.len()),
        ReplyResult::Refused(refused) => refused.code,
        ReplyResult::Explained(explained) => format!("explained {}", explained.history_id),
        ReplyResult::Taken { items } => format!("took {}", items.len()),
        ReplyResult::QueueVerdicts { items } => format!("{items:?}"),
        ReplyResult::QueueCounts { queues } => format!("{} queues", queues.len()),
        ReplyResult::Held { items, gone, next } => {
            format!("held {}, gone {gone}, more {}", items.len(), next.is_some())
        }
        ReplyResult::Log { epoch, items } => format!("epoch {epoch}, {} ops", items.len()),
        ReplyResult::Epochs { epoch, ends, .. } => format!("epoch {epoch}, {ends:?}"),
        ReplyResult::Effect { answer, .. } => format!("{answer:?}"),
        ReplyResult::EffectRefused { problem } => problem.code,
        ReplyResult::Members { members, .. } => format!("{} members", members.len()),
        ReplyResult::Granted(entry) => format!("{entry:?}"),
        ReplyResult::Grants { grants } => format!("{} grants", grants.len()),
        ReplyResult::Upload { through, first } => format!("{through:?} {first:?}"),
        ReplyResult::BlobPart { data } => format!("{} bytes", data.0.len()),
    }
}

#[tokio::test]
async fn requests_change_what_they_say_and_tell_whether_they_did() {
    let house = House::new().await;
    let (mut client, _serving) = house.enter("a", &["one"]).await;
    let register = |name| Request::RegisterAgent { agent: agent(name) };
    let subscribe = |name| Request::Subscribe {
        topic: topic("#ops"),
        agent: agent(name),
    };
    let unsubscribe = |name| Request::Unsubscribe {
        topic: topic("#ops"),
        agent: agent(name),
    };
    let create = |name| Request::CreateTopic { topic: topic(name) };
    let status = |id| Request::MessageStatus {
        agent: agent("one"),
        client_message_id: ClientMessageId::parse(id).unwrap(),
    };
    let held = |priority| Request::Held {
        after: heddle_wire::broker::HeldCursor {
            priority,
            ..Default::default()
        },
        limit: 9,
    };
    let table = [
        (register("one"), "changed=false"),
        (register("two"), "changed=true"),
        (create("#other"), "changed=true"),
        (create("#other"), "changed=false"),
        (subscribe("two"), "changed=true"),
        (subscribe("two"), "changed=false"),
        (subscribe("nobody"), "unknown_agent"),
        (unsubscribe("two"), "changed=true"),
        (unsubscribe("two"), "changed=false"),
        (status("A"), "absent"),
        (Request::Roster, "2 topics"),
        (
            Request::LogRead {
                after: heddle_core::ids::HistoryId::ZERO,
                limit: 9,
            },
            "epoch 1, 0 ops",
        ),
        (Request::Epochs, "epoch 1, []"),
        (Request::QueueCounts, "0 queues"),
        (held(0), "held 0, gone 0, more false"),
        (held(200), "held 0, gone 0, more false"),
    ];
    for (request, expected) in table {
        let shown = format!("{request:?}");
        assert_eq!(ask(&mut client, request).await, expected, "{shown}");
    }
    client
        .send(1, vec![send_item("one", "A", "#ops", "x")])
        .await;
    client.verdicts().await;
    assert_eq!(ask(&mut client, status("A")).await, "committed 1.1");
}

fn is_online(roster: &Roster, name: &str) -> Option<bool> {
    let entry = roster.members.iter().find(|m| m.member == member(name))?;
    Some(entry.online)
}

#[tokio::test]
async fn everybody_hears_of_who_comes_and_goes_and_of_new_topics() {
    let house = House::new().await;
    let (mut watcher, _watching) = house.enter("a", &["one"]).await;
    let (mut other, serving) = house.enter("b", &["one"]).await;
    let roster = watcher.roster().await;
    assert_eq!(is_online(&roster, "b"), Some(true));
    assert_eq!(roster.agents.len(), 2);
    other
        .request(Request::CreateTopic {
            topic: topic("#ops"),
        })
        .await;
    assert_eq!(watcher.roster().await.topics.len(), 1);
    drop(other);
    end(serving).await;
    let roster = watcher.roster().await;
    assert_eq!(is_online(&roster, "b"), Some(false));
    assert_eq!(is_online(&roster, "a"), Some(true));
}

#[tokio::test(start_paused = true)]
async fn many_changes_at_once_are_told_in_few_rosters_and_the_last_is_whole() {
    const TOPICS: usize = 100;
    let house = House::new().await;
    let (mut watcher, _watching) = house.enter("a", &["one"]).await;
    let (mut other, _serving) = house.enter("b", &["one"]).await;
    for number in 0..TOPICS {
        other
            .request(Request::CreateTopic {
                topic: topic(&format!("t{number}")),
            })
            .await;
    }
    let mut told = 0;
    loop {
        told += 1;
        if watcher.roster().await.topics.len() == TOPICS {
            break;
        }
    }
    assert!(told < TOPICS / 2, "{told} rosters");
}
