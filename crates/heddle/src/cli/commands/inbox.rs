//! `heddle inbox`: a peek at an agent's messages, now or as they arrive.

use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::limits::PAGE_ROWS_DEFAULT;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{AckBody, EVENT_MESSAGE, InboxItem, InboxPage};

use crate::cli::limit::parse_limit;
use crate::cli::text::{indented, printable};
use crate::cli::{CliError, Context, exit, ui};

/// Between two tries to get an interrupted stream back.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);
/// Tries before `--follow` gives up on a daemon that went away: about a minute.
const RECONNECTS_MAX: u32 = 120;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Only what came after this cursor or RFC 3339 time
    #[arg(long, value_name = "CURSOR|TIME")]
    since: Option<String>,
    /// Only messages of this sender
    #[arg(long, value_name = "@AGENT")]
    from: Option<String>,
    /// Only messages of this topic
    #[arg(long)]
    topic: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Also those that were acknowledged before
    #[arg(long)]
    all: bool,
    /// Go on showing messages as they arrive
    #[arg(long)]
    follow: bool,
    /// Acknowledge what was shown
    #[arg(long)]
    ack: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let client = context.client();
    if args.follow {
        return follow(context, &client, &args);
    }
    let limit = args.limit.unwrap_or(PAGE_ROWS_DEFAULT).to_string();
    let page = client.inbox(&query(context, &args, &limit))?;
    context.print(&page, |page| describe(page) + &more(page, &args))?;
    if args.ack {
        acknowledge(context, &client, &page.items)?;
    }
    Ok(())
}

fn query<'a>(context: &'a Context, args: &'a Args, limit: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut query = context.scope();
    let filters = [
        ("since", &args.since),
        ("from", &args.from),
        ("topic", &args.topic),
    ];
    for (name, value) in filters {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    query.push(("limit", limit));
    if args.all {
        query.push(("all", "true"));
    }
    query
}

/// First what is there, page by page; then the stream, resumed behind the last message shown.
fn follow(context: &Context, client: &Client, args: &Args) -> Result<(), CliError> {
    let agent = match &context.agent {
        Some(agent) => agent.clone(),
        None => client.status()?.agent.unwrap_or_default(),
    };
    let limit = args.limit.unwrap_or(PAGE_ROWS_DEFAULT).to_string();
    let mut cursor = args.since.clone();
    loop {
        let mut page_query = query(context, args, &limit);
        page_query.retain(|(name, _)| *name != "since");
        page_query.extend(cursor.as_deref().map(|cursor| ("since", cursor)));
        let page = client.inbox(&page_query)?;
        show(context, client, args, &page.items)?;
        cursor = Some(page.cursor);
        if page.items.is_empty() {
            break;
        }
    }
    let mut filters = query(context, args, &limit);
    filters.retain(|(name, _)| !matches!(*name, "since" | "all" | "agent" | "limit"));
    filters.push(("agent", &agent));
    stream(context, client, args, &filters, cursor)
}

fn stream(
    context: &Context,
    client: &Client,
    args: &Args,
    filters: &[(&str, &str)],
    mut last: Option<String>,
) -> Result<(), CliError> {
    let mut failures = 0;
    loop {
        match client.events(filters, last.as_deref()) {
            Ok(mut events) => {
                if failures > 0 {
                    ui::note("connected again");
                }
                failures = 0;
                while let Ok(Some(event)) = events.next_event() {
                    if event.name != EVENT_MESSAGE {
                        continue;
                    }
                    let item: InboxItem = serde_json::from_str(&event.data)
                        .map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
                    last = event.id;
                    show(context, client, args, std::slice::from_ref(&item))?;
                }
                ui::note("the stream was interrupted; connecting again");
            }
            Err(ClientError::NotRunning { .. } | ClientError::Broken(_) | ClientError::Silent)
                if failures < RECONNECTS_MAX => {}
            Err(error) => return Err(error.into()),
        }
        failures += 1;
        thread::sleep(RECONNECT_EVERY);
    }
}

fn show(
    context: &Context,
    client: &Client,
    args: &Args,
    items: &[InboxItem],
) -> Result<(), CliError> {
    for item in items {
        context.print(item, describe_item)?;
    }
    if args.ack {
        acknowledge(context, client, items)?;
    }
    Ok(())
}

fn acknowledge(context: &Context, client: &Client, items: &[InboxItem]) -> Result<(), CliError> {
    if items.is_empty() {
        return Ok(());
    }
    client.ack(&AckBody {
        ids: items.iter().map(|item| item.id.clone()).collect(),
        agent: context.agent.clone(),
    })?;
    Ok(())
}

fn describe(page: &InboxPage) -> String {
    let mut text: String = page.items.iter().map(describe_item).collect();
    if page.items.is_empty() {
        text.push_str("no unread messages\n");
    }
    if page.stale {
        let since = page.as_of.as_deref().unwrap_or("an unknown time");
        text.push_str(&format!(
            "(the broker is out of reach since {since}: there may be more)\n"
        ));
    }
    text
}

/// A page that is as long as it may be is probably not the last one.
fn more(page: &InboxPage, args: &Args) -> String {
    if page.items.len() < args.limit.unwrap_or(PAGE_ROWS_DEFAULT) {
        return String::new();
    }
    format!(
        "(there may be more: heddle inbox --since {})\n",
        page.cursor
    )
}

fn describe_item(item: &InboxItem) -> String {
    let place = match &item.topic {
        Some(topic) => format!("#{topic}"),
        None => format!("@{}", item.agent),
    };
    let mut head = format!(
        "{}  {} → {}  {}",
        item.id, item.from, place, item.received_at
    );
    if item.priority != "next" {
        head.push_str(&format!("  [{}]", item.priority));
    }
    if let Some(reply_to) = &item.reply_to_id {
        head.push_str(&format!("  re {reply_to}"));
    }
    format!("{}\n{}", printable(&head), indented(&item.body, 4))
}
