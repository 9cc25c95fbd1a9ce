//! A change to the data, or what stands under a key, as `heddle explain` prints it.

use heddle_wire::ipc::{DataStoryView, Story};

use crate::cli::text::printable;
use crate::cli::{CliError, exit};

/// What was kept and is gone is a failure, whoever asks.
pub(super) fn refuse_lost(story: &Story) -> Result<(), CliError> {
    let data = match story {
        Story::Data(data) => Some(data),
        Story::Sent(sent) => sent.data.as_ref(),
        Story::Message(_) | Story::Effect(_) => None,
    };
    if data.is_none_or(|data| data.result != "lost") {
        return Ok(());
    }
    let mut lost = CliError::quiet();
    lost.code = exit::FAILED;
    Err(lost)
}

pub(super) fn describe(story: &DataStoryView) -> String {
    let id = printable(&story.id);
    let mut text = format!("{id}: {}\n", printable(&story.says));
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<10} {}\n", printable(&value)));
    };
    line("mesh", story.mesh.clone());
    if let Some(op) = &story.op_id {
        line("op", format!("{op}, {}", story.result));
    }
    if let Some(request) = &story.request {
        line(
            "request",
            format!(
                "{} by @{} at {}, stamp {}",
                request.idempotency_key, request.agent, request.at, request.lamport
            ),
        );
    }
    for row in &story.rows {
        let what = row.op.as_deref().unwrap_or(&row.noun);
        let gone = if row.deleted { ", deleted" } else { "" };
        line(
            what,
            format!(
                "{} by {} at {}, stamp {}, op {}{gone}",
                row.key, row.peer, row.at, row.lamport, row.op_id
            ),
        );
    }
    if let Some(row) = &story.outbox {
        let place = row.history_id.as_deref().unwrap_or("no place yet");
        line("outbox", format!("{} ({place})", row.status));
    }
    if let Some(arrival) = &story.arrival {
        line(
            "log",
            format!(
                "{} from {} at {}: {}",
                arrival.history_id, arrival.sender, arrival.received_at, arrival.state
            ),
        );
    }
    if let Some(next) = &story.next {
        line("next", next.clone());
    }
    text
}
