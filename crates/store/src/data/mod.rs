//! The data of a mesh, local first. One noun, one file; each change is one job of the writer.
//!
//! The shape of a change, for every noun: [`request::apply`] asks the gate; if the key is fresh, the
//! noun plans an op, the clock ticks, the op is stamped and taken, and the receipt is kept under the key,
//! all in one savepoint. What comes from elsewhere goes the same way from the op on: [`take`] has one
//! `take_op` for both, and a noun writes rows in its `take` and nowhere else.

pub(crate) mod about;
pub(crate) mod backfill;
mod call;
mod clock;
mod dump;
pub(crate) mod files;
mod fill;
mod floor;
mod lost_writes;
mod make_way;
mod memory;
mod outgoing;
mod recall;
mod request;
pub(crate) mod seal;
mod state;
mod story;
mod take;
mod task;
mod vectors;
mod warnings;

#[cfg(test)]
pub(crate) use task::statements as task_statements;
#[cfg(test)]
pub(crate) use {
    clock::CLOCK,
    floor::{FLOOR as DATA_FLOOR, OLD_MEMORY, OLD_STATE, OLD_VECTORS},
    lost_writes::{MEMORY_LIFE, REWORD as WARNING_REWORD, STATE_LIFE, WAITING as WARNINGS_WAITING},
    memory::{STAMP as MEMORY_STAMP, VALUE as MEMORY_VALUE},
    outgoing::{INSERT_OP, IS_QUEUED, IS_SHARED, QUEUE_OP},
    recall::{LIST as MEMORY_LIST, PLACE_OF, SEARCH as MEMORY_SEARCH},
    request::{CONSUME, CONSUMED},
    state::{GET as STATE_GET, LIST as STATE_LIST, STAMP as STATE_STAMP, VALUE as STATE_VALUE},
    vectors::sql as vector_sql,
    warnings::{DROP as WARNING_DROP, DUE as WARNINGS_DUE, SHOW as WARNING_SHOW},
};

pub(crate) use backfill::{TABLES as OLD_TABLES, Table as OldTable};
pub(crate) use clock::{begin_life_above, read as clock_of, set as set_clock};
pub(crate) use fill::{Cursor as FillCursor, step as fill_step};
pub(crate) use lost_writes::over_of_sent_row;
pub(crate) use outgoing::{is_shared, queue_published};
pub use seal::{A_STEP_OF, IS_CHANGED};
pub(crate) use take::{take_in, take_op};
pub(crate) use task::{
    Refolded, Salvaged, bad_part as bad_task_part, fold_anew as fold_tasks_anew,
    problems as task_problems, unfolded as unfolded_tasks,
};

pub use call::Called;
pub use clock::ClockRow;
pub use dump::DumpPage;
pub use files::{
    FileBefore, FileBytes, FileFilter, FileFind, FileRow, MissingBlob, NewContent, NewFile, Swept,
    WantedBlob,
};
pub(crate) use files::{mark_all_lost, miscounted, named_by_rows, note_all_anew};
pub use recall::{MemoryFilter, MemoryMatch, MemoryRow};
pub use request::{Applied, ChangeKey, KnownChange, Receipt};
pub use state::{StateFilter, StateRow};
pub use story::{DataStory, StoryArrival, StoryLeft, StoryRequest, StoryRow};
pub use take::{Merged, Taken};
pub use task::{
    HeldTask, NewTask, TaskDamage, TaskFilter, TaskRefusal, TaskRow, TaskStop, TaskWhich, TaskWish,
};
pub use vectors::{
    ModelRow, Said as SaidOfModel, VectorCount, VectorCursor, VectorFilter, VectorHit, VectorMove,
    VectorQuery, VectorRow,
};
pub(crate) use vectors::{
    NAMELESS as NAMELESS_VECTOR, VectorCache, are_kept, count_problems as vector_count_problems,
    identity_of as vector_model_of, is_named, make_table as make_vector_table,
    name as name_vector_model, nameless as nameless_vector_models,
    place_problems as vector_place_problems, problems as vector_model_problems,
    said as said_of_vector_models,
};
pub use warnings::{Loss, LossAbout, LossKind, LossSide, LostValue};
