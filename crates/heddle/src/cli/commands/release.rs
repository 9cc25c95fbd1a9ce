//! `heddle release`: gives paths back that `heddle reserve` took.

use clap::Args as ClapArgs;

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
        Some(released) => context.print_done(&released, |r| {
            let words = if r.duplicate {
                "was given back before, and nothing was given back now"
            } else {
                "is free again"
            };
            printable(&format!("{} {words}\n", r.glob))
        }),
        None => {
            let sentence = format!("you hold no reservation of {}", glob.as_str());
            Err(CliError::new(exit::NOT_FOUND, printable(&sentence))
                .next("`heddle reserve` without a pattern shows what is reserved, and by whom."))
        }
    }
}
