//! `heddle daemon outbox inspect ID`: one row with its attempts and its chain.

use clap::Args as ClapArgs;
use heddle_wire::ipc::OutboxRow;

use super::list::state;
use crate::cli::spelled::quoted;
use crate::cli::text::table;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The row's own id or its client id
    id: String,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let found = context.client().outbox_row(&args.id, &context.scope());
    let row = found.map_err(|error| {
        let command = format!("heddle daemon outbox inspect {}", quoted(&args.id));
        CliError::from(error).for_each_sender(&command)
    })?;
    context.print(&row, describe)
}

fn describe(row: &OutboxRow) -> String {
    let mut text = format!("{}  {}\n", row.client_message_id, state(row));
    let prefix = |digits: &str| digits.chars().take(16).collect::<String>();
    let wire = row.wire_fingerprint_prefix.clone().unwrap_or_default();
    let mut facts = vec![
        ("row", Some(row.id.clone())),
        ("from", Some(format!("@{} in mesh {}", row.agent, row.mesh))),
        ("to", Some(row.to.clone())),
        ("priority", Some(row.priority.clone())),
        ("accepted", Some(row.enqueued_at.clone())),
        // By the broker. Who received it, and when, is what `heddle explain` tells.
        ("committed", row.delivered_at.clone()),
        ("broker id", row.broker_message_id.clone()),
        ("history", row.history_id.clone()),
        ("retired", row.aborted_at.clone()),
        ("by", row.aborted_by.clone()),
        ("damaged", row.damaged.clone()),
        ("why", row.last_error.clone()),
        ("waits for", row.waits_for.clone()),
        (
            "prints",
            Some(format!(
                "request {}…, wire {wire}…",
                prefix(&row.request_fingerprint)
            )),
        ),
        ("attempts", Some(row.attempts.to_string())),
    ];
    if row.pruned == Some(true) {
        facts.push(("payload", Some("given back by a prune".to_owned())));
    }
    for (name, value) in facts {
        if let Some(value) = value {
            text.push_str(&format!("  {name:<10} {value}\n"));
        }
    }
    text.push_str(&attempts(row));
    text.push_str(&chain(row));
    text
}

fn attempts(row: &OutboxRow) -> String {
    if row.attempts_log.is_empty() {
        return String::new();
    }
    let lines: Vec<Vec<String>> = row
        .attempts_log
        .iter()
        .map(|attempt| {
            vec![
                format!("  {}", attempt.number),
                attempt.at.clone(),
                attempt.outcome.clone(),
                attempt.detail.clone(),
            ]
        })
        .collect();
    format!("attempts\n{}", table(&lines))
}

/// Oldest to newest; only where there is more than the row itself.
fn chain(row: &OutboxRow) -> String {
    if row.chain.len() < 2 {
        return String::new();
    }
    let lines: Vec<Vec<String>> = row
        .chain
        .iter()
        .map(|link| {
            let mark = if link.id == row.id { "  >" } else { "   " };
            vec![
                format!("{mark} {}", link.client_message_id),
                state(link),
                link.id.clone(),
            ]
        })
        .collect();
    format!("chain, oldest first\n{}", table(&lines))
}
