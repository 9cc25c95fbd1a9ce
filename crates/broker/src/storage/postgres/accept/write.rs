//! The effects of a set as rows: eleven statements at most, sent together.

use deadpool_postgres::{GenericClient, Object};
use futures_util::future::{BoxFuture, try_join_all, try_join3};
use heddle_core::ids::MeshId;
use tokio_postgres::types::ToSql;

use super::super::super::rows::Destination;
use super::super::acks::{self, AckJob};
use super::super::columns::{integer, member_key, mesh_key, message_key, rank};
use super::super::error::JobError;
use super::super::sql::execute;
use super::decide::{Decided, Placed};

const DEDUPE: &str = "
INSERT INTO client_message_dedupe (mesh_id, epoch, id_key, sender_member, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, seq, destination_kind, destination_ref, first_seen_at,
    expires_at, limiter_window, limiter_counted)
SELECT $1, $2, n.* FROM unnest($3::bytea[], $4::bytea[], $5::text[], $6::text[], $7::bytea[], $8::bytea[],
    $9::bigint[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[]) AS n";

const MESSAGE: &str = "
INSERT INTO message (mesh_id, broker_message_id, sender_member, sender_agent, sender_name,
    client_message_id, destination_kind, destination_ref, accepted_at, envelope)
SELECT $1, n.* FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[],
    $8::text[], $9::bigint[], $10::text[]) AS n";

const HISTORY: &str = "
INSERT INTO message_history (mesh_id, epoch, seq, broker_message_id)
SELECT $1, $2, n.* FROM unnest($3::bigint[], $4::bytea[]) AS n";

// The subscribers that this transaction sees, and no one else (BR-03). Topic by topic, through the index: LATERAL and
// OFFSET keep the planner from reading every subscription of the mesh for each message.
const TOPIC_DELIVERIES: &str = "
INSERT INTO delivery_queue (mesh_id, member_id, epoch, seq, agent, priority, broker_message_id)
SELECT $1, s.member_id, $2, n.seq, s.agent, n.priority, n.id
FROM unnest($3::text[], $4::bigint[], $5::smallint[], $6::bytea[]) AS n (topic, seq, priority, id)
CROSS JOIN LATERAL (SELECT t.member_id, t.agent FROM topic_subscription t
    WHERE t.mesh_id = $1 AND t.topic = n.topic OFFSET 0) AS s";

// The same where somebody has not granted a sender as much; WITHHELD has run before it.
const GRANTED_DELIVERIES: &str = "
INSERT INTO delivery_queue (mesh_id, member_id, epoch, seq, agent, priority, broker_message_id)
SELECT $1, s.member_id, $2, n.seq, s.agent, n.priority, n.id
FROM unnest($3::text[], $4::bigint[], $5::smallint[], $6::bytea[]) AS n (topic, seq, priority, id)
CROSS JOIN LATERAL (SELECT t.member_id, t.agent FROM topic_subscription t
    WHERE t.mesh_id = $1 AND t.topic = n.topic OFFSET 0) AS s
LEFT JOIN LATERAL (SELECT TRUE AS is_withheld FROM delivery_withheld w
    WHERE w.mesh_id = $1 AND w.epoch = $2 AND w.seq = n.seq AND w.member_id = s.member_id OFFSET 0) AS w ON TRUE
WHERE w.is_withheld IS NULL";

const WITHHELD: &str = "
INSERT INTO delivery_withheld (mesh_id, epoch, member_id, seq)
SELECT $1, $2, n.* FROM unnest($3::bytea[], $4::bigint[]) AS n";

const DM_DELIVERIES: &str = "
INSERT INTO delivery_queue (mesh_id, epoch, member_id, agent, seq, priority, broker_message_id)
SELECT $1, $2, n.* FROM unnest($3::bytea[], $4::text[], $5::bigint[], $6::smallint[], $7::bytea[]) AS n";

const NEW_QUEUES: &str = "
INSERT INTO queue (mesh_id, queue) SELECT $1, n FROM unnest($2::text[]) AS n ON CONFLICT DO NOTHING";

const QUEUE_ITEMS: &str = "
INSERT INTO queue_item (mesh_id, epoch, queue, seq, priority, broker_message_id)
SELECT $1, $2, n.* FROM unnest($3::text[], $4::bigint[], $5::smallint[], $6::bytea[]) AS n";

const LOG_ROWS: &str = "
INSERT INTO log_row (mesh_id, epoch, seq, previous_epoch, previous_seq, broker_message_id)
SELECT $1, $2, n.* FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[]) AS n";

const MENTIONS: &str = "
INSERT INTO mention_index (mesh_id, epoch, member_id, agent, seq)
SELECT $1, $2, n.* FROM unnest($3::bytea[], $4::text[], $5::bigint[]) AS n";

const KEEP: &str = "UPDATE mesh SET next_seq = $2 WHERE mesh_id = $1";

type Texts<'m> = Vec<&'m str>;
type Bytes = Vec<Vec<u8>>;

