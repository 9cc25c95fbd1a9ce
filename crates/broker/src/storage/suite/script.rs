//! The little language of the contract suite: one operation a line, `operation -> answer`.
//!
//! ```text
//! agent a/one -> new                                 also: known, unknown_member
//! topic #ops -> new                                  subscribe a/one #ops, unsubscribe a/one #ops
//! send from=a/one id=A fp=1 to=#ops -> created 1.1   also fp=1/2 (last byte), mention=b/one, bytes=9, as=7 (broker id),
//!                                                    priority=now, at=7 (accepted), expires=9 or never
//! send … ; send … -> created 1.1 ; duplicate 1.1     one batch
//! known from=a/one id=A -> 1.1 fp=1                  or absent
//! grant b a dm -> dm,topic new                       b lets a send more; also revoke b a topic, grants b
//! deliveries a after=1.1/one rows=2 bytes=9 -> 1.2/one 1.3/two   after_now=, after_low= likewise
//! ack a 1.1/one 1.2/two -> 2
//! history after=1.1 rows=9 -> 1.2=A                  rows -> dedupe=1 message=1 …
//! orphans -> none
//! ```
//! A line without `->` must not fail; its answer is not looked at.

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{BrokerMessageId, ClientMessageId, HistoryId};
use heddle_core::names::{AgentName, MemberName, QueueName};
use ulid::Ulid;

use crate::storage::{
    Accepted, Ack, DeliveryCursor, DeliveryPlace, Destination, LeaseMs, LimiterNote, NewMessage,
    PageLimit, SendId, StorageError,
};
use crate::test_support::{TestStorage, member, mesh, mesh_name, name_of, party, topic};

pub(super) async fn run<S: TestStorage>(storage: &S, text: &str) {
    storage
        .ensure_mesh(mesh(1), &mesh_name("home"))
        .await
        .unwrap();
    let mut script = Script { storage, sent: 0 };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with("--") {
            continue;
        }
        let (operation, expected) = line.split_once(" -> ").unwrap_or((line, ""));
        let answer = script.line(operation.trim()).await;
        if line.contains("->") {
            assert_eq!(answer, expected.trim(), "line {}: {line}", number + 1);
        }
    }
    let orphans = storage.orphan_check(mesh(1)).await.unwrap();
    assert_eq!(orphans, [], "at the end of the script");
}

pub(super) struct Script<'s, S> {
    pub(super) storage: &'s S,
    /// Broker ids are minted from it.
    pub(super) sent: u128,
}

pub(super) const AT: WallMs = WallMs(5_000);

