//! `heddle queue push | take | renew | ack | release | list`: work for one consumer each, under a lease.

mod text;

use clap::{Args as ClapArgs, Subcommand};
use heddle_core::limits::{QUEUE_ITEMS_MAX, QUEUE_LEASE_MS_MAX, QUEUE_WAIT_MAX};
use heddle_wire::broker::QueueVerdict;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{
    LeasedBody, QueuePushBody, QueueRenewBody, QueueSettleBody, QueueTakeBody, SettledItems,
};

use super::send;
use crate::cli::keyed::Keyed;
use crate::cli::span::parse_short;
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Push work to a queue; makes a missing queue
    Push(Push),
    /// Take work; it is yours until its lease ends
    Take(Take),
    /// Keep work that you took for longer; its lease never becomes shorter
    Renew(Renew),
    /// Say that work is done
    Ack(Settle),
    /// Give work back: somebody else can take it at once
    Release(Settle),
    /// Show the queues, or one of them
    List { queue: Option<String> },
}

#[derive(Debug, ClapArgs)]
struct Push {
    queue: String,
    /// The work; `-` reads it from standard input
    text: String,
    /// The idempotency key: the same key and work again land once
    #[arg(long)]
    id: Option<String>,
    /// now, next or low
    #[arg(long)]
    priority: Option<String>,
    /// A JSON object that travels along
    #[arg(long, value_name = "JSON")]
    meta: Option<String>,
    /// The id of the message that this answers
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct Take {
    queue: String,
    /// At most this many
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_max, allow_negative_numbers = true)]
    max: u64,
    /// How long it is yours: 45s, 5m, 2h or 1d
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_lease)]
    lease: u64,
    /// Wait for work if there is none, up to 30s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_wait)]
    wait: u64,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Debug, ClapArgs)]
struct Settle {
    queue: String,
    /// The id that the take showed
    id: String,
    /// The fence that the take showed
    #[arg(long, value_name = "N")]
    fence: u64,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Debug, ClapArgs)]
struct Renew {
    #[command(flatten)]
    item: Settle,
    /// How long it is yours from now on: 45s, 5m, 2h or 1d
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_lease)]
    lease: u64,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Push(args) => push(context, args),
        Verb::Take(args) => take(context, args),
        Verb::Renew(args) => renew(context, args),
        Verb::Ack(args) => settle(context, "ack", args),
        Verb::Release(args) => settle(context, "release", args),
        Verb::List { queue } => list(context, queue.as_deref()),
    }
}

fn list(context: &Context, queue: Option<&str>) -> Result<(), CliError> {
    let query: Vec<_> = context.mesh_scope().into_iter().collect();
    let mut list = context.client().queues(&query)?;
    if let Some(name) = queue.map(bare) {
        list.queues.retain(|one| one.queue == name);
        // What cannot be known now is no reason to call it absent (C29).
        if list.queues.is_empty() && !list.stale {
            let message = format!("there is no queue:{name}");
            return Err(CliError::new(exit::NOT_FOUND, message)
                .next("`heddle queue list` shows those that there are; a first push makes one."));
        }
    }
    context.print(&list, text::list)
}

/// With or without its prefix, as the daemon takes it.
fn bare(queue: &str) -> &str {
    queue.strip_prefix("queue:").unwrap_or(queue)
}

fn push(context: &Context, args: Push) -> Result<(), CliError> {
    let meta = args.meta.as_deref().map(send::parse_meta).transpose()?;
    let to = format!("queue:{}", bare(&args.queue));
    let body = QueuePushBody {
        queue: args.queue,
        message: send::message(args.text)?,
        priority: args.priority,
        meta,
        reply_to_id: args.reply_to,
        // Always an id: an answer that is lost on the way must not become a second message.
        client_message_id: Some(args.id.unwrap_or_else(|| Context::mint_id().to_string())),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
        ..QueuePushBody::default()
    };
    let client = context.client();
    // One more try when the answer was lost: under the same id it is the same push.
    let answer = match client.push(&body) {
        Err(ClientError::Broken(_)) => client.push(&body),
        other => other,
    };
    let id = body.client_message_id.as_deref().unwrap_or_default();
    let answer = answer.map_err(|error| send::with_id(error, id))?;
    let reply_to = body.reply_to_id.as_deref();
    send::tell(context, answer, reply_to, |answer| {
        send::describe(&to, answer)
    })
}

fn take(context: &Context, args: Take) -> Result<(), CliError> {
    let client = context.client().under(args.keyed.key);
    let taken = client.take(&QueueTakeBody {
        queue: args.queue.clone(),
        agent: context.agent.clone(),
        mesh: context.mesh.clone(),
        max: Some(args.max),
        lease_seconds: Some(args.lease),
        wait_seconds: Some(args.wait),
    })?;
    context.print(&taken, |taken| {
        text::taken(context, bare(&args.queue), taken)
    })
}

