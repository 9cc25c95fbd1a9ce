//! `heddle recall [KEY]`: what was remembered, by key, by words, or all of it.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{MemoryView, RecallPage};

use super::remember::shown;
use crate::cli::text::{compact, table};
use crate::cli::{CliError, Context, exit, printable};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Without it: every key
    key: Option<String>,
    /// Whose: self, all, or a peer as @agent or @member/agent
    #[arg(long, value_name = "SCOPE", default_value = "self")]
    scope: String,
    /// Words that must all occur, "a phrase", or pre*
    #[arg(long, value_name = "QUERY", conflicts_with = "key")]
    search: Option<String>,
    /// Go on where a list was cut
    #[arg(long, conflicts_with_all = ["key", "search"])]
    cursor: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let mut query = context.scope();
    query.push(("scope", &args.scope));
    let rest = [
        ("key", &args.key),
        ("search", &args.search),
        ("cursor", &args.cursor),
    ];
    query.extend(
        rest.iter()
            .filter_map(|(name, value)| Some((*name, value.as_deref()?))),
    );
    let page = context.client().recall(&query)?;
    if let Some(key) = args.key.as_deref().filter(|_| page.items.is_empty()) {
        let message = format!("nobody remembers anything under {key:?}");
        return Err(CliError::new(exit::NOT_FOUND, message)
            .next("`heddle recall --scope all` shows every key."));
    }
    let is_one = args.key.is_some() && args.scope != "all";
    match page.items.as_slice() {
        [only] if is_one => {
            let value = shown(&only.value) + "\n";
            context.print_value(&page, |_| value)
        }
        [] => context.print(&page, |_| nothing(context, &args)),
        _ => context.print(&page, |page| describe(page) + &more(context, page, &args)),
    }
}

/// Why a page is empty: nothing matches, nothing of one's own, or nothing at all.
fn nothing(context: &Context, args: &Args) -> String {
    if let Some(words) = &args.search {
        return context.spelled_in(&format!(
            "nothing that is remembered matches {words:?}; `heddle recall --scope all` shows every key\n"
        ));
    }
    let mut query = context.scope();
    query.extend([("scope", "all"), ("limit", "1")]);
    let others = context.client().recall(&query);
    if args.scope != "all" && others.is_ok_and(|page| !page.items.is_empty()) {
        return context.spelled_in(
            "nothing of its own is remembered; `heddle recall --scope all` shows what others keep\n",
        );
    }
    "nothing is remembered here; keep something with `heddle remember KEY VALUE`\n".to_owned()
}

fn describe(page: &RecallPage) -> String {
    let head = ["KEY", "PEER", "TAGS", "VALUE"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    rows.extend(page.items.iter().map(row));
    table(&rows)
}

fn more(context: &Context, page: &RecallPage, args: &Args) -> String {
    match &page.cursor {
        Some(cursor) => {
            let options = [("scope", args.scope.as_str()), ("cursor", cursor)];
            context.there_is_more(
                "recall",
                &[],
                &options.map(|(name, value)| (name, Some(value))),
            )
        }
        None if !page.more => String::new(),
        None if args.search.is_some() => "there is more; search for more words\n".to_owned(),
        None => "there is more; say whose with --scope @agent\n".to_owned(),
    }
}

fn row(item: &MemoryView) -> Vec<String> {
    vec![
        printable(&item.key),
        item.peer.clone(),
        item.tags.join(" "),
        compact(&item.value).unwrap_or_else(|| "null".to_owned()),
    ]
}
