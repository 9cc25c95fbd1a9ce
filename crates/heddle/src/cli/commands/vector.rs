//! `heddle vector store | search | list | delete`: texts, found by nearness.

use clap::{Args as ClapArgs, Subcommand};
use heddle_core::canonical::parse_ijson;
use heddle_wire::ipc::{
    VectorDeleteBody, VectorHits, VectorPage, VectorSearchBody, VectorStoreBody,
};
use serde_json::Value;

use super::remember::{again, describe, id};
use super::send::message;
use crate::cli::limit::parse_hits;
use crate::cli::text::{excerpt, table};
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keep a text with its embedding, under a key of your own
    Store(Store),
    /// Show what is nearest to a text
    Search(Search),
    /// Show what is stored, in order of keys
    List {
        /// Only what is stored under this model
        #[arg(long)]
        model: Option<String>,
        /// Go on where a list was cut
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Delete what is stored under a key
    Delete {
        key: String,
        /// Only under this model; under all of them by default
        #[arg(long)]
        model: Option<String>,
        /// The idempotency key: the same key and request again land once
        #[arg(long)]
        id: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
struct Store {
    key: String,
    /// The text; `-` reads it from standard input
    content: String,
    /// The numbers, as a JSON array; made by this home's provider by default
    #[arg(long, value_name = "JSON")]
    embedding: Option<String>,
    /// The model that makes or made the embedding
    #[arg(long)]
    model: Option<String>,
    /// JSON to keep beside it
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

#[derive(Debug, ClapArgs)]
struct Search {
    /// The text; `-` reads it from standard input
    #[arg(required_unless_present = "embedding", conflicts_with = "embedding")]
    query: Option<String>,
    /// Numbers instead of a text, as a JSON array
    #[arg(long, value_name = "JSON")]
    embedding: Option<String>,
    /// Search what this model made; never more than one
    #[arg(long)]
    model: Option<String>,
    /// How many to show
    #[arg(long, short = 'n', value_parser = parse_hits, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// Measure every vector, also where they are many
    #[arg(long)]
    exact: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Store(args) => store(context, args),
        Verb::Search(args) => search(context, args),
        Verb::List { model, cursor } => list(context, model.as_deref(), cursor.as_deref()),
        Verb::Delete {
            key,
            model,
            id: given,
        } => {
            let body = VectorDeleteBody {
                key,
                model,
                client_message_id: Some(id(given)),
                mesh: context.mesh.clone(),
                agent: context.agent.clone(),
            };
            let client = context.client();
            let answer = again(|| client.delete_vector(&body))?;
            context.print(&answer, |answer| describe("deleted", answer))
        }
    }
}

fn store(context: &Context, args: Store) -> Result<(), CliError> {
    let body = VectorStoreBody {
        key: args.key,
        content: message(args.content)?,
        embedding: args.embedding.as_deref().map(numbers).transpose()?,
        model: args.model,
        metadata: args.metadata.as_deref().map(json).transpose()?,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.store_vector(&body))?;
    context.print(&answer, |answer| describe("stored", answer))
}

fn search(context: &Context, args: Search) -> Result<(), CliError> {
    let body = VectorSearchBody {
        query: args.query.map(message).transpose()?,
        embedding: args.embedding.as_deref().map(numbers).transpose()?,
        model: args.model,
        limit: args.limit,
        exact: args.exact.then_some(true),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let hits = context.client().search_vectors(&body)?;
    context.print(&hits, hits_text)
}

fn list(context: &Context, model: Option<&str>, cursor: Option<&str>) -> Result<(), CliError> {
    let mut query = Vec::new();
    query.extend(model.map(|model| ("model", model)));
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    query.extend(context.scope());
    let page = context.client().list_vectors(&query)?;
    context.print(&page, |page| {
        let mut text = page_text(page);
        if let Some(cursor) = &page.cursor {
            let options = [("model", model), ("cursor", Some(cursor.as_str()))];
            text.push_str(&context.there_is_more("vector list", &[], &options));
        }
        text
    })
}

fn json(text: &str) -> Result<Value, CliError> {
    parse_ijson(text.as_bytes()).map_err(|error| CliError::new(exit::USAGE, error.to_string()))
}

fn numbers(text: &str) -> Result<Vec<f64>, CliError> {
    serde_json::from_value(json(text)?).map_err(|_| {
        CliError::new(exit::USAGE, "the embedding is not an array of numbers")
            .next("Write it like [0.1, -0.2].")
    })
}

fn hits_text(hits: &VectorHits) -> String {
    let elsewhere = elsewhere(hits);
    if hits.items.is_empty() {
        let next = match elsewhere.as_str() {
            "" => "store something with `heddle vector store KEY TEXT`\n",
            elsewhere => elsewhere,
        };
        return format!("nothing is stored under {}; {next}", hits.model);
    }
    let head = ["DISTANCE", "KEY", "BY", "TEXT"]
        .map(str::to_owned)
        .to_vec();
    let mut rows = vec![head];
    rows.extend(hits.items.iter().map(|item| {
        let distance = format!("{:.4}", item.distance.unwrap_or_default());
        vec![
            distance,
            item.key.clone(),
            item.peer.clone(),
            excerpt(&item.content),
        ]
    }));
    table(&rows) + &elsewhere
}

/// What a search of one model cannot find, and what moves it there; empty where there is nothing.
fn elsewhere(hits: &VectorHits) -> String {
    let count = match hits.under_other_models {
        0 => return String::new(),
        1 => "1 vector is".to_owned(),
        count => format!("{count} vectors are"),
    };
    // Nobody here makes such numbers: whoever brought these along brings the others along, too.
    let moves = if hits.model.starts_with("caller:") {
        format!(
            "store them anew with numbers of {}: `heddle vector store KEY TEXT --embedding NUMBERS`",
            hits.model
        )
    } else {
        format!("`heddle advanced re-embed --to {}` moves them", hits.model)
    };
    format!(
        "{count} stored under other models, which this search does not look at: {moves}; `heddle vector list` shows them\n"
    )
}

fn page_text(page: &VectorPage) -> String {
    if page.items.is_empty() {
        return "nothing is stored here; store something with `heddle vector store KEY TEXT`\n"
            .to_owned();
    }
    let head = ["KEY", "BY", "MODEL", "TEXT"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    rows.extend(page.items.iter().map(|item| {
        let (key, peer, model) = (item.key.clone(), item.peer.clone(), item.model.clone());
        vec![key, peer, model, excerpt(&item.content)]
    }));
    table(&rows)
}
