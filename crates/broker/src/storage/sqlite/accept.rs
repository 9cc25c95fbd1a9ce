//! B2 and B3 in SQL: a fixed handful of prepared statements for each message of a batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_core::ids::{HistoryId, MemberId, MeshId};
use rusqlite::{CachedStatement, Connection, ErrorCode, params};

use super::super::error::StorageError;
use super::super::rows::{Accepted, Destination, NewMessage};
use super::columns::{Columns, integer, member_key, mesh_key, message_key};
use super::error::JobError;
use super::history::Line;
use super::look::{Consumption, is_registered};
use crate::accept::b2_resolve::{Resolution, resolve};

const DEDUPE: &str = "
INSERT INTO client_message_dedupe (mesh_id, id_key, sender_member, sender_agent, client_message_id,
    wire_fingerprint, broker_message_id, epoch, seq, destination_kind, destination_ref,
    first_seen_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";

const MESSAGE: &str = "
INSERT INTO message (mesh_id, broker_message_id, sender_member, sender_agent, sender_name,
    client_message_id, destination_kind, destination_ref, accepted_at, envelope)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const HISTORY: &str = "
INSERT INTO message_history (mesh_id, epoch, seq, broker_message_id) VALUES (?1, ?2, ?3, ?4)";

// The subscribers that this transaction sees, and no one else (BR-03). OR FAIL: a failure is undone by
// our own savepoint, so SQLite need not keep one for the statement.
const TOPIC_DELIVERIES: &str = "
INSERT OR FAIL INTO delivery_queue (mesh_id, member_id, is_acked, epoch, seq, agent, broker_message_id)
SELECT mesh_id, member_id, 0, ?3, ?4, agent, ?5 FROM topic_subscription
WHERE mesh_id = ?1 AND topic = ?2";

const DM_DELIVERY: &str = "
INSERT INTO delivery_queue (mesh_id, member_id, is_acked, epoch, seq, agent, broker_message_id)
VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6)";

const MENTION: &str = "
INSERT INTO mention_index (mesh_id, member_id, agent, epoch, seq)
SELECT mesh_id, member_id, agent, ?4, ?5 FROM agent
WHERE mesh_id = ?1 AND member_id = ?2 AND agent = ?3";

// No row: there is no such topic. One row with null: nobody is subscribed. Neither DISTINCT nor ORDER
// BY: with them SQLite prepares a cached statement anew for every use.
const SUBSCRIBED_MEMBERS: &str = "
SELECT s.member_id FROM topic t
LEFT JOIN topic_subscription s ON s.mesh_id = t.mesh_id AND s.topic = t.topic
WHERE t.mesh_id = ?1 AND t.topic = ?2";

/// How far a failed write is undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    Batch,
    Message,
}

/// Decides and writes a batch. Inside a transaction of the writer, in a savepoint of its own.
///
/// A message whose rows cannot be written is undone alone. That takes a savepoint for each message,
/// which costs a third of the whole work, for a fault that next to never happens. So a batch is first
/// written under one savepoint, and only if that fails once more with one for each message.
pub(super) fn accept(
    connection: &Connection,
    mesh: MeshId,
    messages: &[NewMessage],
) -> Result<Vec<Accepted>, JobError> {
    if messages.len() == 1 {
        // The writer's savepoint around this job undoes the one message there is.
        let written = write(connection, mesh, messages, Undo::Batch);
        return written.map_err(|error| match error {
            JobError::Sqlite(error) if is_violation(&error) => JobError::Only(error.to_string()),
            other => other,
        });
    }
    let run = |sql| connection.prepare_cached(sql)?.execute([]);
    run("SAVEPOINT heddle_batch")?;
    let answers = match write(connection, mesh, messages, Undo::Batch) {
        Err(JobError::Sqlite(error)) if is_violation(&error) => {
            run("ROLLBACK TO heddle_batch")?;
            write(connection, mesh, messages, Undo::Message)?
        }
        // IMPORTANT: after any other error no statement may run. The writer asks the connection
        // whether the disk or the file is at fault, and then the whole transaction goes.
        other => other?,
    };
    run("RELEASE heddle_batch")?;
    Ok(answers)
}

fn write(
    connection: &Connection,
    mesh: MeshId,
    messages: &[NewMessage],
    undo: Undo,
) -> Result<Vec<Accepted>, JobError> {
    let line = Line::of(connection, mesh)?.ok_or(StorageError::UnknownMesh(mesh))?;
    let mut accept = Accept::begin(connection, mesh, line, undo)?;
    let mut answers = Vec::with_capacity(messages.len());
    for message in messages {
        answers.push(accept.one(message)?);
    }
    accept.line.keep(connection, mesh)?;
    Ok(answers)
}

fn is_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// One batch at work: the place in line, the prepared statements, the destinations already resolved.
struct Accept<'c> {
    connection: &'c Connection,
    mesh: MeshId,
    mesh_key: [u8; 16],
    undo: Undo,
    line: Line,
    consumption: Consumption<'c>,
    /// Nothing in this transaction changes them while the batch runs. `None`: does not exist.
    recipients: BTreeMap<Destination, Option<Arc<[MemberId]>>>,
    dedupe: CachedStatement<'c>,
    message: CachedStatement<'c>,
    history: CachedStatement<'c>,
    topic_deliveries: CachedStatement<'c>,
}

