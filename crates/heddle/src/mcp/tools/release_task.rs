//! `release_task`: gives a claimed task back.

use serde_json::Value;

use super::task_view::{FENCE, settle};
use super::{Done, ID, Session, TEXT, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "release_task",
    description: "Give a task you claimed back.",
    arguments: &[("task", TEXT), FENCE, ID],
    required: &["task"],
    is_core: true,
    shows_mail: false,
    run,
};

fn run(session: &Session, given: Value) -> Done {
    settle(session, "release", given)
}
