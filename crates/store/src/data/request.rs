//! The gate of every change to the data: one key, one effect, one answer (DESIGN §2, §13.1).

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::gate::{Outcome, outcome};
use heddle_core::ids::{ClientMessageId, MeshId, OpId, Party};
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::op::{DataOp, OpBody, Over};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::cells::Cells;
use crate::data::about::About;
use crate::data::clock;
use crate::data::lost_writes;
use crate::data::make_way::make_way;
use crate::data::outgoing;
use crate::data::take::{Taken, take_op};
use crate::data::task;
use crate::error::StoreError;
use crate::store::Store;

/// The key that a change consumes, and the fingerprint that says whether it is the same change again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeKey {
    pub mesh: MeshId,
    pub peer: Party,
    pub id: ClientMessageId,
    pub fingerprint: Fingerprint,
    /// The op, if this turns out to be the first time.
    pub op: OpId,
    pub now: WallMs,
}

/// The answer to a change, as it is given the first time and every time after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub stamp: Stamp,
    pub incarnation: u64,
    pub at: WallMs,
    /// What the noun wants to be told again, such as the id of what it made; null for nothing.
    pub note: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied<R> {
    /// The key was free; the change is made.
    Fresh(Receipt),
    /// This very change was made before.
    Duplicate(Receipt),
    /// The key belongs to another change. Nothing was written.
    Conflict { stored: Fingerprint, at: WallMs },
    /// There is nothing to take away; the key stays free.
    Absent,
    /// The key is free and stays free, for the reason that came in.
    Refused(R),
}

pub(crate) const CONSUMED: &str = "
    SELECT request_key, fingerprint, applied_at, answer FROM applied_request
    WHERE mesh_id = ?1 AND agent = ?2 AND request_key = ?3";

pub(crate) const CONSUME: &str = "
    INSERT INTO applied_request (mesh_id, agent, request_key, fingerprint, applied_at, answer)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// What a free key is to be used for, if it may be used at all.
pub(crate) enum Plan<R> {
    Go { body: OpBody, note: Value },
    Absent,
    Refused(R),
}

impl<R> Plan<R> {
    /// A change whose receipt says all there is to say.
    pub(crate) fn go(body: OpBody) -> Self {
        let note = Value::Null;
        Self::Go { body, note }
    }

    /// What is to be kept, or why nothing new can be.
    pub(crate) fn keep(fresh: Result<OpBody, R>) -> Self {
        fresh.map_or_else(Self::Refused, Self::go)
    }
}

/// One change through the gate. `plan` looks at the rows and says what to do with a free key; the op
/// that it makes is taken as one from elsewhere would be, and queued for the others where the mesh is
/// shared (LF-12). IMPORTANT: the clock ticks only when the
/// change is certain, and an error anywhere takes tick, rows and key back together (LF-03).
pub(crate) fn apply<R>(
    connection: &Connection,
    key: &ChangeKey,
    plan: impl FnOnce(&Connection) -> Result<Plan<R>, StoreError>,
) -> Result<Applied<R>, StoreError> {
    let known = consumed(connection, key.mesh, &key.peer, &key.id)?;
    let print = known.as_ref().map(|known| known.fingerprint);
    match (outcome(print, key.fingerprint), known) {
        (Outcome::Duplicate, Some(known)) => return Ok(Applied::Duplicate(known.receipt)),
        (Outcome::Conflict, Some(known)) => {
            return Ok(Applied::Conflict {
                stored: known.fingerprint,
                at: known.receipt.at,
            });
        }
        // Only a row that is there can be the same or another.
        (Outcome::Fresh | Outcome::Duplicate | Outcome::Conflict, _) => {}
    }
    let (body, note) = match plan(connection)? {
        Plan::Go { body, note } => (body, note),
        Plan::Absent => return Ok(Applied::Absent),
        Plan::Refused(refusal) => return Ok(Applied::Refused(refusal)),
    };
    let is_shared = outgoing::is_shared(connection, key.mesh)?;
    let peer = PeerId::new(&key.peer.to_string());
    let over = if is_shared {
        lost_writes::over(connection, key.mesh, peer.as_str(), &body)?
    } else {
        // It goes nowhere.
        Over::Unsaid
    };
    let tick = clock::tick(connection, key.mesh)?;
    let op = DataOp {
        stamp: Stamp {
            lamport: tick.value,
            peer,
            op: key.op,
        },
        incarnation: tick.incarnation,
        at: key.now,
        over,
        body,
    };
    match take_own(connection, key.mesh, &op)? {
        Taken::Applied => {}
        _ => {
            let why = "a row under this name has a stamp ahead of its mesh's clock, so that nothing takes its place";
            return Err(StoreError::Corrupt(why.to_owned()));
        }
    }
    if is_shared {
        outgoing::queue(connection, key.mesh, &key.peer, &op, key.now)?;
    }
    let about = About::of(&op.body);
    let receipt = Receipt {
        stamp: op.stamp,
        incarnation: op.incarnation,
        at: op.at,
        note,
    };
    connection.prepare_cached(CONSUME)?.execute(params![
        key.mesh.0.to_bytes(),
        key.peer.agent.as_str(),
        key.id.as_str(),
        key.fingerprint.0,
        key.now.0,
        answer_about(&receipt, Some(&about)),
    ])?;
    Ok(Applied::Fresh(receipt))
}

