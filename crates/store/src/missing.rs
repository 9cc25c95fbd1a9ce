//! Rows of the data that must be there and are not. A table without a row is as whole as one with it, so nothing in it tells; but
//! every change of this home has left an answer under its key, which says what it wrote. Where no row, no mark of a deleted one and
//! no floor of collected ones has that name, the row is gone.
//!
//! A repair takes such a change from the outbox, where that still has it, and reads the log of a shared mesh again. What comes back
//! from neither is named once, and not looked for any more.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr as _;

use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, IdKey, MeshId, Party};
use heddle_core::lamport::Stamp;
use heddle_core::op::{DataOp, is_sealed_as};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::Value;

use crate::data::about::About;
use crate::data::seal::is_sealed;
use crate::data::{clock_of, is_shared, take_op};
use crate::error::StoreError;
use crate::repair::RepairedRows;
use crate::store::Store;
use crate::sync::{is_of_this_op, read_anew};
use crate::unreadable::meshes;

/// Answers that are read at a time.
const ANSWERS_AT_ONCE: i64 = 500;
/// Rows that one sentence names.
const NAMED_MAX: usize = 10;

pub(crate) const ANSWERS: &str = "
    SELECT agent, request_key, answer FROM applied_request
    WHERE mesh_id = ?1 AND (agent, request_key) > (?2, ?3) ORDER BY agent, request_key LIMIT ?4";

pub(crate) const SENT: &str =
    "SELECT payload, wire_fingerprint FROM outbox WHERE id_key = ?1 AND kind = 'op'";

// A null is what nobody looks for; an answer of before has nothing there.
const LET_GO: &str = "
    UPDATE applied_request SET answer = json_set(answer, '$.on', NULL)
    WHERE mesh_id = ?1 AND agent = ?2 AND request_key = ?3";

/// A change of this home of which nothing is left in the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    mesh: MeshId,
    agent: String,
    request: String,
    pub(crate) stamp: Stamp,
    pub(crate) about: About,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about.called())
    }
}

impl Store {
    /// What is gone of a mesh, by name, among the first `answers_max` changes that this home has made in it.
    pub async fn missing(
        &self,
        mesh: MeshId,
        answers_max: u64,
    ) -> Result<BTreeSet<String>, StoreError> {
        let (mut found, mut looked) = (BTreeSet::new(), 0);
        let mut after = Some(Cursor::default());
        while let Some(from) = after.filter(|_| looked < answers_max) {
            let part = self.read(move |connection| part(connection, mesh, &from));
            let part = part.await?;
            looked += part.looked;
            found.extend(part.found.iter().map(ToString::to_string));
            after = part.next;
        }
        Ok(found)
    }
}

type Cursor = (String, String);

struct Part {
    found: Vec<Missing>,
    looked: u64,
    next: Option<Cursor>,
}

/// IMPORTANT: each answer is committed with its row, and what is looked up for it here is read behind it.
fn part(connection: &Connection, mesh: MeshId, after: &Cursor) -> Result<Part, StoreError> {
    let mut part = Part {
        found: Vec::new(),
        looked: 0,
        next: None,
    };
    // Before all rows have their digests nothing is known of any.
    if !is_sealed(connection)? {
        return Ok(part);
    }
    let mut statement = connection.prepare_cached(ANSWERS)?;
    let cells = params![mesh.0.to_bytes(), after.0, after.1, ANSWERS_AT_ONCE];
    let mut rows = statement.query(cells)?;
    while let Some(row) = rows.next()? {
        part.looked += 1;
        // What is no text is told of as such (`meaning.rs`).
        let (Ok(agent), Ok(request)) = (row.get::<_, String>(0), row.get::<_, String>(1)) else {
            continue;
        };
        let answer: Option<String> = row.get(2).ok();
        let told = answer.and_then(|answer| told(connection, mesh, &answer).transpose());
        part.next = Some((agent.clone(), request.clone()));
        let Some((stamp, about)) = told.transpose()? else {
            continue;
        };
        if is_missing(connection, mesh, &stamp, &about)? {
            part.found.push(Missing {
                mesh,
                agent,
                request,
                stamp,
                about,
            });
        }
    }
    let is_last = i64::try_from(part.looked).unwrap_or(0) < ANSWERS_AT_ONCE;
    part.next = part.next.filter(|_| !is_last);
    Ok(part)
}

pub(crate) fn is_missing(
    connection: &Connection,
    mesh: MeshId,
    stamp: &Stamp,
    about: &About,
) -> Result<bool, StoreError> {
    Ok(!about.is_there(connection, mesh, &stamp.peer)?
        && !about.is_collected(connection, mesh, stamp)?)
}

