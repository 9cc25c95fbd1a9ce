//! `heddle journal events`: what a reader has not seen yet.

use clap::Args as ClapArgs;
use heddle_journal::Page;

use super::{log, redact, store};
use crate::cli::limit::parse_count;
use crate::cli::{CliError, Context, exit, ui};

/// Events on one page; the watermark stands behind the last one shown.
const EVENTS_DEFAULT: usize = 1000;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The reader; every running instance takes a name of its own
    #[arg(long, value_name = "NAME")]
    reader: String,
    /// Look only: the watermark stays
    #[arg(long)]
    peek: bool,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = EVENTS_DEFAULT, value_parser = parse_count,
          allow_negative_numbers = true)]
    limit: usize,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, Some(args.reader.clone()))?;
    redact::note_begun(&journal);
    if args.peek {
        let page = journal.events(&args.reader, args.limit, true);
        return context.print(&page.map_err(store::told)?, text);
    }
    if ui::is_nobody_reading() {
        // IMPORTANT: before the watermark could move. What nobody was shown is not seen.
        return Err(CliError::new(
            exit::FAILED,
            "standard output is closed: nobody was shown anything, and the watermark stands",
        )
        .next("Run it where its output is read; `--peek` looks without moving the watermark."));
    }
    let reading = journal.reading(&args.reader, None, args.limit);
    let reading = reading.map_err(store::told)?;
    // IMPORTANT: printed first. Who could not be told, or was killed meanwhile, is told again.
    context.print(reading.page(), text)?;
    let moved = reading.shown().map_err(store::told);
    moved.map(drop).map_err(|error| CliError {
        message: format!(
            "these events were shown, and the watermark could not be moved behind them: {}",
            error.message
        ),
        ..error
    }.next("They are shown again next time; `heddle journal verify` says whether the store can be written."))
}

fn text(page: &Page) -> String {
    let mut text = String::new();
    if let Some(had) = page.rewound_from {
        text.push_str(&format!(
            "this reader had seen up to seq {had}, and the journal is an older copy that was put back: some of this may be known\n"
        ));
    }
    if let Some(summary) = &page.summary {
        text.push_str(&format!(
            "some events were archived before they were read; the state up to seq {} has {} entities, events go on at seq {}\n",
            summary.head_seq, summary.entities, summary.oldest_seq
        ));
    } else if page.gap && page.rewound_from.is_none() && page.missing.is_empty() && page.newer == 0
    {
        text.push_str("some events were archived before they were read\n");
    }
    if page.newer > 0 {
        text.push_str(&format!(
            "{} records of a newer heddle are not shown: this one does not understand them\n",
            page.newer
        ));
    }
    for lost in &page.missing {
        text.push_str(&log::lost(*lost));
    }
    for event in &page.events {
        text.push_str(&log::line(event.get()));
        text.push('\n');
    }
    if page.events.is_empty() {
        text.push_str(&format!("nothing new after seq {}\n", page.last_seq));
    } else if page.more {
        text.push_str("there is more: ask again\n");
    }
    text
}
