//! `heddle release`: gives paths back that `heddle reserve` took.

use clap::Args as ClapArgs;
use heddle_core::shell::options;
use heddle_journal::{Glob, Journal, Reservation};

use super::journal::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The very glob that was reserved
    glob: String,
    /// The same request under the same key again gives nothing back and gets the first answer; another one is refused
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let glob = store::glob(&journal, &args.glob)?;
    let key = args.idempotency_key.as_deref();
    match journal.release_once(&glob, key).map_err(store::told)? {
        Some(released) => {
            store::note_late(&released);
            context.print_done(&released, |r| {
                let words = if r.duplicate {
                    "was given back before, and nothing was given back now".to_owned()
                } else {
                    given_back(&journal, &glob)
                };
                printable(&format!("{} {words}\n", r.glob))
            })
        }
        None => {
            let sentence = format!("you hold no reservation of {}", glob.as_str());
            let next = from_the_root(&journal, &args.glob).unwrap_or_else(|| {
                "`heddle reserve` without a pattern shows what is reserved, and by whom.".to_owned()
            });
            Err(CliError::new(exit::NOT_FOUND, printable(&sentence)).next(printable(&next)))
        }
    }
}

/// Lists name patterns from the repository's root on, and in a folder below it they are typed otherwise.
fn from_the_root(journal: &Journal, text: &str) -> Option<String> {
    let (held, _) = journal.known_reservations().ok()?;
    let mut held: Vec<Reservation> = held.into_iter().filter(|held| held.glob == text).collect();
    // One's own first.
    held.sort_by_key(|held| held.owner != journal.agent());
    let held = held.into_iter().next()?;
    let command = format!(
        "`heddle release {}{}`",
        store::typed(journal, &held.glob),
        options(&[("--agent", &held.owner)])
    );
    Some(if held.owner == journal.agent() {
        format!("From the repository's root on that is yours; here it is {command}.")
    } else {
        // Whoever pastes what is advised gives nothing of another's back by mistake.
        format!(
            "From the repository's root on that is {0}'s until {1}, and {0}'s to give back: ask {0} for {command}.",
            held.owner, held.expires_at
        )
    })
}

/// Free only where nothing else holds any of it: a wider pattern of one's own, or somebody else's claim.
fn given_back(journal: &Journal, glob: &Glob) -> String {
    let Ok((held, None)) = journal.known_reservations() else {
        return "is given back; `heddle reserve` shows what else is reserved".to_owned();
    };
    let is_in_the_way =
        |held: &&Reservation| Glob::parse(&held.glob).is_ok_and(|other| other.overlaps(glob));
    match held.iter().find(is_in_the_way) {
        None => "is free again".to_owned(),
        Some(held) => format!(
            "is given back, and not free: {} holds {} until {}",
            held.owner, held.glob, held.expires_at
        ),
    }
}
