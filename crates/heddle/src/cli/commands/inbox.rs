//! `heddle inbox`: a peek at an agent's messages, now or as they arrive, or found by their words.

use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::error_code::ErrorKind;
use heddle_core::limits::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX};
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{
    AckBody, EVENT_GAP, EVENT_MESSAGE, InboxItem, InboxPage, SearchPage, SeenBody, ShownBody,
};
use serde_json::Value;

use crate::cli::text::{indented, printable};
use crate::cli::{CliError, Context, exit, ui};

/// Between two tries to get an interrupted stream back.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);
/// Tries before `--follow` gives up on a daemon that went away: about a minute.
const RECONNECTS_MAX: u32 = 120;
/// Of a message's meta, what is shown to people; `--json` has all of it.
const META_CHARS_MAX: usize = 240;

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
    #[arg(long)]
    limit: Option<String>,
    /// Only messages with these words ("a phrase" and pre* work), newest first, read or not
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["follow", "all"])]
    search: Option<String>,
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

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let client = context.client();
    if args.follow {
        return follow(context, &client, &args);
    }
    let query = query(context, &args);
    if args.search.is_some() {
        let page = client.search(&query)?;
        context.print(&page, |page| {
            describe_found(page) + &more_found(page, &args)
        })?;
        return settle(context, &client, &args, &page.items);
    }
    let page = client.inbox(&query)?;
    context.print(&page, |page| describe(page) + &more(page, &args))?;
    settle(context, &client, &args, &page.items)?;
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

/// First what is there, page by page; then the stream, resumed behind the last message shown.
fn follow(context: &Context, client: &Client, args: &Args) -> Result<(), CliError> {
    let agent = match &context.agent {
        Some(agent) => agent.clone(),
        None => client.status()?.agent.unwrap_or_default(),
    };
    let mut cursor = args.since.clone();
    loop {
        let mut page_query = query(context, args);
        page_query.retain(|(name, _)| *name != "since");
        page_query.extend(cursor.as_deref().map(|cursor| ("since", cursor)));
        let page = client.inbox(&page_query)?;
        show(context, client, args, &page.items)?;
        cursor = Some(page.cursor);
        if page.items.is_empty() {
            break;
        }
    }
    let mut filters = query(context, args);
    filters.retain(|(name, _)| !matches!(*name, "since" | "all" | "agent"));
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
                    if event.name == EVENT_GAP {
                        ui::note("some older messages were taken by the retention before this");
                    }
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
            Err(error) if failures < RECONNECTS_MAX && is_passing(&error) => {}
            Err(error) => return Err(error.into()),
        }
        failures += 1;
        thread::sleep(RECONNECT_EVERY);
    }
}

/// Whether waiting can help: the daemon is away, starting, stopping or has no place free.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::NotRunning { .. } | ClientError::Broken(_) | ClientError::Silent => true,
        ClientError::Problem(problem) => problem
            .known_code()
            .is_some_and(|code| code.kind() == ErrorKind::Busy),
        _ => false,
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
    settle(context, client, args, items)
}

