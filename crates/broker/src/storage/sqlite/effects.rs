//! The five effects of an accepted message as rows: dedupe, message, history, deliveries (or its place
//! in a queue or in the log), mentions.

use heddle_core::ids::{HistoryId, MemberId, MeshId};
use rusqlite::{CachedStatement, Connection, params};

use super::super::rows::{Destination, NewMessage};
use super::columns::{integer, member_key, mesh_key, message_key};

const DEDUPE: &str = "
INSERT INTO client_message_dedupe (mesh_id, id_key, sender_member, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, epoch, seq, destination_kind, destination_ref,
    first_seen_at, expires_at, limiter_window, limiter_counted)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

const MESSAGE: &str = "
INSERT INTO message (mesh_id, broker_message_id, sender_member, sender_agent, sender_name,
    client_message_id, destination_kind, destination_ref, accepted_at, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const HISTORY: &str = "
INSERT INTO message_history (mesh_id, epoch, seq, broker_message_id) VALUES (?1, ?2, ?3, ?4)";

// The subscribers that this transaction sees, and no one else (BR-03). OR FAIL: a failure is undone by
// our own savepoint, so SQLite need not keep one for the statement.
const TOPIC_DELIVERIES: &str = "
INSERT OR FAIL INTO delivery_queue (mesh_id, member_id, is_delivered, priority, epoch, seq, agent,
    broker_message_id)
SELECT mesh_id, member_id, 0, ?6, ?3, ?4, agent, ?5 FROM topic_subscription
WHERE mesh_id = ?1 AND topic = ?2";

// The same where somebody has not granted its sender as much.
const GRANTED_DELIVERIES: &str = "
INSERT OR FAIL INTO delivery_queue (mesh_id, member_id, is_delivered, priority, epoch, seq, agent,
    broker_message_id)
SELECT s.mesh_id, s.member_id, 0, ?6, ?3, ?4, s.agent, ?5 FROM topic_subscription s
WHERE s.mesh_id = ?1 AND s.topic = ?2 AND NOT EXISTS (SELECT 1 FROM delivery_withheld w
    WHERE w.mesh_id = s.mesh_id AND w.epoch = ?3 AND w.seq = ?4 AND w.member_id = s.member_id)";

const WITHHELD: &str = "
INSERT INTO delivery_withheld (mesh_id, epoch, seq, member_id) VALUES (?1, ?2, ?3, ?4)";

const DM_DELIVERY: &str = "
INSERT INTO delivery_queue (mesh_id, member_id, is_delivered, priority, epoch, seq, agent,
    broker_message_id)
VALUES (?1, ?2, 0, ?7, ?3, ?4, ?5, ?6)";

const QUEUE_ITEM: &str = "
INSERT INTO queue_item (mesh_id, queue, epoch, seq, priority, broker_message_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

// A mention of nobody gets no row.
const MENTION: &str = "
INSERT INTO mention_index (mesh_id, member_id, agent, epoch, seq)
SELECT mesh_id, member_id, agent, ?4, ?5 FROM agent
WHERE mesh_id = ?1 AND member_id = ?2 AND agent = ?3";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    DEDUPE,
    MESSAGE,
    HISTORY,
    TOPIC_DELIVERIES,
    GRANTED_DELIVERIES,
    WITHHELD,
    DM_DELIVERY,
    QUEUE_ITEM,
    MENTION,
];

/// The statements that every message needs, prepared once for a batch.
pub(super) struct Effects<'c> {
    connection: &'c Connection,
    mesh: [u8; 16],
    dedupe: CachedStatement<'c>,
    message: CachedStatement<'c>,
    history: CachedStatement<'c>,
}

