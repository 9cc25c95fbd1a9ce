//! B2 and B3 in SQL: a batch is decided message by message, and written in one savepoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use heddle_core::envelope::DestinationKind;
use heddle_core::ids::{HistoryId, MemberId, MeshId};
use heddle_core::membership::{Bar, Capabilities};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::rows::{Accepted, Destination, NewMessage};
use super::columns::{Columns, member_key, mesh_key};
use super::effects::Effects;
use super::error::JobError;
use super::grants;
use super::history::Line;
use super::look::{Consumption, is_registered};
use super::queues;
use crate::accept::b2_resolve::{Resolution, barred, resolve};

const TOPIC: &str = "SELECT 1 FROM topic WHERE mesh_id = ?1 AND topic = ?2";

// Neither DISTINCT nor ORDER BY nor a join with the topic: with any of them SQLite prepares the cached
// statement anew for every use.
const SUBSCRIBED_MEMBERS: &str = "
SELECT member_id FROM topic_subscription WHERE mesh_id = ?1 AND topic = ?2";

const BAR: &str = "
SELECT revoked_at IS NOT NULL FROM member_standing
WHERE mesh_id = ?1 AND member_id = ?2 AND (revoked_at IS NOT NULL OR blocked_at IS NOT NULL)";

/// The statements above, for the test that looks at their plans.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[TOPIC, SUBSCRIBED_MEMBERS, BAR];

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
    let mut accept = Accept {
        connection,
        mesh,
        undo,
        line,
        consumption: Consumption::on(connection, mesh)?,
        effects: Effects::on(connection, mesh)?,
        recipients: BTreeMap::new(),
        sender: None,
    };
    let mut answers = Vec::with_capacity(messages.len());
    for message in messages {
        answers.push(accept.one(message)?);
    }
    accept.line.keep(connection, mesh)?;
    Ok(answers)
}

/// A rule of the tables was broken, by this message and nothing else.
fn is_violation(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

/// One batch at work.
struct Accept<'c> {
    connection: &'c Connection,
    mesh: MeshId,
    undo: Undo,
    line: Line,
    consumption: Consumption<'c>,
    effects: Effects<'c>,
    /// Destinations resolved so far; nothing changes them while the batch runs. `None`: does not exist.
    recipients: BTreeMap<Destination, Option<Arc<[MemberId]>>>,
    /// The sender that was looked at last.
    sender: Option<Sender>,
}

/// Who sends, as the transaction sees it.
struct Sender {
    member: MemberId,
    /// What keeps it from being heard.
    bar: Option<Bar>,
    /// Members that have granted it less than everything.
    refusing: BTreeMap<MemberId, Capabilities>,
}

/// Who gets a delivery, and who would have.
struct Recipients {
    members: Arc<[MemberId]>,
    withheld: Vec<MemberId>,
}

