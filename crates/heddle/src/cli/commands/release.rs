//! `heddle release`: gives paths back that `heddle reserve` took.

use clap::Args as ClapArgs;

use super::journal::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The very glob that was reserved
    glob: String,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let glob = store::glob(&journal, &args.glob)?;
    match journal.release(&glob).map_err(store::told)? {
        Some(released) => context.print(&released, |r| {
            printable(&format!("{} is free again\n", r.glob))
        }),
        None => {
            let sentence = format!("you hold no reservation of {}", glob.as_str());
            Err(CliError::new(exit::NOT_FOUND, printable(&sentence))
                .next("`heddle reserve` without a pattern shows what is reserved, and by whom."))
        }
    }
}
