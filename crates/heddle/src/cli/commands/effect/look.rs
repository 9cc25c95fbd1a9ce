//! `heddle effect status | list | log | surface-check`: reads that write nothing.

use clap::Args as ClapArgs;
use heddle_core::limits::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX};

use super::text;
use crate::cli::error::exit;
use crate::cli::limit::parse_newest;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub(super) struct StatusArgs {
    /// The effect's key
    key: String,
}

pub(super) fn status(context: &Context, args: &StatusArgs) -> Result<(), CliError> {
    let mut query = vec![("key", args.key.as_str())];
    query.extend(context.scope());
    let view = context.client().effect_status(&query)?;
    context.print(&view, |view| text::status(context, view))?;
    let mut answered = CliError::quiet();
    answered.code = match (view.state.as_str(), view.status.as_str()) {
        // Who decides could not be asked, and nobody else knows whether the key was used.
        (_, "waiting_for_broker") => exit::UNREACHABLE,
        // An answer, and yet nothing was ever registered (CONTRACT: exit 4).
        ("S0", _) => exit::NOT_FOUND,
        _ => return Ok(()),
    };
    Err(answered)
}

#[derive(Debug, ClapArgs)]
pub(super) struct ListArgs {
    /// How many at most
    #[arg(long, value_parser = parse_newest, allow_negative_numbers = true)]
    limit: Option<usize>,
}

pub(super) fn list(context: &Context, args: &ListArgs) -> Result<(), CliError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let mut query = context.scope();
    query.extend(limit.as_deref().map(|limit| ("limit", limit)));
    let list = context.client().effects(&query)?;
    context.print(&list, |list| {
        text::list(list) + &older_left_out(list.effects.len(), args.limit)
    })
}

/// Who is shown as many as were asked for may be without older ones, and there is no further page.
fn older_left_out(shown: usize, limit: Option<usize>) -> String {
    if shown < limit.unwrap_or(PAGE_ROWS_DEFAULT) {
        return String::new();
    }
    let more = if shown < PAGE_ROWS_MAX {
        format!("--limit shows up to {PAGE_ROWS_MAX}, and ")
    } else {
        String::new()
    };
    format!("these are the newest {shown}: {more}what is older is found by its key\n")
}

#[derive(Debug, ClapArgs)]
pub(super) struct LogArgs {
    /// Of this key only
    key: Option<String>,
    /// How many lines at most
    #[arg(long, value_parser = parse_newest, allow_negative_numbers = true)]
    limit: Option<usize>,
}

pub(super) fn log(context: &Context, args: &LogArgs) -> Result<(), CliError> {
    let limit = args.limit.map(|limit| limit.to_string());
    let mut query = context.scope();
    query.extend(args.key.as_deref().map(|key| ("key", key)));
    query.extend(limit.as_deref().map(|limit| ("limit", limit)));
    let log = context.client().effect_log(&query)?;
    context.print(&log, |log| {
        text::log(log) + &older_left_out(log.lines.len(), args.limit)
    })
}

#[derive(Debug, ClapArgs)]
pub(super) struct SurfaceArgs {}

pub(super) fn surface_check(context: &Context, _: &SurfaceArgs) -> Result<(), CliError> {
    let surface = context.client().effect_surface(&context.scope())?;
    if surface.fit && surface.changed.is_empty() {
        return context.print(&surface, text::surface);
    }
    if surface.fit {
        let sentence = format!(
            "the store is fit, but not as it was written: {}",
            surface.changed.join("; ")
        );
        return Err(CliError::new(exit::FAILED, sentence)
            .next("The keys stay used, and nothing is run again: look at the targets for what has happened. Put the store back from a copy that is as new and whole, and check the disk.")
            .answer(serde_json::to_value(&surface).unwrap_or_default()));
    }
    let answer = serde_json::to_value(&surface).unwrap_or_default();
    let failed: Vec<&str> = surface
        .criteria
        .iter()
        .filter(|criterion| !criterion.met)
        .map(|criterion| criterion.letter.as_str())
        .collect();
    let missing = surface.criteria.iter().flat_map(|one| &one.missing);
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    let mut sentence = format!(
        "REPLAY_SURFACE_NOT_FIT: the store fails ({})",
        failed.join("), (")
    );
    if !missing.is_empty() {
        sentence += &format!(
            "; not there, or not as it should be: {}",
            missing.join(", ")
        );
    }
    Err(CliError::new(exit::FAILED, sentence)
        .next("Put a sound store in its place: effects.db from a copy, or the schema of a broker's PostgreSQL from its backup. Nothing is registered in this one after a restart.")
        .answer(answer))
}