impl<S: TestStorage> Script<'_, S> {
    pub(super) async fn line(&mut self, operation: &str) -> String {
        let mut words = operation.split_whitespace();
        let verb = words.next().unwrap();
        let rest: Vec<&str> = words.collect();
        match verb {
            "send" => self.send(operation).await,
            "deliveries" => self.deliveries(&rest).await,
            "history" => self.history(&rest).await,
            "rows" => self.rows().await,
            "known" => self.known(&rest).await,
            "orphans" => self.orphans().await,
            "ack" => self.ack(&rest).await,
            "grant" | "revoke" | "grants" => self.grants(verb, &rest).await,
            "log" | "epochs" | "bump" => self.log(verb, &rest).await,
            "part" => self.part(&rest).await,
            "take" | "hold" | "done" | "release" | "longer" | "shown" | "acked" | "explain"
            | "mentions" | "counts" | "held" | "age" | "sweep" | "prune" | "count" | "renew"
            | "end" | "expire" | "present" => self.more(verb, &rest).await,
            _ => self.roster(verb, &rest).await,
        }
    }

    async fn roster(&self, verb: &str, rest: &[&str]) -> String {
        let storage = self.storage;
        let named = |name: &str| MemberName::parse(name).unwrap();
        match (verb, rest) {
            ("member", [id, name @ ..]) => {
                let name = named(name.first().unwrap_or(id));
                shown(storage.ensure_member(mesh(1), member(id), &name).await)
            }
            ("session", [id]) => storage
                .begin_session(mesh(1), member(id), WallMs(70), LeaseMs(100))
                .await
                .map_or_else(|error| refused(&error), |number| number.to_string()),
            ("agent", [text]) => shown(storage.register_agent(mesh(1), &party(text)).await),
            ("topic", [name]) => shown(storage.create_topic(mesh(1), &topic(name)).await),
            ("subscribe", [text, name]) => {
                shown(storage.subscribe(mesh(1), &topic(name), &party(text)).await)
            }
            ("unsubscribe", [text, name]) => {
                let (name, agent) = (topic(name), party(text));
                shown(storage.unsubscribe(mesh(1), &name, &agent).await)
            }
            ("names", []) => {
                let roster = storage.roster(mesh(1)).await.unwrap();
                let members = roster.members.iter();
                join(members.map(|(id, name)| format!("{}={name}", name_of(*id))))
            }
            ("queue", [name]) => shown(storage.create_queue(mesh(1), &queue(name)).await),
            ("queues", []) => {
                let roster = storage.roster(mesh(1)).await.unwrap();
                join(roster.queues.iter().map(ToString::to_string))
            }
            ("topics", []) => {
                let roster = storage.roster(mesh(1)).await.unwrap();
                join(roster.topics.iter().map(|entry| {
                    let parties: Vec<String> = entry.subscribers.iter().map(short).collect();
                    format!("{}:{}", entry.topic, parties.join(","))
                }))
            }
            _ => panic!("no such operation: {verb} {rest:?}"),
        }
    }

    async fn send(&mut self, operation: &str) -> String {
        let messages = operation
            .split(';')
            .map(|part| {
                self.sent += 1;
                let words: Vec<&str> = part.split_whitespace().skip(1).collect();
                message(&fields(&words), self.sent)
            })
            .collect();
        let accepted = self.storage.accept(mesh(1), messages).await.unwrap();
        let answers: Vec<String> = accepted.iter().map(outcome).collect();
        answers.join(" ; ")
    }

    async fn known(&self, rest: &[&str]) -> String {
        let id = send_id(&fields(rest));
        let looks = self.storage.known(mesh(1), vec![id.clone()]).await.unwrap();
        let status = self.storage.status(mesh(1), id).await.unwrap();
        assert_eq!(looks[0].consumed, status, "known and status disagree");
        looks[0].consumed.map_or("absent".to_owned(), |consumed| {
            let fingerprint = consumed.wire_fingerprint.0[0];
            format!("{} fp={fingerprint}", consumed.history_id)
        })
    }

    async fn deliveries(&self, rest: &[&str]) -> String {
        let fields = fields(&rest[1..]);
        let mut after = DeliveryCursor::START;
        for (key, priority) in [
            ("after_now", Priority::Now),
            ("after", Priority::Next),
            ("after_low", Priority::Low),
        ] {
            if let Some(text) = fields.get(key) {
                let Ack { history_id, agent } = place(text);
                let agent = agent.to_string();
                after = after.at(priority, DeliveryPlace { history_id, agent });
            }
        }
        let limit = PageLimit {
            rows_max: number(&fields, "rows", 100),
            bytes_max: number(&fields, "bytes", 100_000),
        };
        let member = member(rest[0]);
        let page = self.storage.deliveries_after(mesh(1), member, after, limit);
        let page = page.await.unwrap();
        join(page.iter().map(|d| format!("{}/{}", d.history_id, d.agent)))
    }

    async fn ack(&self, rest: &[&str]) -> String {
        let items = rest[1..].iter().map(|text| place(text)).collect();
        let count = self.storage.ack(mesh(1), member(rest[0]), items, AT).await;
        count.unwrap().to_string()
    }

    async fn history(&self, rest: &[&str]) -> String {
        let fields = fields(rest);
        let after = fields
            .get("after")
            .map_or(HistoryId::ZERO, |text| text.parse().unwrap());
        let rows = self
            .storage
            .history_after(mesh(1), after, number(&fields, "rows", 100));
        let rows = rows.await.unwrap();
        join(rows.iter().map(|row| {
            let envelope = row.envelope.as_deref().unwrap_or("pruned");
            format!("{}={}", row.history_id, &envelope[..1])
        }))
    }

    async fn rows(&self) -> String {
        let mut counts = Vec::new();
        for table in ["dedupe", "message", "history", "delivery", "mention"] {
            counts.push(format!("{table}={}", self.storage.count(table).await));
        }
        counts.join(" ")
    }

    async fn orphans(&self) -> String {
        let orphans = self.storage.orphan_check(mesh(1)).await.unwrap();
        join(orphans.iter().map(|orphan| orphan.problem.to_owned()))
    }
}

/// `key=value` words.
pub(super) fn fields<'t>(words: &[&'t str]) -> BTreeMap<&'t str, &'t str> {
    let pair = |word: &&'t str| word.split_once('=').unwrap();
    words.iter().map(pair).collect()
}