fn settle(context: &Context, verb: &str, args: Settle) -> Result<(), CliError> {
    let queue = bare(&args.queue).to_owned();
    let body = QueueSettleBody {
        queue: args.queue,
        items: vec![LeasedBody {
            id: args.id,
            fence: args.fence,
        }],
        agent: context.agent.clone(),
        mesh: context.mesh.clone(),
    };
    let client = context.client().under(args.keyed.key);
    // One more try when the answer was lost: under the same fence it counts once.
    let answer = match client.settle(verb, &body) {
        Err(ClientError::Broken(_)) => client.settle(verb, &body)?,
        other => other?,
    };
    tell(context, &queue, &body.items[0], &answer)
}

fn renew(context: &Context, args: Renew) -> Result<(), CliError> {
    let queue = bare(&args.item.queue).to_owned();
    let body = QueueRenewBody {
        queue: args.item.queue,
        items: vec![LeasedBody {
            id: args.item.id,
            fence: args.item.fence,
        }],
        lease_seconds: Some(args.lease),
        agent: context.agent.clone(),
        mesh: context.mesh.clone(),
    };
    let client = context.client().under(args.item.keyed.key);
    let answer = match client.renew(&body) {
        Err(ClientError::Broken(_)) => client.renew(&body)?,
        other => other?,
    };
    tell(context, &queue, &body.items[0], &answer)
}

/// What became of the one item.
fn tell(
    context: &Context,
    queue: &str,
    item: &LeasedBody,
    answer: &SettledItems,
) -> Result<(), CliError> {
    let (id, fence) = (&item.id, item.fence);
    let refused = |code, sentence: String, next: String| {
        let answer = serde_json::to_value(answer).unwrap_or_default();
        Err(CliError::new(code, sentence).next(next).answer(answer))
    };
    match answer.items.first().map(|item| item.verdict) {
        Some(QueueVerdict::Acked) => {
            context.print(answer, |_| format!("{id} of queue:{queue} is done\n"))
        }
        Some(QueueVerdict::Renewed) => context.print(answer, |_| {
            format!("{id} of queue:{queue} is yours for longer\n")
        }),
        Some(QueueVerdict::Released) => {
            context.print(answer, |_| format!("{id} of queue:{queue} waits again\n"))
        }
        Some(QueueVerdict::StaleFence) => refused(
            exit::CONFLICT,
            format!(
                "fence {fence} decides nothing about {id} of queue:{queue}: nobody has taken it yet, or it was settled, or taken again, or another agent took it"
            ),
            format!(
                "Stop working on it; `heddle queue take {queue}` gets the next, with the fence that settles it. Where another agent took it, name that one with --agent."
            ),
        ),
        Some(QueueVerdict::Unknown) | None => refused(
            exit::NOT_FOUND,
            format!("queue:{queue} has no message {id}"),
            "Check both against what the take showed; `heddle queue list` shows the queues."
                .to_owned(),
        ),
    }
}

fn parse_max(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(max) if (1..=QUEUE_ITEMS_MAX as u64).contains(&max) => Ok(max),
        _ => Err(format!("say how many, from 1 to {QUEUE_ITEMS_MAX}")),
    }
}

fn parse_lease(text: &str) -> Result<u64, String> {
    match parse_short(text)? {
        lease if (1..=QUEUE_LEASE_MS_MAX / 1000).contains(&lease) => Ok(lease),
        _ => Err("a lease lasts from 1s to 24h; say 45 or 45s for seconds, 90m or 12h".to_owned()),
    }
}

fn parse_wait(text: &str) -> Result<u64, String> {
    let most = QUEUE_WAIT_MAX.as_secs();
    match parse_short(text)? {
        wait if wait <= most => Ok(wait),
        _ => Err(format!(
            "a take waits for at most {most}s; say 5 or 5s for seconds"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_and_times_that_the_daemon_takes_pass() {
        assert_eq!(parse_max("100"), Ok(100));
        assert_eq!(parse_lease("24h"), Ok(86_400));
        assert_eq!(parse_lease("1s"), Ok(1));
        assert_eq!((parse_lease("5"), parse_wait("10")), (Ok(5), Ok(10)));
        assert_eq!(parse_wait("30s"), Ok(30));
        assert_eq!(parse_wait("0s"), Ok(0));
        for bad in ["0", "101", "-1", "", "x", "99999999999999999999"] {
            assert!(parse_max(bad).is_err(), "{bad}");
        }
        for bad in ["0", "0s", "86401", "86401s", "2d", "x", ""] {
            assert!(parse_lease(bad).is_err(), "{bad}");
        }
        for bad in ["31", "31s", "1m", "-1s"] {
            assert!(parse_wait(bad).is_err(), "{bad}");
        }
    }
}
