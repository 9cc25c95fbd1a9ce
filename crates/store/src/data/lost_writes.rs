//! Writes of this home that another write took the place of without having seen them: their agents are told.
//!
//! Which write stands is decided by the stamps alone ([`heddle_core::lww`]); what is noted here is of this home, and in no dump.

use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::Stamp;
use heddle_core::limits::{LOST_VALUE_BYTES_MAX, LOST_WRITES_MAX};
use heddle_core::op::{DataOp, OpBody, Over};
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::data::seal::{MEMORY, STATE, Seal, memory_head, state_head};
use crate::data::warnings::{
    DROP, Loss, LossAbout, LossKind, LossSide, LostValue, body_of, loss_of, own_prefix, warn,
};
use crate::data::{memory, state};
use crate::error::StoreError;

/// The row that is about to be overwritten: its value, null for a mark of a deleted one, and its tags, if it has such.
pub(super) struct Replaced {
    pub(super) value: Option<String>,
    pub(super) tags: Option<String>,
}

/// What waits to be told of lost writes, from the oldest.
pub(crate) const WAITING: &str = "
    SELECT place, subject, body FROM warning
    WHERE mesh_id = ?1 AND agent = ?2 AND shown_at IS NULL ORDER BY place";

pub(crate) const REWORD: &str = "UPDATE warning SET body = ?2 WHERE place = ?1";

pub(crate) const STATE_LIFE: &str = concat!(
    "SELECT updated_by, incarnation, ",
    state_head!(),
    " FROM state_kv WHERE mesh_id = ?1 AND key = ?2"
);

pub(crate) const MEMORY_LIFE: &str = concat!(
    "SELECT peer, incarnation, ",
    memory_head!(),
    " FROM memory WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3"
);

/// In front of the id of the write that was lost; a task is known by its bare id.
const SUBJECT: &str = "write:";

/// What a write of this home is made over.
pub(super) fn over(
    connection: &Connection,
    mesh: MeshId,
    peer: &str,
    body: &OpBody,
) -> Result<Over, StoreError> {
    let standing: Result<Option<OpId>, StoreError> = match body {
        OpBody::Memory(change) => memory::standing(connection, mesh, &change.key, peer),
        OpBody::State(change) => state::standing(connection, mesh, &change.key),
        OpBody::Task(_) | OpBody::File(_) | OpBody::Vector(_) => return Ok(Over::Unsaid),
    };
    match standing {
        Ok(standing) => Ok(Over::of(standing)),
        // Nobody knows what stood there.
        Err(StoreError::Corrupt(_)) => Ok(Over::Unsaid),
        Err(error) => Err(error),
    }
}

/// What a row was made over that was sent as a row, under an id derived from it, and does not say it any more. When it was
/// made there was nobody else; but who wrote what stands there before, in the same life of the same file, had seen that.
pub(crate) fn over_of_sent_row(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
) -> Result<Over, StoreError> {
    let peer = op.stamp.peer.as_str();
    let mesh = mesh.0.to_bytes();
    let found = match &op.body {
        OpBody::State(change) => {
            let name = params![mesh, change.key.as_str()];
            life(connection, (STATE, STATE_LIFE), name)?
        }
        OpBody::Memory(change) => {
            let name = params![mesh, change.key.as_str(), peer];
            life(connection, (MEMORY, MEMORY_LIFE), name)?
        }
        OpBody::Task(_) | OpBody::File(_) | OpBody::Vector(_) => return Ok(op.over),
    };
    let home = |peer: &str| peer.split('/').next().map(str::to_owned);
    let was_seen = found.is_some_and(|(by, life)| {
        home(&by) == home(peer) && u64::try_from(life) == Ok(op.incarnation)
    });
    Ok(if was_seen {
        Over::Unsaid
    } else {
        Over::Nothing
    })
}

/// Who wrote what stands there, and in which life of its file.
fn life(
    connection: &Connection,
    (seal, sql): (Seal, &str),
    name: &[&dyn rusqlite::ToSql],
) -> Result<Option<(String, i64)>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(name)?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    seal.check_head(row)?;
    Ok(Some((row.get(0)?, row.get(1)?)))
}

