//! Taking an op into the rows: one function, for what happens here and for what comes from elsewhere.
//!
//! Same ops, same rows, in any order (LF-08): a noun decides with the op's own stamp alone.

use heddle_core::ids::MeshId;
use heddle_core::lamport::Stamp;
use heddle_core::lamport::TooFarAhead;
use heddle_core::lww::{Merge, merge};
use heddle_core::op::{DataOp, OpBody};
use rusqlite::Connection;

use crate::data::clock::ClockRow;
use crate::data::{clock, files, memory, state, task, vectors};
use crate::error::StoreError;
use crate::store::Store;

/// What an op did to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Applied,
    /// What is there is younger: no byte of it changed (LF-10).
    Kept,
    /// It was taken before: nothing happened (C9).
    Same,
    /// What it is about is not here yet: nothing happened, to be tried again (C38).
    Parked,
}

impl Taken {
    /// By last writer wins.
    pub(crate) fn by_stamp(existing: Option<&Stamp>, op: &DataOp) -> Self {
        match merge(existing, &op.stamp) {
            Merge::Take => Self::Applied,
            Merge::Keep => Self::Kept,
            Merge::Same => Self::Same,
        }
    }
}

/// What became of an op from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    Taken(Taken),
    /// Its stamp would poison the clocks: nothing was changed (C39). To be counted and set aside for good.
    Refused(TooFarAhead),
}

impl Store {
    /// Takes in an op of another home, or one of our own that comes back (C9).
    pub async fn take_in(&self, mesh: MeshId, op: DataOp) -> Result<Merged, StoreError> {
        self.write(move |connection| {
            let mut clock = clock::read(connection, mesh)?;
            let merged = take_in(connection, mesh, &mut clock, &op)?;
            clock::set(connection, mesh, clock)?;
            Ok(merged)
        })
        .await
    }
}

/// An op from elsewhere, in the savepoint of whoever received it; `clock` is the mesh's, as the ops before left it. Who
/// calls it writes the clock, once for many ops. An error leaves it as it was.
pub(crate) fn take_in(
    connection: &Connection,
    mesh: MeshId,
    clock: &mut ClockRow,
    op: &DataOp,
) -> Result<Merged, StoreError> {
    let admitted = match clock.admitted(op.stamp.lamport) {
        Ok(admitted) => admitted,
        Err(refusal) => return Ok(Merged::Refused(refusal)),
    };
    let taken = take_op(connection, mesh, op)?;
    *clock = match taken {
        Taken::Applied | Taken::Kept => admitted.merged(op.stamp.lamport),
        // The log's clock goes on all the same: it is the log's, whatever this home made of the op.
        Taken::Same | Taken::Parked => admitted,
    };
    Ok(Merged::Taken(taken))
}

pub(crate) fn take_op(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
) -> Result<Taken, StoreError> {
    match &op.body {
        OpBody::Memory(change) => memory::take(connection, mesh, op, change),
        OpBody::State(change) => state::take(connection, mesh, op, change),
        OpBody::Task(change) => task::take(connection, mesh, op, change),
        OpBody::File(change) => files::take(connection, mesh, op, change),
        OpBody::Vector(change) => vectors::take(connection, mesh, op, change),
    }
}
