//! `heddle reserve`: tells every agent in this repository which paths one works on.

use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::shell::options;
use heddle_journal::{Journal, Reservation, Reserved};
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
    /// The same request under the same key again takes nothing and gets the first answer; another one is refused
    #[arg(long, value_name = "KEY", requires = "glob")]
    idempotency_key: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let Some(glob) = args.glob else {
        return list(context, &journal);
    };
    let glob = store::glob(&journal, &glob)?;
    let ttl = Duration::from_secs(args.ttl);
    let key = args.idempotency_key.as_deref();
    match journal.reserve_once(&glob, ttl, key).map_err(store::told)? {
        Reserved::Granted(reservation) => {
            store::note_late(&reservation);
            context.print_done(&reservation, |r| {
                let (glob, until) = (&r.glob, &r.expires_at);
                printable(&if r.duplicate {
                    format!(
                        "as before, and nothing was taken now: {glob} was yours until {until}; `heddle reserve` shows what holds\n"
                    )
                } else {
                    format!("{glob} is yours until {until}\n")
                })
            })
        }
        Reserved::Held(held) => {
            let sentence = format!(
                "{} holds {} until {}",
                held.owner, held.glob, held.expires_at
            );
            let next = format!(
                "Take other paths, wait, or ask {} for `heddle release {}{}`.",
                held.owner,
                store::typed(&journal, &held.glob),
                options(&[("--agent", &held.owner)])
            );
            let answer = json!({"held": held});
            let error = CliError::new(exit::CONFLICT, printable(&sentence));
            Err(error.next(printable(&next)).beside(answer))
        }
    }
}

fn list(context: &Context, journal: &Journal) -> Result<(), CliError> {
    let (held, doubt) = journal.known_reservations().map_err(store::told)?;
    let answer = json!({ "reservations": held });
    let line = |r: &Reservation| format!("{}  {} until {}\n", r.glob, r.owner, r.expires_at);
    let text = printable(&held.iter().map(line).collect::<String>());
    if let Some(doubt) = doubt {
        let error = store::told(doubt);
        let known = if held.is_empty() {
            String::new()
        } else {
            format!("; known are\n{}", text.trim_end())
        };
        let message = format!("{}{known}", error.message);
        return Err(CliError { message, ..error }.beside(answer));
    }
    store::note_aside(journal);
    store::note_losses(journal);
    context.print(&answer, |_| {
        if text.is_empty() {
            "nothing is reserved\n".to_owned()
        } else {
            text
        }
    })
}
