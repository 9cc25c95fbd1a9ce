//! `heddle daemon outbox list`: rows, newest first.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{OutboxPage, OutboxRow};

use crate::cli::limit::parse_limit;
use crate::cli::spelled::quoted;
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
    context.print(&page, |page| {
        let mut text = describe(page, status);
        if let Some(cursor) = &page.cursor {
            let options = [
                ("status", status),
                ("limit", limit.as_deref()),
                ("cursor", Some(cursor.as_str())),
            ];
            text.push_str(&context.there_is_more("daemon outbox list", &[], &options));
        }
        if page.rows.iter().any(|row| row.damaged.is_some()) {
            text.push_str(
                "a row that is damaged cannot be read as it was accepted; its id stays used\n",
            );
            text.push_str("next: `heddle down`, then `heddle doctor --repair` mends it\n");
            return text;
        }
        // By its own id, which is one row whoever sent it.
        if let Some(dead) = page.rows.iter().find(|row| row.status == "dead") {
            let row = quoted(&dead.id);
            let inspect = context.spelled(&format!("heddle daemon outbox inspect {row}"));
            let requeue = format!("heddle daemon outbox requeue --id {row} --auto");
            let requeue = context.spelled(&requeue);
            text.push_str(&format!("next: {inspect}\n      {requeue}\n"));
            if dead.outcome.as_deref() == Some("unknown") {
                text.push_str("      which asks its broker first whether it arrived, and wants --force where nobody can know\n");
            }
        }
        text
    })
}

fn describe(page: &OutboxPage, status: Option<&str>) -> String {
    if page.rows.is_empty() {
        return match status {
            Some("dead") => "nothing has failed\n".to_owned(),
            Some(status) => format!("no row is {status}\n"),
            None => "the outbox is empty\n".to_owned(),
        };
    }
    let head = [
        "ID", "FROM", "STATUS", "TO", "TRIES", "ACCEPTED", "ROW", "WHY",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(page.rows.iter().map(line));
    table(&rows)
}

fn line(row: &OutboxRow) -> Vec<String> {
    vec![
        row.client_message_id.clone(),
        from(row),
        state(row),
        row.to.clone(),
        row.attempts.to_string(),
        row.enqueued_at.clone(),
        row.id.clone(),
        why(row),
    ]
}

/// Its sender, and its mesh where that is not the home's own.
fn from(row: &OutboxRow) -> String {
    match row.mesh.as_str() {
        "home" => format!("@{}", row.agent),
        mesh => format!("@{} in {mesh}", row.agent),
    }
}

/// What went wrong last, and what it waits for now.
fn why(row: &OutboxRow) -> String {
    let parts = [row.waits_for.as_deref(), row.last_error.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    let why = parts.join("; last: ");
    match row.damaged.as_deref() {
        None => why,
        Some(damaged) if why.is_empty() => damaged.to_owned(),
        Some(damaged) => format!("{damaged}; {why}"),
    }
}

/// The state, and what is not known about it.
pub fn state(row: &OutboxRow) -> String {
    if row.damaged.is_some() {
        return format!("{} (damaged)", row.status);
    }
    match row.outcome.as_deref() {
        Some("unknown") => format!("{} (outcome unknown)", row.status),
        _ => row.status.clone(),
    }
}
