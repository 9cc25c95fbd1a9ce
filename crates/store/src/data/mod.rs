//! The data of a mesh, local first. One noun, one file; each change is one job of the writer.
//!
//! The shape of a change, for every noun: [`request::apply`] asks the gate; if the key is fresh, the
//! clock ticks, the row is written with that stamp, and the receipt is kept under the key, all in one
//! savepoint. What comes from elsewhere is merged: the clock takes the stamp in, `core::lww` decides.

mod clock;
mod memory;
mod recall;
mod request;
mod state;

#[cfg(test)]
pub(crate) use {
    clock::CLOCK,
    memory::STAMP as MEMORY_STAMP,
    recall::{LIST as MEMORY_LIST, PLACE_OF, SEARCH as MEMORY_SEARCH},
    request::{CONSUME, CONSUMED},
    state::{GET as STATE_GET, LIST as STATE_LIST, STAMP as STATE_STAMP},
};

pub use clock::ClockRow;
pub use memory::{MemoryOp, NewMemory};
pub use recall::{MemoryFilter, MemoryMatch, MemoryRow};
pub use request::{Applied, ChangeKey, Receipt};
pub use state::{NewState, StateFilter, StateOp, StateRow};

use heddle_core::lamport::TooFarAhead;
use heddle_core::lww::Merge;

/// What became of an op from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    Applied(Merge),
    /// Its stamp would poison the clock: nothing was changed (C39). To be counted and set aside.
    Refused(TooFarAhead),
}