/// What every message has, column by column.
#[derive(Default)]
struct Common<'m> {
    id_key: Vec<&'m [u8]>,
    sender_member: Bytes,
    sender_agent: Texts<'m>,
    sender_name: Texts<'m>,
    client_message_id: Texts<'m>,
    wire_fingerprint: Vec<&'m [u8]>,
    broker_message_id: Bytes,
    seq: Vec<i64>,
    destination_kind: Texts<'m>,
    destination_ref: Vec<String>,
    accepted_at: Vec<i64>,
    expires_at: Vec<Option<i64>>,
    limiter_window: Vec<Option<i64>>,
    limiter_counted: Vec<Option<i64>>,
    envelope: Texts<'m>,
}

/// Where it goes: a name or a mailbox, its place, its priority, its id.
#[derive(Default)]
struct FanOut<'m> {
    name: Texts<'m>,
    member: Bytes,
    seq: Vec<i64>,
    priority: Vec<i16>,
    id: Bytes,
    previous_epoch: Vec<i64>,
    previous_seq: Vec<i64>,
}

#[derive(Default)]
struct Rows<'m> {
    common: Common<'m>,
    topics: FanOut<'m>,
    direct: FanOut<'m>,
    queues: FanOut<'m>,
    log: FanOut<'m>,
    mentions: FanOut<'m>,
    withheld: FanOut<'m>,
}

/// Everything that may be run here.
pub(super) const STATEMENTS: [&str; 12] = [
    DEDUPE,
    MESSAGE,
    HISTORY,
    TOPIC_DELIVERIES,
    GRANTED_DELIVERIES,
    WITHHELD,
    DM_DELIVERIES,
    NEW_QUEUES,
    QUEUE_ITEMS,
    LOG_ROWS,
    MENTIONS,
    KEEP,
];

/// Writes, and commits: one trip to the server.
///
/// IMPORTANT: a statement that fails undoes the transaction at once, and the commit behind it, which is sent already, is
/// then a rollback. So its answer counts only where nothing before it has failed.
pub(super) async fn write_and_commit(
    client: &Object,
    mesh: MeshId,
    decided: &Decided<'_>,
    acked: &[&AckJob],
) -> Result<Vec<usize>, JobError> {
    let commit = async { Ok(client.batch_execute("COMMIT").await?) };
    let write = write(client, mesh, decided);
    let marked = acks::mark(client, mesh, acked);
    let ((), changed, ()) = try_join3(write, marked, commit).await?;
    Ok(changed)
}

/// Nothing, where nothing stays.
pub(super) async fn write<C: GenericClient>(
    transaction: &C,
    mesh: MeshId,
    decided: &Decided<'_>,
) -> Result<(), JobError> {
    if decided.placed.is_empty() {
        return Ok(());
    }
    let mut rows = Rows::default();
    for placed in &decided.placed {
        rows.add(placed);
    }
    let (mesh, epoch) = (mesh_key(mesh), integer(decided.next.epoch));
    let next_seq = integer(decided.next.seq);
    let new_queues: Vec<&str> = decided
        .new_queues
        .iter()
        .map(heddle_core::names::QueueName::as_str)
        .collect();
    let head: [&(dyn ToSql + Sync); 2] = [&mesh, &epoch];
    let statements = Statements { transaction, head };
    let mut sent = statements.common(&rows.common);
    sent.extend(statements.fan_out(&rows));
    if !new_queues.is_empty() {
        sent.push(statements.send(NEW_QUEUES, &head[..1], vec![&new_queues]));
    }
    sent.push(statements.send(KEEP, &head[..1], vec![&next_seq]));
    try_join_all(sent).await?;
    Ok(())
}

struct Statements<'s, C> {
    transaction: &'s C,
    head: [&'s (dyn ToSql + Sync); 2],
}

type Sent<'s> = BoxFuture<'s, Result<u64, JobError>>;

impl<'s, C: GenericClient> Statements<'s, C> {
    fn send(
        &self,
        sql: &'static str,
        head: &[&'s (dyn ToSql + Sync)],
        rest: Vec<&'s (dyn ToSql + Sync)>,
    ) -> Sent<'s> {
        let params: Vec<&'s (dyn ToSql + Sync)> = head.iter().copied().chain(rest).collect();
        let transaction = self.transaction;
        Box::pin(async move { execute(transaction, sql, &params).await })
    }

