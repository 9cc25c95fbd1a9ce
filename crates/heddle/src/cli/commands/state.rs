//! `heddle state set | get | list | delete`: what all agents of a mesh share.

use clap::{Args as ClapArgs, Subcommand};
use heddle_wire::ipc::{KeyBody, StatePage, StateSetBody};

use super::remember::{again, describe, id, shown, value};
use crate::cli::text::{compact, table};
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Set a value that all share
    Set {
        key: String,
        /// What parses as JSON is kept as JSON, everything else as text; `-` reads it from standard
        /// input
        #[arg(allow_negative_numbers = true)]
        value: String,
        /// The idempotency key: the same key and request again land once
        #[arg(long)]
        id: Option<String>,
    },
    /// Show a value
    Get { key: String },
    /// Show the values, in order of keys
    List {
        /// What the keys begin with
        #[arg(default_value = "")]
        prefix: String,
        /// Go on where a list was cut
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Delete a value
    Delete {
        key: String,
        /// The idempotency key: the same key and request again land once
        #[arg(long)]
        id: Option<String>,
    },
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Set {
            key,
            value,
            id: given,
        } => set(context, key, value, given),
        Verb::Get { key } => get(context, &key),
        Verb::List { prefix, cursor } => list(context, &prefix, cursor.as_deref()),
        Verb::Delete { key, id: given } => delete(context, key, given),
    }
}

fn set(
    context: &Context,
    key: String,
    text: String,
    given: Option<String>,
) -> Result<(), CliError> {
    let body = StateSetBody {
        key,
        value: value(text)?,
        client_message_id: Some(id(given)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.set_state(&body))?;
    context.print(&answer, |answer| describe("set", answer))
}

fn delete(context: &Context, key: String, given: Option<String>) -> Result<(), CliError> {
    let body = KeyBody {
        key,
        client_message_id: Some(id(given)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.delete_state(&body))?;
    context.print(&answer, |answer| describe("deleted", answer))
}

fn get(context: &Context, key: &str) -> Result<(), CliError> {
    let mut query = vec![("key", key)];
    query.extend(context.scope());
    let view = context.client().get_state(&query)?;
    context.print_value(&view, |view| shown(&view.value) + "\n")
}

fn list(context: &Context, prefix: &str, cursor: Option<&str>) -> Result<(), CliError> {
    let mut query = vec![("prefix", prefix)];
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    query.extend(context.scope());
    let page = context.client().list_state(&query)?;
    context.print(&page, |page| {
        let mut text = text(page);
        if let Some(cursor) = &page.cursor {
            let words: &[&str] = if prefix.is_empty() { &[] } else { &[prefix] };
            let options = [("cursor", Some(cursor.as_str()))];
            text.push_str(&context.there_is_more("state list", words, &options));
        }
        text
    })
}

fn text(page: &StatePage) -> String {
    if page.items.is_empty() {
        return "nothing is set here; set something with `heddle state set KEY VALUE`\n".to_owned();
    }
    let head = ["KEY", "BY", "VALUE"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    rows.extend(page.items.iter().map(|item| {
        let value = compact(&item.value).unwrap_or_else(|| "null".to_owned());
        vec![item.key.clone(), item.updated_by.clone(), value]
    }));
    table(&rows)
}
