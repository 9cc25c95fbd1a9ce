//! `heddle advanced export`: everything that a home holds as JSON lines, for other tools and for eyes.

use std::collections::BTreeSet;

use clap::{Args as ClapArgs, ValueEnum};
use serde_json::{Value, json};

use crate::cli::context::refuse_left_out;
use crate::cli::{CliError, Context, exit, ui};

const PAGE: &str = "200";

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// One JSON object a line: {"kind","mesh","row"}; kind is mesh, data, outbox or inbox
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Jsonl,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let Format::Jsonl = args.format;
    let list = serde_json::to_value(context.client().meshes()?).unwrap_or_default();
    let unserved = context.client().status()?.unserved;
    if !unserved.is_empty() {
        ui::note(&format!(
            "warning: not in it is mesh {}: its data is in the store, but nothing serves it\n  next: `heddle doctor` says how it comes back.",
            unserved.join(", ")
        ));
    }
    let (mut count, mut left_out) = (0, BTreeSet::new());
    for mesh in list["meshes"].as_array().into_iter().flatten() {
        let name = mesh["mesh"].as_str().unwrap_or_default();
        if context.mesh.as_deref().is_none_or(|wanted| wanted == name) {
            left_out.extend(one(context, name, mesh)?);
            count += 1;
        }
    }
    if count > 0 {
        return refuse_left_out(left_out);
    }
    let none = CliError::new(exit::NOT_FOUND, "there is no such mesh in this home");
    Err(none.next("`heddle mesh list` shows the meshes."))
}

/// Page by page: a mesh that changes meanwhile is printed as no moment had it. The rows of it that nobody can read.
fn one(context: &Context, name: &str, mesh: &Value) -> Result<BTreeSet<String>, CliError> {
    let client = context.client();
    line("mesh", name, mesh)?;
    let mut left_out = BTreeSet::new();
    pages(|cursor| {
        let page = client.dump(&query(name, cursor, false))?;
        for text in &page.lines {
            let row: Value = serde_json::from_str(text).unwrap_or_default();
            line("data", name, &row)?;
        }
        left_out.extend(page.left_out);
        Ok(page.cursor)
    })?;
    pages(|cursor| {
        let page = client.outbox(&query(name, cursor, true))?;
        for row in &page.rows {
            line(
                "outbox",
                name,
                &serde_json::to_value(row).unwrap_or_default(),
            )?;
        }
        Ok(page.cursor)
    })?;
    let agents = client.agents(&[("mesh", name)])?;
    for agent in &agents.agents {
        pages(|cursor| {
            let mut query = query(name, None, true);
            query.extend([("agent", agent.agent.as_str()), ("all", "true")]);
            query.extend(cursor.map(|cursor| ("since", cursor)));
            let page = client.inbox(&query)?;
            for item in &page.items {
                line(
                    "inbox",
                    name,
                    &serde_json::to_value(item).unwrap_or_default(),
                )?;
            }
            Ok((!page.items.is_empty()).then_some(page.cursor))
        })?;
    }
    Ok(left_out)
}

fn query<'q>(mesh: &'q str, cursor: Option<&'q str>, limited: bool) -> Vec<(&'q str, &'q str)> {
    let mut query = vec![("mesh", mesh)];
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    query.extend(limited.then_some(("limit", PAGE)));
    query
}

fn pages(
    mut page: impl FnMut(Option<&str>) -> Result<Option<String>, CliError>,
) -> Result<(), CliError> {
    let mut cursor: Option<String> = None;
    loop {
        match page(cursor.as_deref())? {
            None => return Ok(()),
            next => cursor = next,
        }
    }
}

fn line(kind: &str, mesh: &str, row: &Value) -> Result<(), CliError> {
    ui::raw(&format!(
        "{}\n",
        json!({"kind": kind, "mesh": mesh, "row": row})
    ))
}
