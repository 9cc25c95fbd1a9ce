//! Vectors: stored by key under the model that made them, found by nearness within that model.
//!
//! Two rows make a vector: one in `vector_metadata`, with the op's stamp, and one with its numbers in
//! the table of its model. `rows` writes both, `models` guards the tables' names, `search` scans a copy
//! in memory (`cache`) that follows the table, by the names that `labels` reads.

mod backfill;
mod cache;
mod change;
pub(crate) mod dump;
mod labels;
mod list;
mod models;
mod numbers;
mod place;
mod proof;
mod rows;
mod search;

pub(crate) use backfill::{BACKFILL, NAMELESS, backfill};
pub(crate) use cache::VectorCache;
pub use change::VectorMove;
pub(crate) use change::take;
pub use list::{VectorCount, VectorCursor, VectorFilter};
pub use models::ModelRow;
pub(crate) use models::{count_problems, make_table, name, nameless, problems, said};
pub(crate) use numbers::{are_kept, is_named};
pub(crate) use place::problems as place_problems;
pub use proof::Said;
pub(crate) use proof::identity_of;
pub use search::{VectorHit, VectorQuery, VectorRow};

#[cfg(test)]
pub(crate) mod sql {
    //! Every statement, for the test of their plans.
    pub(crate) use super::change::LIVE_MODELS;
    pub(crate) use super::dump::DUMP;
    pub(crate) use super::labels::{ALL_LABELS, LABELS};
    pub(crate) use super::list::LIST;
    pub(crate) use super::models::{
        COME_BACK, HAS_LIVE_HERE, LEAVE, MODEL, MODELS, NOTE_READ, REGISTER,
    };
    pub(crate) use super::rows::{COUNT_CHANGE, STAMP};
    pub(crate) use super::search::{BY_PLACE, HAS_ROWS, HEAD};
}
