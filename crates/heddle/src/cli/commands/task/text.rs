//! Tasks for people. Titles and descriptions are of others: what would drive a terminal is shown instead.

use heddle_wire::ipc::{TaskAnswer, TaskEventView, TaskPage, TaskStory, TaskView};

use crate::cli::printable;
use crate::cli::text::{indented, table};

pub(super) fn added(answer: &TaskAnswer) -> String {
    let already = if answer.duplicate { "already " } else { "" };
    format!(
        "{already}added {} {}\n",
        answer.task.id,
        printable(&answer.task.title)
    )
}

/// `done` is the command that says so.
pub(super) fn claimed(answer: &TaskAnswer, done: &str) -> String {
    let task = &answer.task;
    let fence = answer.fence.unwrap_or_default();
    let until = task.claim.as_ref().map_or("", |claim| claim.until.as_str());
    let already = if answer.duplicate { "already " } else { "" };
    let since = match &task.claim {
        Some(claim) if answer.already_yours => format!(
            "  it was claimed under this name at {}: if that was not you, another session of {} works on it\n",
            claim.at, claim.by
        ),
        _ => String::new(),
    };
    // Who claims it may know better; who took it for ready must hear of it.
    let waits = match task.waits_for {
        0 => String::new(),
        1 => "  it waits for a task that is not finished: `heddle task show` names it, `heddle task ready` what can be begun\n".to_owned(),
        count => format!(
            "  it waits for {count} tasks that are not finished: `heddle task show` names them, `heddle task ready` what can be begun\n"
        ),
    };
    let tentative = if answer.tentative {
        "  tentative: the broker is out of reach. If another home has claimed it first, it is that one's, and you are told\n"
    } else {
        ""
    };
    format!(
        "{already}claimed {} {}\n{since}{waits}{tentative}  yours until {until}, and longer while you are active; fence {fence}\n  next: {done}\n",
        task.id,
        printable(&task.title),
    )
}

pub(super) fn changed(done: &str, answer: &TaskAnswer) -> String {
    let already = if answer.duplicate { "already " } else { "" };
    let task = &answer.task;
    format!("{already}{done} {} {}\n", task.id, printable(&task.title))
}

pub(super) fn list(page: &TaskPage, is_ready: bool) -> String {
    if page.items.is_empty() {
        return if is_ready {
            "nothing is ready; `heddle task list` shows all tasks\n".to_owned()
        } else {
            "there are no tasks here; add one with `heddle task add TITLE`\n".to_owned()
        };
    }
    let head = ["ID", "STATUS", "HOLDER", "TITLE"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(page.items.iter().map(row));
    table(&rows)
}

fn row(task: &TaskView) -> Vec<String> {
    let is_blocked = task.status == "open" && !task.ready;
    // Open it is, which is what `--status` asks for; that it waits is told beside.
    let status = if is_blocked {
        "open (blocked)"
    } else {
        &task.status
    };
    let holder = task.claim.as_ref().map_or("-", |claim| claim.by.as_str());
    vec![
        task.id.clone(),
        status.to_owned(),
        holder.to_owned(),
        task.title.clone(),
    ]
}

pub(super) fn story(story: &TaskStory) -> String {
    let task = &story.task;
    let mut text = format!(
        "{}\n  {} {}\n",
        printable(&task.title),
        task.status,
        task.id
    );
    text.push_str(&format!(
        "  created by {} at {}\n",
        task.created_by, task.created_at
    ));
    if let Some(claim) = &task.claim {
        text.push_str(&format!(
            "  held by {} until {}, fence {}\n",
            claim.by, claim.until, claim.fence
        ));
    }
    if let (Some(by), Some(at)) = (&task.finished_by, &task.finished_at) {
        text.push_str(&format!("  {} by {by} at {at}\n", task.status));
    }
    for blocker in &task.blocked_by {
        text.push_str(&format!("  blocked by {blocker}\n"));
    }
    if !task.description.is_empty() {
        text.push_str(&format!("\n{}", indented(&task.description, 2)));
    }
    if !story.events.is_empty() {
        let rows: Vec<_> = story.events.iter().map(event).collect();
        text.push_str(&format!("\n{}", table(&rows)));
    }
    text
}

fn event(event: &TaskEventView) -> Vec<String> {
    let conflict = event.conflict_peer.as_ref();
    vec![
        event.at.clone(),
        event.event.clone(),
        event.peer.clone(),
        conflict.map_or_else(String::new, |peer| format!("({peer})")),
    ]
}