/// An op of this home. What stands there and is not what was written makes way for it.
fn take_own(connection: &Connection, mesh: MeshId, op: &DataOp) -> Result<Taken, StoreError> {
    if let OpBody::Task(change) = &op.body {
        return task::take_own(connection, mesh, op, change);
    }
    match take_op(connection, mesh, op) {
        Err(StoreError::Corrupt(why)) => {
            if !make_way(connection, mesh, op)? {
                return Err(StoreError::Corrupt(why));
            }
            take_op(connection, mesh, op)
        }
        taken => taken,
    }
}

/// A key that was consumed, and the answer that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownChange {
    pub fingerprint: Fingerprint,
    pub receipt: Receipt,
}

impl Store {
    /// What a key was consumed for, if it was. A hint: [`apply`] asks again.
    pub async fn known_change(
        &self,
        mesh: MeshId,
        peer: Party,
        id: ClientMessageId,
    ) -> Result<Option<KnownChange>, StoreError> {
        self.read_few(move |connection| consumed(connection, mesh, &peer, &id))
            .await
    }
}

pub(super) fn consumed(
    connection: &Connection,
    mesh: MeshId,
    peer: &Party,
    id: &ClientMessageId,
) -> Result<Option<KnownChange>, StoreError> {
    let mut statement = connection.prepare_cached(CONSUMED)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), peer.agent.as_str(), id.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("applied_request", row);
    let _: String = cells.get()?;
    let fingerprint = cells.fingerprint()?;
    let at = cells.wall()?;
    let receipt = cells.parsed(|text| receipt_of(text, at).ok_or("not an answer of ours"))?;
    Ok(Some(KnownChange {
        fingerprint,
        receipt,
    }))
}

/// Of a call that changes no data.
pub(super) fn answer_of(receipt: &Receipt) -> String {
    answer_about(receipt, None)
}

/// As it is kept. `on` is for whoever looks whether what it wrote is still there (`missing.rs`): null where nobody is to look.
fn answer_about(receipt: &Receipt, about: Option<&About>) -> String {
    json!({
        "lamport": receipt.stamp.lamport,
        "incarnation": receipt.incarnation,
        "peer": receipt.stamp.peer.as_str(),
        "op": receipt.stamp.op.to_string(),
        "note": receipt.note,
        "on": about.map(About::to_json),
    })
    .to_string()
}

pub(super) fn receipt_of(text: &str, at: WallMs) -> Option<Receipt> {
    let answer: Value = serde_json::from_str(text).ok()?;
    Some(Receipt {
        stamp: Stamp {
            lamport: answer["lamport"].as_u64()?,
            peer: PeerId::new(answer["peer"].as_str()?),
            op: answer["op"].as_str()?.parse().ok()?,
        },
        incarnation: answer["incarnation"].as_u64()?,
        at,
        // Absent in answers of before there were notes.
        note: answer["note"].clone(),
    })
}
