//! `heddle effect status | list | log | surface-check`: reads that write nothing.

use clap::Args as ClapArgs;

use super::text;
use crate::cli::error::exit;
use crate::cli::limit::parse_limit;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub(super) struct StatusArgs {
    /// The effect's key
    #[arg(allow_hyphen_values = true)]
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
pub(super) struct PageArgs {
    /// How many at most
    #[arg(long, value_name = "N", value_parser = parse_limit, allow_negative_numbers = true)]
    limit: Option<usize>,
    /// The cursor of the page before
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

impl PageArgs {
    fn query<'a>(&'a self, limit: Option<&'a str>) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = [("limit", limit), ("cursor", self.cursor.as_deref())];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
    }

    fn limit(&self) -> Option<String> {
        self.limit.map(|limit| limit.to_string())
    }
}

/// How what is older is shown, where there is any.
fn older(
    context: &Context,
    (verb, key): (&str, Option<&str>),
    (limit, cursor): (Option<&str>, Option<&str>),
) -> String {
    let Some(cursor) = cursor else {
        return String::new();
    };
    let key: Vec<&str> = key.into_iter().collect();
    let options = [("limit", limit), ("cursor", Some(cursor))];
    context.there_is_more(verb, &key, &options)
}

#[derive(Debug, ClapArgs)]
pub(super) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

pub(super) fn list(context: &Context, args: &ListArgs) -> Result<(), CliError> {
    let limit = args.page.limit();
    let mut query = context.scope();
    query.extend(args.page.query(limit.as_deref()));
    let list = context.client().effects(&query)?;
    context.print(&list, |list| {
        let page = (limit.as_deref(), list.cursor.as_deref());
        text::list(list) + &older(context, ("effect list", None), page)
    })
}

#[derive(Debug, ClapArgs)]
pub(super) struct LogArgs {
    /// Of this key only
    key: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

pub(super) fn log(context: &Context, args: &LogArgs) -> Result<(), CliError> {
    let (key, limit) = (args.key.as_deref(), args.page.limit());
    let mut query = context.scope();
    query.extend(key.map(|key| ("key", key)));
    query.extend(args.page.query(limit.as_deref()));
    let log = context.client().effect_log(&query)?;
    context.print(&log, |log| {
        let page = (limit.as_deref(), log.cursor.as_deref());
        text::log(log) + &older(context, ("effect log", key), page)
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