    fn common(&self, rows: &'s Common<'_>) -> Vec<Sent<'s>> {
        let dedupe: Vec<&(dyn ToSql + Sync)> = vec![
            &rows.id_key,
            &rows.sender_member,
            &rows.sender_agent,
            &rows.client_message_id,
            &rows.wire_fingerprint,
            &rows.broker_message_id,
            &rows.seq,
            &rows.destination_kind,
            &rows.destination_ref,
            &rows.accepted_at,
            &rows.expires_at,
            &rows.limiter_window,
            &rows.limiter_counted,
        ];
        let message: Vec<&(dyn ToSql + Sync)> = vec![
            &rows.broker_message_id,
            &rows.sender_member,
            &rows.sender_agent,
            &rows.sender_name,
            &rows.client_message_id,
            &rows.destination_kind,
            &rows.destination_ref,
            &rows.accepted_at,
            &rows.envelope,
        ];
        vec![
            self.send(DEDUPE, &self.head, dedupe),
            self.send(MESSAGE, &self.head[..1], message),
            self.send(
                HISTORY,
                &self.head,
                vec![&rows.seq, &rows.broker_message_id],
            ),
        ]
    }

    fn fan_out(&self, rows: &'s Rows<'_>) -> Vec<Sent<'s>> {
        let (topics, direct, queues) = (&rows.topics, &rows.direct, &rows.queues);
        let (log, mentions, withheld) = (&rows.log, &rows.mentions, &rows.withheld);
        let to_topics = if withheld.seq.is_empty() {
            TOPIC_DELIVERIES
        } else {
            GRANTED_DELIVERIES
        };
        let lists: [(&'static str, bool, Vec<&(dyn ToSql + Sync)>); 6] = [
            (
                WITHHELD,
                withheld.seq.is_empty(),
                vec![&withheld.member, &withheld.seq],
            ),
            (
                to_topics,
                topics.seq.is_empty(),
                vec![&topics.name, &topics.seq, &topics.priority, &topics.id],
            ),
            (
                DM_DELIVERIES,
                direct.seq.is_empty(),
                vec![
                    &direct.member,
                    &direct.name,
                    &direct.seq,
                    &direct.priority,
                    &direct.id,
                ],
            ),
            (
                QUEUE_ITEMS,
                queues.seq.is_empty(),
                vec![&queues.name, &queues.seq, &queues.priority, &queues.id],
            ),
            (
                LOG_ROWS,
                log.seq.is_empty(),
                vec![&log.seq, &log.previous_epoch, &log.previous_seq, &log.id],
            ),
            (
                MENTIONS,
                mentions.seq.is_empty(),
                vec![&mentions.member, &mentions.name, &mentions.seq],
            ),
        ];
        let lists = lists.into_iter().filter(|(_, is_empty, _)| !is_empty);
        lists
            .map(|(sql, _, columns)| self.send(sql, &self.head, columns))
            .collect()
    }
}

impl<'m> Rows<'m> {
    fn add(&mut self, placed: &Placed<'m>) {
        let (new, seq) = (placed.new, integer(placed.at.seq));
        self.common.add(placed);
        let list = match &new.destination {
            Destination::Topic(topic) => {
                self.topics.name.push(topic.as_str());
                &mut self.topics
            }
            // Accepted, and delivered to nobody.
            Destination::Dm(party) if placed.withheld.contains(&party.member) => {
                return self.add_rest(placed);
            }
            Destination::Dm(party) => {
                self.direct.name.push(party.agent.as_str());
                self.direct.member.push(member_key(party.member));
                &mut self.direct
            }
            Destination::Queue(queue) => {
                self.queues.name.push(queue.as_str());
                &mut self.queues
            }
            Destination::Log => {
                self.log.previous_epoch.push(integer(placed.previous.epoch));
                self.log.previous_seq.push(integer(placed.previous.seq));
                &mut self.log
            }
        };
        list.seq.push(seq);
        list.priority.push(rank(new.priority));
        list.id.push(message_key(new.broker_message_id));
        self.add_rest(placed);
    }

    /// Mentions, and who gets nothing.
    fn add_rest(&mut self, placed: &Placed<'m>) {
        let seq = integer(placed.at.seq);
        for member in &placed.withheld {
            self.withheld.member.push(member_key(*member));
            self.withheld.seq.push(seq);
        }
        for party in &placed.mentions {
            self.mentions.member.push(member_key(party.member));
            self.mentions.name.push(party.agent.as_str());
            self.mentions.seq.push(seq);
        }
    }
}

impl<'m> Common<'m> {
    fn add(&mut self, placed: &Placed<'m>) {
        let new = placed.new;
        self.id_key.push(&new.id.key.0);
        self.sender_member.push(member_key(new.id.sender.member));
        self.sender_agent.push(new.id.sender.agent.as_str());
        self.sender_name.push(new.sender_name.as_str());
        self.client_message_id
            .push(new.id.client_message_id.as_str());
        self.wire_fingerprint.push(&new.wire_fingerprint.0);
        self.broker_message_id
            .push(message_key(new.broker_message_id));
        self.seq.push(integer(placed.at.seq));
        self.destination_kind.push(new.destination.kind().as_str());
        self.destination_ref.push(new.destination.to_string());
        self.accepted_at.push(new.accepted_at.0);
        self.expires_at.push(new.expires_at.map(|at| at.0));
        let note = new.limiter;
        self.limiter_window
            .push(note.map(|note| integer(note.window)));
        self.limiter_counted
            .push(note.map(|note| i64::from(note.counted)));
        self.envelope.push(&new.envelope);
    }
}
