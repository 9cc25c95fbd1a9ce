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
    context.print(&page, |page| match page.items.as_slice() {
        [only] if is_one => shown(&only.value) + "\n",
        _ => describe(page) + &more(context, page, &args),
    })
}

fn describe(page: &RecallPage) -> String {
    if page.items.is_empty() {
        return "nothing is remembered here; keep something with `heddle remember KEY VALUE`\n"
            .to_owned();
    }
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
