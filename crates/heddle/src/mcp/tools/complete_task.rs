//! `complete_task`: says that a claimed task is done.

use serde_json::Value;

use super::task_view::{FENCE, settle};
use super::{Done, ID, Session, TEXT, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "complete_task",
    description: "Say that a task you claimed is done. With its fence a claim lost meanwhile is refused.",
    arguments: &[("task", TEXT), FENCE, ID],
    required: &["task"],
    is_core: true,
    shows_mail: false,
    run,
};

fn run(session: &Session, given: Value) -> Done {
    settle(session, "complete", given)
}