impl<'c> Accept<'c> {
    fn begin(
        connection: &'c Connection,
        mesh: MeshId,
        line: Line,
        undo: Undo,
    ) -> rusqlite::Result<Self> {
        let prepare = |sql| connection.prepare_cached(sql);
        Ok(Self {
            connection,
            mesh,
            mesh_key: mesh_key(mesh),
            undo,
            line,
            consumption: Consumption::on(connection, mesh)?,
            recipients: BTreeMap::new(),
            dedupe: prepare(DEDUPE)?,
            message: prepare(MESSAGE)?,
            history: prepare(HISTORY)?,
            topic_deliveries: prepare(TOPIC_DELIVERIES)?,
        })
    }

    fn one(&mut self, new: &NewMessage) -> rusqlite::Result<Accepted> {
        let consumed = self.consumption.of(&new.id)?;
        let recipients = self.recipients(&new.destination)?;
        let row = resolve(
            consumed.map(|consumed| consumed.wire_fingerprint),
            new.wire_fingerprint,
            recipients.is_some(),
        );
        match (row.resolution, consumed, recipients) {
            (Resolution::Commit, None, Some(recipients)) => self.commit(new, recipients),
            (Resolution::Duplicate, Some(consumed), _) => Ok(Accepted::Duplicate(consumed)),
            (Resolution::Conflict, Some(consumed), _) => Ok(Accepted::Conflict(consumed)),
            _ => Ok(Accepted::UnknownRecipient),
        }
    }

    fn recipients(
        &mut self,
        destination: &Destination,
    ) -> rusqlite::Result<Option<Arc<[MemberId]>>> {
        if let Some(known) = self.recipients.get(destination) {
            return Ok(known.clone());
        }
        let found = match destination {
            Destination::Topic(topic) => {
                let members = self
                    .connection
                    .prepare_cached(SUBSCRIBED_MEMBERS)?
                    .query_map(params![self.mesh_key, topic.as_str()], |row| {
                        Columns::of(row).member_or_none()
                    })?
                    .collect::<rusqlite::Result<BTreeSet<Option<MemberId>>>>()?;
                let exists = !members.is_empty();
                exists.then(|| members.into_iter().flatten().collect())
            }
            Destination::Dm(party) => {
                is_registered(self.connection, self.mesh, party)?.then(|| Arc::from([party.member]))
            }
        };
        self.recipients.insert(destination.clone(), found.clone());
        Ok(found)
    }

    /// Writes all five effects, or undoes this message alone and leaves its place to the next (C4).
    fn commit(
        &mut self,
        new: &NewMessage,
        recipients: Arc<[MemberId]>,
    ) -> rusqlite::Result<Accepted> {
        let history_id = self.line.next();
        match self.undo {
            Undo::Batch => self.write(new, history_id)?,
            Undo::Message => {
                let connection = self.connection;
                let run = |sql| connection.prepare_cached(sql)?.execute([]);
                run("SAVEPOINT heddle_message")?;
                let written = self.write(new, history_id);
                if let Err(error) = written {
                    if !is_violation(&error) {
                        return Err(error);
                    }
                    run("ROLLBACK TO heddle_message")?;
                    run("RELEASE heddle_message")?;
                    return Ok(Accepted::Failed(error.to_string()));
                }
                run("RELEASE heddle_message")?;
            }
        }
        self.line.advance();
        Ok(Accepted::Created {
            history_id,
            recipients,
        })
    }

    fn write(&mut self, new: &NewMessage, at: HistoryId) -> rusqlite::Result<()> {
        let mesh = self.mesh_key;
        let message_id = message_key(new.broker_message_id);
        let sender = member_key(new.id.sender.member);
        let sender_agent = new.id.sender.agent.as_str();
        let client_message_id = new.id.client_message_id.as_str();
        let (epoch, seq) = (integer(at.epoch), integer(at.seq));
        let kind = new.destination.kind().as_str();
        let reference = new.destination.to_string();
        self.dedupe.execute(params![
            mesh,
            new.id.key.0,
            sender,
            sender_agent,
            client_message_id,
            new.wire_fingerprint.0,
            message_id,
            epoch,
            seq,
            kind,
            reference,
            new.accepted_at.0,
            new.expires_at.map(|at| at.0),
        ])?;
        self.message.execute(params![
            mesh,
            message_id,
            sender,
            sender_agent,
            new.sender_name.as_str(),
            client_message_id,
            kind,
            reference,
            new.accepted_at.0,
            new.envelope,
        ])?;
        self.history
            .execute(params![mesh, epoch, seq, message_id])?;
        match &new.destination {
            Destination::Topic(topic) => self.topic_deliveries.execute(params![
                mesh,
                topic.as_str(),
                epoch,
                seq,
                message_id
            ])?,
            Destination::Dm(party) => {
                self.connection
                    .prepare_cached(DM_DELIVERY)?
                    .execute(params![
                        mesh,
                        member_key(party.member),
                        epoch,
                        seq,
                        party.agent.as_str(),
                        message_id
                    ])?
            }
        };
        for mention in &new.mentions {
            let member = member_key(mention.member);
            self.connection.prepare_cached(MENTION)?.execute(params![
                mesh,
                member,
                mention.agent.as_str(),
                epoch,
                seq
            ])?;
        }
        Ok(())
    }
}