/// To be asked before the row of `replaced` is overwritten by the op. `read` looks at that row.
pub(super) fn note(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    replaced: &Stamp,
    read: impl FnOnce() -> Result<Option<Replaced>, StoreError>,
) -> Result<(), StoreError> {
    if !op.over.had_not_seen(replaced.op) {
        return Ok(());
    }
    let Some(own) = own_prefix(connection, mesh)? else {
        return Ok(());
    };
    let Some(agent) = replaced.peer.as_str().strip_prefix(&own) else {
        return Ok(());
    };
    let (kind, key, theirs) = match &op.body {
        OpBody::State(change) => {
            let value = change.write.as_ref().map(|new| new.value.as_str());
            let theirs = Replaced {
                value: value.map(str::to_owned),
                tags: None,
            };
            (LossKind::StateSuperseded, &change.key, theirs)
        }
        OpBody::Memory(change) => {
            let theirs = Replaced {
                value: change
                    .write
                    .as_ref()
                    .map(|new| new.value.as_str().to_owned()),
                tags: Some(memory::tags_cell(change)),
            };
            (LossKind::MemorySuperseded, &change.key, theirs)
        }
        OpBody::Task(_) | OpBody::File(_) | OpBody::Vector(_) => return Ok(()),
    };
    let Some(yours) = read()? else {
        return Ok(());
    };
    // Who wrote the same has lost nothing.
    if yours.value == theirs.value && yours.tags == theirs.tags {
        return Ok(());
    }
    make_room(connection, mesh, agent)?;
    let loss = Loss {
        kind,
        about: LossAbout::Write {
            key: key.as_str().to_owned(),
            left_out: 0,
        },
        yours: side(replaced, yours.value),
        theirs: side(&op.stamp, theirs.value),
        now: None,
    };
    let subject = format!("{SUBJECT}{}", replaced.op);
    warn(connection, mesh, agent, (&subject, replaced.lamport), &loss)
}

/// The loss with what stands under its key when it is told, where that is neither the write that it lost to nor one of
/// the agent's own that it knows of.
pub(super) fn as_it_stands(
    connection: &Connection,
    mesh: MeshId,
    loss: Loss,
) -> Result<Loss, StoreError> {
    let LossAbout::Write { key, .. } = &loss.about else {
        return Ok(loss);
    };
    let standing = match loss.kind {
        LossKind::MemorySuperseded => {
            memory::standing_value(connection, mesh, key, &loss.yours.peer)
        }
        _ => state::standing_value(connection, mesh, key),
    };
    let standing = match standing {
        // What stands there is nobody's word; the loss is one all the same.
        Err(StoreError::Corrupt(_)) => None,
        standing => standing?,
    };
    let now = standing.map(|(stamp, value)| side(&stamp, value));
    // Of two writes in one name the agent has forgotten one, so that it does not know what came after it either.
    let is_in_own_name = loss.yours.peer == loss.theirs.peer;
    let is_news = |now: &LossSide| {
        (is_in_own_name || now.peer != loss.yours.peer)
            && (&now.peer, now.lamport) != (&loss.theirs.peer, loss.theirs.lamport)
    };
    let now = now.filter(is_news);
    Ok(Loss { now, ..loss })
}

fn side(stamp: &Stamp, value: Option<String>) -> LossSide {
    LossSide {
        peer: stamp.peer.as_str().to_owned(),
        lamport: stamp.lamport,
        value: Some(kept(value)),
    }
}

fn kept(value: Option<String>) -> LostValue {
    match value {
        None => LostValue::Deleted,
        Some(text) if text.len() <= LOST_VALUE_BYTES_MAX => LostValue::Whole(text),
        Some(text) => {
            let end = text.floor_char_boundary(LOST_VALUE_BYTES_MAX);
            let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
            LostValue::Begins(text[..end].to_owned(), bytes)
        }
    }
}

/// An agent that never calls must not fill the disk: of more losses than fit the oldest one goes, and is counted in the
/// one that is the oldest then.
fn make_room(connection: &Connection, mesh: MeshId, agent: &str) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(WAITING)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), agent])?;
    let (mut oldest, mut count) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let mut cells = Cells::of("warning", row);
        let (place, subject): (i64, String) = (cells.get()?, cells.get()?);
        if !subject.starts_with(SUBJECT) {
            continue;
        }
        count += 1;
        if oldest.len() < 2 {
            oldest.push((place, cells.get::<String>()?));
        }
    }
    let [(first, gone), (second, next)] = oldest.as_slice() else {
        return Ok(());
    };
    if count < LOST_WRITES_MAX {
        return Ok(());
    }
    let counted = |text: &str| match loss_of(text).map(|loss| loss.about) {
        Some(LossAbout::Write { left_out, .. }) => left_out,
        _ => 0,
    };
    let left_out = counted(gone) + counted(next) + 1;
    if let Some(mut loss) = loss_of(next)
        && let LossAbout::Write { left_out: kept, .. } = &mut loss.about
    {
        *kept = left_out;
        let body = body_of(&loss).to_string();
        connection
            .prepare_cached(REWORD)?
            .execute(params![second, body])?;
    }
    connection.prepare_cached(DROP)?.execute([first])?;
    Ok(())
}