pub(super) fn number(fields: &BTreeMap<&str, &str>, key: &str, otherwise: usize) -> usize {
    fields
        .get(key)
        .map_or(otherwise, |text| text.parse().unwrap())
}

pub(super) fn send_id(fields: &BTreeMap<&str, &str>) -> SendId {
    let id = ClientMessageId::parse(fields["id"]).unwrap();
    SendId::new(mesh(1), party(fields["from"]), id)
}

/// `7`: all bytes the same; `7/1`: all but the last.
fn fingerprint(text: &str) -> Fingerprint {
    let (all, last) = text.split_once('/').unwrap_or((text, text));
    let mut bytes = [all.parse().unwrap(); 32];
    bytes[31] = last.parse().unwrap();
    Fingerprint(bytes)
}

fn message(fields: &BTreeMap<&str, &str>, minted: u128) -> NewMessage {
    let to = fields["to"];
    let destination = match (to.strip_prefix('@'), to.strip_prefix("queue:")) {
        (Some(text), _) => Destination::Dm(party(text)),
        (_, Some(name)) => Destination::Queue(queue(name)),
        _ if to == "log" => Destination::Log,
        _ => Destination::Topic(topic(to)),
    };
    let priority = fields.get("priority").unwrap_or(&"next");
    let mentions = fields
        .get("mention")
        .map_or_else(Vec::new, |text| text.split(',').map(party).collect());
    let id = send_id(fields);
    let minted = fields
        .get("as")
        .map_or(minted, |text| text.parse().unwrap());
    // The envelope begins with the id, so that a listing shows whose it is.
    let bytes = number(fields, "bytes", 1);
    let envelope = format!("{:x<bytes$}", fields["id"]);
    NewMessage {
        is_heard: false,
        sender_name: MemberName::parse(&name_of(id.sender.member)).unwrap(),
        id,
        broker_message_id: BrokerMessageId(Ulid::from(minted)),
        wire_fingerprint: fingerprint(fields["fp"]),
        destination,
        priority: Priority::parse(priority).unwrap(),
        mentions,
        envelope: envelope.into(),
        accepted_at: WallMs(fields.get("at").map_or(1_000, |at| at.parse().unwrap())),
        expires_at: match fields.get("expires") {
            None => Some(WallMs(2_000)),
            Some(&"never") => None,
            Some(at) => Some(WallMs(at.parse().unwrap())),
        },
        limiter: Some(LimiterNote {
            window: 9,
            counted: true,
        }),
        epoch: fields.get("epoch").map(|text| text.parse().unwrap()),
        session: None,
    }
}

pub(super) fn queue(name: &str) -> QueueName {
    QueueName::parse(name).unwrap()
}

/// `1.2/agent`.
pub(super) fn place(text: &str) -> Ack {
    let (place, agent) = text.split_once('/').unwrap();
    Ack {
        history_id: place.parse().unwrap(),
        agent: AgentName::parse(agent).unwrap(),
    }
}

fn outcome(accepted: &Accepted) -> String {
    match accepted {
        Accepted::Created { history_id, .. } => format!("created {history_id}"),
        Accepted::Duplicate(consumed) => format!("duplicate {}", consumed.history_id),
        Accepted::Conflict(consumed) => format!("conflict {}", consumed.wire_fingerprint.0[0]),
        Accepted::UnknownRecipient => "unknown_recipient".to_owned(),
        Accepted::OtherEpoch(epoch) => format!("other_epoch {epoch}"),
        Accepted::Barred(bar) => format!("barred {bar:?}"),
        Accepted::Superseded => "superseded".to_owned(),
        Accepted::Failed(_) => "failed".to_owned(),
    }
}

fn shown(changed: Result<bool, StorageError>) -> String {
    match changed {
        Ok(true) => "new".to_owned(),
        Ok(false) => "known".to_owned(),
        Err(error) => refused(&error),
    }
}

pub(super) fn refused(error: &StorageError) -> String {
    match error {
        StorageError::UnknownMesh(_) => "unknown_mesh",
        StorageError::UnknownMember(_) => "unknown_member",
        StorageError::UnknownAgent(_) => "unknown_agent",
        StorageError::Full => "full",
        StorageError::Held => "held",
        StorageError::TopicFull(_) => "topic_full",
        StorageError::Unavailable(_) => "unavailable",
    }
    .to_owned()
}

pub(super) fn short(party: &heddle_core::ids::Party) -> String {
    format!("{}/{}", name_of(party.member), party.agent)
}

pub(super) fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(" ")
    }
}
