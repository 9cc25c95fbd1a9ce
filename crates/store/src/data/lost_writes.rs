//! Writes of this home that another write took the place of without having seen them: their agents are told.
//!
//! Which write stands is decided by the stamps alone ([`heddle_core::lww`]); what is noted here is of this home, and in no dump.

use heddle_core::ids::{MeshId, OpId};
use heddle_core::lamport::Stamp;
use heddle_core::limits::{LOST_VALUE_BYTES_MAX, LOST_WRITES_MAX};
use heddle_core::op::{DataOp, OpBody, Over};
use rusqlite::{Connection, params};

use crate::cells::Cells;
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

/// In front of the id of the write that was lost; a task is known by its bare id.
const SUBJECT: &str = "write:";

/// What a write of this home is made over.
pub(super) fn over(
    connection: &Connection,
    mesh: MeshId,
    peer: &str,
    body: &OpBody,
) -> Result<Over, StoreError> {
    let standing: Option<OpId> = match body {
        OpBody::Memory(change) => memory::standing(connection, mesh, &change.key, peer)?,
        OpBody::State(change) => state::standing(connection, mesh, &change.key)?,
        OpBody::Task(_) | OpBody::File(_) | OpBody::Vector(_) => return Ok(Over::Unsaid),
    };
    Ok(Over::of(standing))
}

/// To be asked before the row of `replaced` is overwritten by the op. `read` looks at that row.
pub(super) fn note(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    replaced: &Stamp,
    read: impl FnOnce() -> Result<Replaced, StoreError>,
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
    let yours = read()?;
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
/// the agent's own. In memory nobody else writes.
pub(super) fn as_it_stands(
    connection: &Connection,
    mesh: MeshId,
    loss: Loss,
) -> Result<Loss, StoreError> {
    let LossAbout::Write { key, .. } = &loss.about else {
        return Ok(loss);
    };
    if loss.kind != LossKind::StateSuperseded {
        return Ok(loss);
    }
    let standing = state::standing_value(connection, mesh, key)?;
    let now = standing.map(|(stamp, value)| side(&stamp, value));
    let is_news = |now: &LossSide| {
        now.peer != loss.yours.peer
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
