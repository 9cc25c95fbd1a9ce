//! `heddle daemon outbox list`: rows, newest first.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{OutboxPage, OutboxRow};

use crate::cli::limit::parse_limit;
use crate::cli::text::table;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
// It also stands in the verb above it, whose group has the same name.
#[group(skip)]
pub struct Args {
    /// Only what will not be tried again by itself (dead rows)
    #[arg(long, conflicts_with = "status")]
    failed: bool,
    /// pending, inflight, done, dead or aborted
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Rows at most
    #[arg(long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// The cursor of the page before
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let status = if args.failed {
        Some("dead")
    } else {
        args.status.as_deref()
    };
    let query: Vec<(&str, &str)> = [
        ("status", status),
        ("limit", limit.as_deref()),
        ("cursor", args.cursor.as_deref()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .chain(context.mesh_scope())
    .collect();
    let page = context.client().outbox(&query)?;
    context.print(&page, |page| describe(page, status))
}

fn describe(page: &OutboxPage, status: Option<&str>) -> String {
    if page.rows.is_empty() {
        return match status {
            Some("dead") => "nothing has failed\n".to_owned(),
            Some(status) => format!("no row is {status}\n"),
            None => "the outbox is empty\n".to_owned(),
        };
    }
    let head = ["ID", "STATUS", "TO", "TRIES", "ACCEPTED", "WHY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(page.rows.iter().map(line));
    let mut text = table(&rows);
    if let Some(cursor) = &page.cursor {
        text.push_str(&format!("(more: --cursor {cursor})\n"));
    }
    if page.rows.iter().any(|row| row.status == "dead") {
        text.push_str("next: heddle daemon outbox inspect ID\n      heddle daemon outbox requeue --id ID --auto\n");
    }
    text
}

fn line(row: &OutboxRow) -> Vec<String> {
    vec![
        row.client_message_id.clone(),
        state(row),
        row.to.clone(),
        row.attempts.to_string(),
        row.enqueued_at.clone(),
        row.last_error.clone().unwrap_or_default(),
    ]
}

/// The state, and what is not known about it.
pub fn state(row: &OutboxRow) -> String {
    match row.outcome.as_deref() {
        Some("unknown") => format!("{} (outcome unknown)", row.status),
        _ => row.status.clone(),
    }
}