impl<'c> Effects<'c> {
    pub(super) fn on(connection: &'c Connection, mesh: MeshId) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            mesh: mesh_key(mesh),
            dedupe: connection.prepare_cached(DEDUPE)?,
            message: connection.prepare_cached(MESSAGE)?,
            history: connection.prepare_cached(HISTORY)?,
        })
    }

    /// Writes all of them, or fails half way: then the caller undoes what is there.
    pub(super) fn write(
        &mut self,
        new: &NewMessage,
        at: HistoryId,
        withheld: &[MemberId],
    ) -> rusqlite::Result<()> {
        let reference = new.destination.to_string();
        self.write_dedupe(new, at, &reference)?;
        self.write_message(new, &reference)?;
        self.history.execute(params![
            self.mesh,
            integer(at.epoch),
            integer(at.seq),
            message_key(new.broker_message_id)
        ])?;
        self.write_withheld(at, withheld)?;
        self.write_deliveries(new, at, withheld)?;
        self.write_mentions(new, at)
    }

    fn write_dedupe(
        &mut self,
        new: &NewMessage,
        at: HistoryId,
        reference: &str,
    ) -> rusqlite::Result<usize> {
        self.dedupe.execute(params![
            self.mesh,
            new.id.key.0,
            member_key(new.id.sender.member),
            new.id.sender.agent.as_str(),
            new.id.client_message_id.as_str(),
            new.wire_fingerprint.0,
            message_key(new.broker_message_id),
            integer(at.epoch),
            integer(at.seq),
            new.destination.kind().as_str(),
            reference,
            new.accepted_at.0,
            new.expires_at.map(|at| at.0),
            new.limiter.map(|note| integer(note.window)),
            new.limiter.map(|note| note.counted),
        ])
    }

    fn write_message(&mut self, new: &NewMessage, reference: &str) -> rusqlite::Result<usize> {
        self.message.execute(params![
            self.mesh,
            message_key(new.broker_message_id),
            member_key(new.id.sender.member),
            new.id.sender.agent.as_str(),
            new.sender_name.as_str(),
            new.id.client_message_id.as_str(),
            new.destination.kind().as_str(),
            reference,
            new.accepted_at.0,
            new.envelope,
        ])
    }

    /// IMPORTANT: before the deliveries, which leave these members out.
    fn write_withheld(&self, at: HistoryId, withheld: &[MemberId]) -> rusqlite::Result<()> {
        let (epoch, seq) = (integer(at.epoch), integer(at.seq));
        for member in withheld {
            let row = params![self.mesh, epoch, seq, member_key(*member)];
            self.connection.prepare_cached(WITHHELD)?.execute(row)?;
        }
        Ok(())
    }

    fn write_deliveries(
        &self,
        new: &NewMessage,
        at: HistoryId,
        withheld: &[MemberId],
    ) -> rusqlite::Result<usize> {
        let (epoch, seq) = (integer(at.epoch), integer(at.seq));
        let message_id = message_key(new.broker_message_id);
        let priority = new.priority.rank();
        match &new.destination {
            Destination::Topic(topic) => {
                let sql = if withheld.is_empty() {
                    TOPIC_DELIVERIES
                } else {
                    GRANTED_DELIVERIES
                };
                let mut statement = self.connection.prepare_cached(sql)?;
                let topic = topic.as_str();
                statement.execute(params![self.mesh, topic, epoch, seq, message_id, priority])
            }
            Destination::Dm(party) if withheld.contains(&party.member) => Ok(0),
            Destination::Dm(party) => {
                let mut statement = self.connection.prepare_cached(DM_DELIVERY)?;
                statement.execute(params![
                    self.mesh,
                    member_key(party.member),
                    epoch,
                    seq,
                    party.agent.as_str(),
                    message_id,
                    priority
                ])
            }
            Destination::Queue(queue) => {
                let mut statement = self.connection.prepare_cached(QUEUE_ITEM)?;
                let queue = queue.as_str();
                statement.execute(params![self.mesh, queue, epoch, seq, priority, message_id])
            }
            Destination::Log => {
                super::log::append(self.connection, self.mesh, at, new.broker_message_id)
            }
        }
    }

    fn write_mentions(&self, new: &NewMessage, at: HistoryId) -> rusqlite::Result<()> {
        for mention in &new.mentions {
            self.connection.prepare_cached(MENTION)?.execute(params![
                self.mesh,
                member_key(mention.member),
                mention.agent.as_str(),
                integer(at.epoch),
                integer(at.seq)
            ])?;
        }
        Ok(())
    }
}