/// What was printed was shown; with `--ack` it is acknowledged, too.
fn settle(
    context: &Context,
    client: &Client,
    args: &Args,
    items: &[InboxItem],
) -> Result<(), CliError> {
    if items.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
    let agent = context.agent.clone();
    if args.ack {
        client.ack(&AckBody { ids, agent })?;
        return Ok(());
    }
    // The messages are on the screen; that nobody could be told of it is no failure of this verb.
    let _ = client.shown(&ShownBody { ids, agent });
    Ok(())
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

fn describe(page: &InboxPage) -> String {
    let mut text: String = page.items.iter().map(describe_item).collect();
    if page.items.is_empty() {
        text.push_str("no unread messages\n");
    }
    text + &freshness(page.stale, page.as_of.as_deref())
}

fn describe_found(page: &SearchPage) -> String {
    let mut text: String = page.items.iter().map(describe_item).collect();
    if page.items.is_empty() {
        text.push_str("nothing was found\n");
    }
    text + &freshness(page.stale, page.as_of.as_deref())
}

fn freshness(stale: bool, as_of: Option<&str>) -> String {
    if !stale {
        return String::new();
    }
    let since = as_of.unwrap_or("an unknown time");
    format!("(the broker is out of reach since {since}: there may be more)\n")
}

/// A page that is as long as it may be is probably not the last one.
fn is_full(count: usize, args: &Args) -> bool {
    let limit = args.limit.as_deref().and_then(|limit| limit.parse().ok());
    count >= limit.unwrap_or(PAGE_ROWS_DEFAULT).min(PAGE_ROWS_MAX)
}

fn more(page: &InboxPage, args: &Args) -> String {
    if !is_full(page.items.len(), args) {
        return String::new();
    }
    format!(
        "(there may be more: heddle inbox --since {})\n",
        page.cursor
    )
}

fn more_found(page: &SearchPage, args: &Args) -> String {
    match &page.cursor {
        Some(cursor) if is_full(page.items.len(), args) => {
            format!("(there may be more: add --cursor {cursor})\n")
        }
        _ => String::new(),
    }
}

/// A heading, the body below it, and then what came along.
fn describe_item(item: &InboxItem) -> String {
    let place = match &item.topic {
        Some(topic) => format!("#{topic}"),
        None => format!("@{}", item.agent),
    };
    let mut head = format!(
        "{}  {} → {}  {}",
        item.id, item.from, place, item.received_at
    );
    match item.priority.as_str() {
        "next" => {}
        "now" => head.push_str("  [NOW]"),
        other => head.push_str(&format!("  [{other}]")),
    }
    if let Some(reply_to) = &item.reply_to_id {
        head.push_str(&format!("  re {reply_to}"));
    }
    if !item.mentions.is_empty() {
        head.push_str(&format!("  mentions {}", item.mentions.join(" ")));
    }
    let mut text = format!("{}\n{}", printable(&head), indented(&item.body, 4));
    if let Some(meta) = compact(&item.meta) {
        text.push_str(&indented(&format!("meta {meta}"), 4));
    }
    text
}

/// On one line, and not longer than a few of a terminal's.
fn compact(meta: &Value) -> Option<String> {
    if meta.is_null() {
        return None;
    }
    let whole = meta.to_string();
    let shown: String = whole.chars().take(META_CHARS_MAX).collect();
    Some(if shown.len() < whole.len() {
        format!("{shown}…")
    } else {
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_item_shows_its_thread_its_urgency_whom_it_names_and_its_meta() {
        let item = InboxItem {
            id: "7".to_owned(),
            client_message_id: "c".to_owned(),
            broker_message_id: "b".to_owned(),
            history_id: "1.2".to_owned(),
            mesh: "home".to_owned(),
            agent: "coder".to_owned(),
            topic: None,
            from: "@ann/planner".to_owned(),
            body: "stop\nthe line".to_owned(),
            priority: "now".to_owned(),
            meta: json!({"ticket": 12}),
            mentions: vec!["@ann/coder".to_owned()],
            received_at: "T".to_owned(),
            shown_at: None,
            acked_at: None,
            reply_to_id: Some("question-1".to_owned()),
        };
        insta::assert_snapshot!(describe_item(&item), @r#"
        7  @ann/planner → @coder  T  [NOW]  re question-1  mentions @ann/coder
            stop
            the line
            meta {"ticket":12}
        "#);
    }

    #[test]
    fn a_long_meta_is_cut_and_none_is_not_shown() {
        assert_eq!(compact(&Value::Null), None);
        let long = compact(&json!({"k": "ö".repeat(2 * META_CHARS_MAX)}));
        let long = long.unwrap();
        assert_eq!(long.chars().count(), META_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