/// What the change that got this answer was about; none for a call that changes no data, and where nobody knows any more.
pub(crate) fn told(
    connection: &Connection,
    mesh: MeshId,
    answer: &str,
) -> Result<Option<(Stamp, About)>, StoreError> {
    let Ok(answer) = serde_json::from_str::<Value>(answer) else {
        return Ok(None);
    };
    let number = answer["lamport"].as_u64().filter(|number| *number > 0);
    let op = answer["op"].as_str().and_then(|op| op.parse().ok());
    let (Some(lamport), Some(op), Some(peer)) = (number, op, answer["peer"].as_str()) else {
        return Ok(None);
    };
    let stamp = Stamp {
        lamport,
        peer: heddle_core::lamport::PeerId::new(peer),
        op,
    };
    let about = match answer.get("on") {
        Some(on) => About::from_json(on),
        // An answer of before: what was made may be in its note, and what went out is in the outbox.
        None => match (
            answer["note"]["task"].as_str(),
            answer["note"]["path"].as_str(),
        ) {
            (Some(task), _) => task.parse().ok().map(About::Task),
            (None, Some(path)) => Some(About::File(path.to_owned())),
            (None, None) => sent(connection, mesh, &stamp)?.map(|op| About::of(&op.body)),
        },
    };
    Ok(about.map(|about| (stamp, about)))
}

/// The op as the outbox still has it.
fn sent(
    connection: &Connection,
    mesh: MeshId,
    stamp: &Stamp,
) -> Result<Option<DataOp>, StoreError> {
    let sender = Party::from_str(stamp.peer.as_str()).ok();
    let id = ClientMessageId::parse(&stamp.op.to_string()).ok();
    let (Some(sender), Some(id)) = (sender, id) else {
        return Ok(None);
    };
    let found = connection
        .prepare_cached(SENT)?
        .query_row([IdKey::of(mesh, &sender, &id).0], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, [u8; 32]>(1)?))
        })
        .optional()?;
    let Some((payload, made)) = found else {
        return Ok(None);
    };
    if !is_sealed_as(&payload, Fingerprint(made)) {
        return Ok(None);
    }
    let envelope: Value = serde_json::from_slice(&payload).unwrap_or_default();
    let op = DataOp::parse(envelope["body"].as_str().unwrap_or_default().as_bytes()).ok();
    Ok(op.filter(|op| op.stamp == *stamp))
}

/// All of them in a file that nobody else needs to have open.
pub(crate) fn all(connection: &Connection) -> Result<Vec<Missing>, StoreError> {
    let mut found = Vec::new();
    for mesh in meshes(connection)? {
        let mut after = Some(Cursor::default());
        while let Some(from) = after {
            let part = part(connection, mesh, &from)?;
            found.extend(part.found);
            after = part.next;
        }
    }
    Ok(found)
}

fn names(found: &[Missing]) -> BTreeSet<String> {
    found.iter().map(ToString::to_string).collect()
}

/// Of a file of the newest schema.
pub(crate) fn problem(connection: &Connection) -> Result<Option<String>, StoreError> {
    let found = names(&all(connection)?);
    let named: Vec<&str> = found.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = if found.len() > NAMED_MAX {
        " and more"
    } else {
        ""
    };
    let named = named.join(", ");
    Ok(match found.len() {
        0 => None,
        1 => Some(format!("a row is gone: {named}")),
        count => Some(format!("{count} rows are gone: {named}{more}")),
    })
}

/// In a file of the newest schema that is being put together anew, with its triggers away. `before`: what was gone when the rows
/// had come over, and nothing of them was taken out yet; what is taken out is named by whoever does it, and is gone for a reason.
pub(crate) fn settle(new: &Connection, before: &[Missing]) -> Result<RepairedRows, StoreError> {
    let mut settled = RepairedRows::default();
    for one in before {
        // A task is more than the steps of this home: what is left of it might call a task open that somebody holds.
        let op = match &one.about {
            About::Task(_) => None,
            _ => sent(new, one.mesh, &one.stamp)?,
        };
        let clock = clock_of(new, one.mesh)?.value;
        if let Some(op) = op.filter(|op| op.stamp.lamport <= clock) {
            bring_back(new, one.mesh, &op)?;
        }
    }
    let mut read_again = BTreeSet::new();
    for one in before {
        let is_shared = is_shared(new, one.mesh)?;
        if is_shared {
            read_again.insert(one.mesh);
        }
        let list = if one.about.is_there(new, one.mesh, &one.stamp.peer)? {
            &mut settled.brought_back
        } else if is_shared {
            &mut settled.from_log
        } else {
            &mut settled.gone
        };
        list.insert(one.to_string());
    }
    for one in all(new)? {
        let mesh = one.mesh.0.to_bytes();
        new.execute(LET_GO, params![mesh, one.agent, one.request])?;
    }
    for mesh in read_again {
        read_anew(new, mesh)?;
    }
    Ok(settled)
}

/// One that the tables do not take is gone, and takes nothing along.
fn bring_back(new: &Connection, mesh: MeshId, op: &DataOp) -> Result<(), StoreError> {
    new.execute_batch("SAVEPOINT heddle_missing")?;
    match take_op(new, mesh, op) {
        Ok(_) => {}
        Err(error) if is_of_this_op(&error) => {
            new.execute_batch("ROLLBACK TO heddle_missing")?;
        }
        // IMPORTANT: after any other error no statement may run; the whole repair is undone.
        Err(error) => return Err(error),
    }
    new.execute_batch("RELEASE heddle_missing")?;
    Ok(())
}
