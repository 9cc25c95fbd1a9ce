//! `heddle reserve`: tells every agent in this repository which paths one works on.

use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_journal::Reserved;
use serde_json::json;

use super::journal::store;
use crate::cli::span::parse_seconds;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// src/parser/**, docs/*.md, or a plain path for it and all below; without it, what is reserved is shown
    glob: Option<String>,
    /// How long, as 30d, 12h, 90m or 45s
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = parse_seconds)]
    ttl: u64,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let Some(glob) = args.glob else {
        let held = journal.reservations().map_err(store::told)?;
        return context.print(&json!({ "reservations": held }), |_| {
            let line = |r: &heddle_journal::Reservation| {
                format!("{}  {} until {}\n", r.glob, r.owner, r.expires_at)
            };
            if held.is_empty() {
                "nothing is reserved\n".to_owned()
            } else {
                printable(&held.iter().map(line).collect::<String>())
            }
        });
    };
    let glob = store::glob(&journal, &glob)?;
    let ttl = Duration::from_secs(args.ttl);
    match journal.reserve(&glob, ttl).map_err(store::told)? {
        Reserved::Granted(reservation) => context.print(&reservation, |r| {
            printable(&format!("{} is yours until {}\n", r.glob, r.expires_at))
        }),
        Reserved::Held(held) => {
            let sentence = format!(
                "{} holds {} until {}",
                held.owner, held.glob, held.expires_at
            );
            let next = format!(
                "Take other paths, wait, or ask {owner} for `heddle release '{}' --agent {owner}`.",
                held.glob,
                owner = held.owner
            );
            let answer = json!({"held": held});
            let error = CliError::new(exit::CONFLICT, printable(&sentence));
            Err(error.next(printable(&next)).answer(answer))
        }
    }
}
