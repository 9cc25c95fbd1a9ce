//! `heddle task add | claim | release | done | cancel | list | ready | show`: work that nobody does twice.

mod text;

use clap::{Args as ClapArgs, Subcommand};
use heddle_core::limits::{TASK_LEASE_MS_MAX, TASK_LEASE_MS_MIN};
use heddle_core::task::TaskStatus;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{TaskCancelBody, TaskClaimBody, TaskCreateBody, TaskSettleBody};

use super::remember::{again, id};
use super::send::message;
use crate::cli::limit::parse_limit;
use crate::cli::span::parse_short;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add a task; prints its id
    Add(Add),
    /// Claim a task: it is yours while you are active, and for the lease after that
    Claim(Claim),
    /// Give a claimed task back
    Release(Settle),
    /// Say that a task is done
    Done(Settle),
    /// Cancel a task, whoever holds it; the holder is told
    Cancel(Cancel),
    /// Show the tasks, the oldest first
    List(List),
    /// Show the tasks that can be begun: open, and nothing unfinished blocks them
    Ready(Page),
    /// Show a task and its record
    Show { task: String },
}

#[derive(Debug, ClapArgs)]
struct Add {
    title: String,
    /// What is to be done, in full; `-` reads it from standard input
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// A task that must be finished first; may be repeated
    #[arg(long, value_name = "TASK")]
    blocked_by: Vec<String>,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct Claim {
    task: String,
    /// How long it stays yours without a sign of life: 45s, 5m, 2h or 1d; 30m by default
    #[arg(long, value_name = "TIME", value_parser = parse_lease)]
    lease: Option<u64>,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct Settle {
    task: String,
    /// The number that the claim showed: a claim that was lost meanwhile is then refused
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct Cancel {
    task: String,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct List {
    /// Only these: open, claimed, completed or cancelled
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<String>,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, ClapArgs)]
struct Page {
    /// At most this many
    #[arg(long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Go on where a list was cut
    #[arg(long)]
    cursor: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Add(args) => add(context, args),
        Verb::Claim(args) => claim(context, args),
        Verb::Release(args) => settle(context, "release", args),
        Verb::Done(args) => settle(context, "complete", args),
        Verb::Cancel(args) => cancel(context, args),
        Verb::List(args) => list(context, &args.page, ("status", args.status.as_deref())),
        Verb::Ready(page) => list(context, &page, ("ready", Some("true"))),
        Verb::Show { task } => show(context, &task),
    }
}

fn add(context: &Context, args: Add) -> Result<(), CliError> {
    let body = TaskCreateBody {
        title: args.title,
        description: message(args.description)?,
        blocked_by: args.blocked_by,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.create_task(&body))?;
    context.print(&answer, text::added)
}

fn claim(context: &Context, args: Claim) -> Result<(), CliError> {
    let body = TaskClaimBody {
        id: args.task,
        lease_seconds: args.lease,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.claim_task(&body))?;
    if let Some(lost) = answer.lost_claim() {
        return Err(ClientError::Problem(Box::new(lost)).into());
    }
    context.print(&answer, |answer| {
        let fence = answer.fence.unwrap_or_default();
        let done = format!("heddle task done {} --fence {fence}", answer.task.id);
        text::claimed(answer, &context.spelled(&done))
    })
}

fn settle(context: &Context, verb: &str, args: Settle) -> Result<(), CliError> {
    let body = TaskSettleBody {
        id: args.task,
        fence: args.fence,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.settle_task(verb, &body))?;
    let done = if verb == "release" {
        "released"
    } else {
        "completed"
    };
    context.print(&answer, |answer| text::changed(done, answer))
}

fn cancel(context: &Context, args: Cancel) -> Result<(), CliError> {
    let body = TaskCancelBody {
        id: args.task,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.cancel_task(&body))?;
    context.print(&answer, |answer| text::changed("cancelled", answer))
}

fn list(context: &Context, page: &Page, only: (&str, Option<&str>)) -> Result<(), CliError> {
    let mut query = context.scope();
    let limit = page.limit.map(|limit| limit.to_string());
    let rest = [
        (only.0, only.1),
        ("limit", limit.as_deref()),
        ("cursor", page.cursor.as_deref()),
    ];
    query.extend(
        rest.iter()
            .filter_map(|(name, value)| Some((*name, (*value)?))),
    );
    let tasks = context.client().tasks(&query)?;
    let is_ready = only.0 == "ready";
    context.print(&tasks, |tasks| {
        let mut text = text::list(tasks, is_ready);
        if let Some(cursor) = &tasks.cursor {
            let verb = if is_ready { "task ready" } else { "task list" };
            let options = [
                ("status", only.1.filter(|_| !is_ready)),
                ("limit", limit.as_deref()),
                ("cursor", Some(cursor.as_str())),
            ];
            text.push_str(&context.there_is_more(verb, &[], &options));
        }
        text
    })
}

fn show(context: &Context, task: &str) -> Result<(), CliError> {
    let mut query = context.scope();
    query.push(("id", task));
    let story = context.client().task(&query)?;
    context.print(&story, text::story)
}

fn parse_lease(text: &str) -> Result<u64, String> {
    let (least, most) = (TASK_LEASE_MS_MIN / 1000, TASK_LEASE_MS_MAX / 1000);
    match parse_short(text)? {
        lease if (least..=most).contains(&lease) => Ok(lease),
        _ => Err(format!(
            "a lease lasts from {least}s to {}d; say 45 or 45s for seconds, 90m, 12h or 2d",
            most / 86_400
        )),
    }
}

fn parse_status(text: &str) -> Result<String, String> {
    match TaskStatus::parse(text) {
        Some(status) => Ok(status.as_str().to_owned()),
        None if text == "blocked" => Err(
            "a task is open, claimed, completed or cancelled; blocked is an open one that waits for another: ask for open"
                .to_owned(),
        ),
        None => Err("a task is open, claimed, completed or cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_and_words_that_the_daemon_takes_pass() {
        assert_eq!(parse_lease("1s"), Ok(1));
        assert_eq!(parse_lease("7d"), Ok(604_800));
        // Bare seconds, too.
        assert_eq!(parse_lease("30"), Ok(30));
        for bad in ["0s", "0", "8d", "", "-1s"] {
            assert!(parse_lease(bad).is_err(), "{bad}");
        }
        for status in TaskStatus::ALL {
            assert!(parse_status(status.as_str()).is_ok());
        }
        assert!(parse_status("done").is_err());
        // What the list says beside an open one is no status; the refusal names the one that it is.
        assert!(
            parse_status("blocked")
                .unwrap_err()
                .contains("ask for open")
        );
    }
}
