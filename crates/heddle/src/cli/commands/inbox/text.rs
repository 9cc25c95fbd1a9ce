//! What a person sees of the inbox. Everything in it is written by others and shown, never obeyed.

use heddle_wire::ipc::{InboxItem, InboxPage, SearchPage, ThreadPage};

use super::Args;
use crate::cli::Context;
use crate::cli::text::{compact, indented, printable};

pub(super) fn describe(context: &Context, page: &InboxPage) -> String {
    let mut text: String = page.items.iter().map(describe_item).collect();
    if page.items.is_empty() {
        text.push_str("no unread messages\n");
    }
    if let Some(note) = &page.note {
        text.push_str(&format!("({})\n", printable(&context.spelled_in(note))));
    }
    text + &freshness(page.stale, page.as_of.as_deref())
}

pub(super) fn describe_found(page: &SearchPage) -> String {
    let mut text: String = page.items.iter().map(describe_item).collect();
    if page.items.is_empty() {
        text.push_str("nothing was found\n");
    }
    text + &freshness(page.stale, page.as_of.as_deref())
}

/// A thread: each message under the id that an answer to it names.
pub(super) fn describe_thread(page: &ThreadPage) -> String {
    let mut text = String::new();
    if page.more {
        text.push_str("(older messages of this thread are left off)\n");
    }
    for one in &page.items {
        let item = &one.message;
        let place = match (&one.to, &item.topic) {
            (Some(to), _) => to.clone(),
            (None, Some(topic)) => format!("#{topic}"),
            (None, None) => format!("@{}", item.agent),
        };
        let mut head = format!(
            "{}  {} → {place}  {}",
            item.client_message_id, item.from, item.received_at
        );
        if let Some(reply_to) = &item.reply_to_id {
            head.push_str(&format!("  re {reply_to}"));
        }
        if let Some(status) = one.status.as_deref().filter(|status| *status != "done") {
            head.push_str(&format!("  ({status})"));
        }
        text.push_str(&format!(
            "{}\n{}",
            printable(&head),
            indented(&item.body, 4)
        ));
        if item.damaged {
            text.push_str(&indented("(damaged: its text cannot be read any more)", 4));
        } else if one.sent && item.body.is_empty() {
            text.push_str(&indented("(its text was given back by a prune)", 4));
        }
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

/// The command that shows what the page had no room for.
pub(super) fn more(context: &Context, page: &InboxPage, args: &Args) -> String {
    if !page.more {
        return String::new();
    }
    go_on(context, args, ("since", &page.cursor))
}

pub(super) fn more_found(context: &Context, page: &SearchPage, args: &Args) -> String {
    match &page.cursor {
        Some(cursor) if page.more => go_on(context, args, ("cursor", cursor)),
        _ => String::new(),
    }
}

fn go_on(context: &Context, args: &Args, (name, cursor): (&str, &str)) -> String {
    let words: &[&str] = if args.all { &["--all"] } else { &[] };
    // A search keeps its `since`; for everything else the cursor takes its place.
    let since = args.since.as_deref().filter(|_| name != "since");
    let options = [
        ("search", args.search.as_deref()),
        ("session", args.session.as_deref()),
        ("from", args.from.as_deref()),
        ("topic", args.topic.as_deref()),
        ("limit", args.limit.as_deref()),
        ("since", since),
        (name, Some(cursor)),
    ];
    context.there_is_more("inbox", words, &options)
}

/// A heading, the body below it, and then what came along.
pub(super) fn describe_item(item: &InboxItem) -> String {
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
    if item.damaged {
        text.push_str(&indented(&format!("(damaged: the text of this message cannot be read any more; ask {} to send it again)", item.from), 4));
    }
    if let Some(meta) = compact(&item.meta) {
        text.push_str(&indented(&format!("meta {meta}"), 4));
    }
    text
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
            damaged: false,
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
        let damaged = InboxItem {
            body: String::new(),
            damaged: true,
            meta: serde_json::Value::Null,
            ..item
        };
        insta::assert_snapshot!(describe_item(&damaged), @r"
        7  @ann/planner → @coder  T  [NOW]  re question-1  mentions @ann/coder
            (damaged: the text of this message cannot be read any more; ask @ann/planner to send it again)
        ");
    }
}