impl Accept<'_> {
    fn one(&mut self, new: &NewMessage) -> rusqlite::Result<Accepted> {
        let consumed = self.consumption.of(&new.id)?;
        let recipients = self.recipients(&new.destination)?;
        let row = resolve(
            consumed.map(|consumed| consumed.wire_fingerprint),
            new.wire_fingerprint,
            recipients.is_some(),
        );
        let bar = self.look_at(new.id.sender.member)?;
        if let Some(bar) = barred(row.resolution, bar, new.is_heard) {
            return Ok(Accepted::Barred(bar));
        }
        match (row.resolution, consumed, recipients) {
            (Resolution::Commit, None, Some(_))
                if new.epoch.is_some_and(|epoch| epoch != self.line.epoch) =>
            {
                Ok(Accepted::OtherEpoch(self.line.epoch))
            }
            (Resolution::Commit, None, Some(recipients)) => {
                let recipients = self.allowed(recipients, new.destination.kind());
                self.commit(new, recipients)
            }
            (Resolution::Duplicate, Some(consumed), _) => Ok(Accepted::Duplicate(consumed)),
            (Resolution::Conflict, Some(consumed), _) => Ok(Accepted::Conflict(consumed)),
            _ => Ok(Accepted::UnknownRecipient),
        }
    }

    /// What keeps a sender from being heard. A batch comes from one member.
    fn look_at(&mut self, member: MemberId) -> rusqlite::Result<Option<Bar>> {
        if let Some(known) = self.sender.as_ref().filter(|one| one.member == member) {
            return Ok(known.bar);
        }
        let bar = self.bar(member)?;
        self.sender = Some(Sender {
            member,
            bar,
            refusing: grants::of_sender(self.connection, self.mesh, member)?,
        });
        Ok(bar)
    }

    /// Who of the recipients gets a message of this kind, and who has not granted as much to its sender.
    fn allowed(&self, all: Arc<[MemberId]>, kind: DestinationKind) -> Recipients {
        let refusing = self.sender.as_ref().map(|sender| &sender.refusing);
        let Some(refusing) = refusing.filter(|refusing| !refusing.is_empty()) else {
            return Recipients {
                members: all,
                withheld: Vec::new(),
            };
        };
        let granted = |member: &MemberId| {
            let row = refusing.get(member);
            row.is_none_or(|granted| granted.allow(kind))
        };
        let (members, withheld): (Vec<MemberId>, _) =
            all.iter().copied().partition(|member| granted(member));
        Recipients {
            members: members.into(),
            withheld,
        }
    }

    fn bar(&self, sender: MemberId) -> rusqlite::Result<Option<Bar>> {
        let key = params![mesh_key(self.mesh), member_key(sender)];
        let mut statement = self.connection.prepare_cached(BAR)?;
        let found = statement.query_row(key, |row| row.get::<_, bool>(0));
        Ok(found.optional()?.map(|is_revoked| {
            if is_revoked {
                Bar::Revoked
            } else {
                Bar::Blocked
            }
        }))
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
                let key = params![mesh_key(self.mesh), topic.as_str()];
                let members = self
                    .connection
                    .prepare_cached(SUBSCRIBED_MEMBERS)?
                    .query_map(key, |row| Columns::of(row).member())?
                    .collect::<rusqlite::Result<BTreeSet<MemberId>>>()?;
                // A topic that has subscribers exists.
                let exists =
                    !members.is_empty() || self.connection.prepare_cached(TOPIC)?.exists(key)?;
                exists.then(|| members.into_iter().collect())
            }
            Destination::Dm(party) => {
                is_registered(self.connection, self.mesh, party)?.then(|| Arc::from([party.member]))
            }
            // Made by the first message, in its own place: nobody is woken by it.
            Destination::Queue(_) | Destination::Log => Some(Arc::from([])),
        };
        self.recipients.insert(destination.clone(), found.clone());
        Ok(found)
    }

    /// Writes the effects. What is undone leaves its place to the next (C4).
    fn commit(&mut self, new: &NewMessage, recipients: Recipients) -> rusqlite::Result<Accepted> {
        let history_id = self.line.next();
        let Recipients { members, withheld } = recipients;
        let is_new_queue = match self.undo {
            Undo::Batch => self.write(new, history_id, &withheld)?,
            Undo::Message => {
                let run = |sql| self.connection.prepare_cached(sql)?.execute([]);
                run("SAVEPOINT heddle_message")?;
                match self.write(new, history_id, &withheld) {
                    Ok(is_new_queue) => {
                        run("RELEASE heddle_message")?;
                        is_new_queue
                    }
                    Err(error) if is_violation(&error) => {
                        run("ROLLBACK TO heddle_message")?;
                        run("RELEASE heddle_message")?;
                        return Ok(Accepted::Failed(error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        self.line.advance();
        Ok(Accepted::Created {
            history_id,
            recipients: members,
            withheld: withheld.len(),
            is_new_queue,
        })
    }

    /// The effects, and the queue of a message to one that is not there yet. True if it was made.
    fn write(
        &mut self,
        new: &NewMessage,
        at: HistoryId,
        withheld: &[MemberId],
    ) -> rusqlite::Result<bool> {
        let is_new_queue = match &new.destination {
            Destination::Queue(queue) => queues::create(self.connection, self.mesh, queue)?,
            Destination::Topic(_) | Destination::Dm(_) | Destination::Log => false,
        };
        self.effects.write(new, at, withheld)?;
        Ok(is_new_queue)
    }
}
