//! `heddle inbox`: a peek at an agent's messages, now or as they arrive, or found by their words.

mod follow;
mod text;

use clap::Args as ClapArgs;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{AckBody, InboxItem, SeenBody, ShownBody};

use crate::cli::limit::parse_limit;
use crate::cli::{CliError, Context};
use text::{describe, describe_found, describe_thread, more, more_found};

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
    #[arg(long, value_name = "N", value_parser = limit_text, allow_negative_numbers = true)]
    limit: Option<String>,
    /// Only messages with these words ("a phrase" and pre* work), newest first, read or not
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["follow", "all"])]
    search: Option<String>,
    /// The whole thread of the message with this id: what came and what was sent, oldest first, read or not
    #[arg(long, value_name = "ID", conflicts_with_all = ["follow", "all", "search", "session", "since", "from", "topic"])]
    thread: Option<String>,
    /// Go on behind an earlier page of a search
    #[arg(long, requires = "search")]
    cursor: Option<String>,
    /// Only what this session has not read yet; --ack moves it on
    #[arg(long, value_name = "NAME", conflicts_with_all = ["follow", "search"])]
    session: Option<String>,
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

/// Checked here, and sent as text.
fn limit_text(text: &str) -> Result<String, String> {
    parse_limit(text).map(|limit| limit.to_string())
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let client = context.client();
    if args.follow {
        return follow::run(context, &client, &args);
    }
    let query = query(context, &args);
    if let Some(id) = &args.thread {
        let mut query = context.scope();
        query.push(("id", id));
        query.extend(args.limit.as_deref().map(|limit| ("limit", limit)));
        let page = client.thread(&query)?;
        context.print(&page, describe_thread)?;
        let came = page.items.into_iter().filter(|one| !one.sent);
        let came: Vec<InboxItem> = came.map(|one| one.message).collect();
        return settle_page(context, &client, &args, &came);
    }
    if args.search.is_some() {
        let page = client.search(&query)?;
        context.print(&page, |page| {
            describe_found(page) + &more_found(context, page, &args)
        })?;
        return settle_page(context, &client, &args, &page.items);
    }
    let page = client.inbox(&query)?;
    context.print(&page, |page| {
        describe(context, page) + &more(context, page, &args)
    })?;
    settle_page(context, &client, &args, &page.items)?;
    match &args.session {
        Some(session) if args.ack => seen(context, &client, session, page.cursor),
        _ => Ok(()),
    }
}

fn query<'a>(context: &'a Context, args: &'a Args) -> Vec<(&'a str, &'a str)> {
    let mut query = context.scope();
    let filters = [
        ("since", &args.since),
        ("from", &args.from),
        ("topic", &args.topic),
        ("q", &args.search),
        ("cursor", &args.cursor),
        ("session", &args.session),
        ("limit", &args.limit),
    ];
    for (name, value) in filters {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    if args.all {
        query.push(("all", "true"));
    }
    query
}

/// What was printed was shown; with `--ack` it is acknowledged, too.
fn settle(
    context: &Context,
    client: &Client,
    args: &Args,
    ids: Vec<String>,
) -> Result<(), ClientError> {
    let agent = context.agent.clone();
    if ids.is_empty() {
        Ok(())
    } else if args.ack {
        client.ack(&AckBody { ids, agent }).map(drop)
    } else {
        client.shown(&ShownBody { ids, agent }).map(drop)
    }
}

/// After a page: its messages are on the screen, and that nobody could be told that they were shown
/// is no failure of this verb. An ack is what was asked for.
fn settle_page(
    context: &Context,
    client: &Client,
    args: &Args,
    items: &[InboxItem],
) -> Result<(), CliError> {
    let ids = items.iter().map(|item| item.id.clone()).collect();
    match settle(context, client, args, ids) {
        Err(error) if args.ack => Err(error.into()),
        _ => Ok(()),
    }
}

fn seen(
    context: &Context,
    client: &Client,
    session: &str,
    through: String,
) -> Result<(), CliError> {
    client.seen(&SeenBody {
        session: session.to_owned(),
        through,
        agent: context.agent.clone(),
        mesh: context.mesh.clone(),
    })?;
    Ok(())
}
