//! `heddle journal log`: the records, one a line, in order.

use clap::Args as ClapArgs;
use heddle_journal::action::Mode;
use heddle_journal::{Begins, Earlier};
use serde_json::Value;

use super::{redact, store};
use crate::cli::limit::parse_count;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Only records after this seq
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    since: u64,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    limit: Option<usize>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    redact::note_begun(&journal);
    let page = journal
        .history(args.since, args.limit.unwrap_or(usize::MAX))
        .map_err(store::told)?;
    for place in &page.missing {
        ui::note(&format!("note: {}", lost(*place).trim_end()));
    }
    if page.newer > 0 {
        ui::note(&format!(
            "note: {} records of a newer heddle are not shown: this one does not understand them",
            page.newer
        ));
    }
    if let Some(begins) = journal.begins_at(args.since).map_err(store::told)? {
        note_beginning(&begins);
    }
    if journal.mode() == Mode::Off {
        ui::note(
            "note: the journal is off, and what it had recorded is parked in .heddle/backups/; `heddle journal migrate` turns it on",
        );
    }
    let mut text = String::new();
    for record in &page.events {
        if context.json {
            text.push_str(record.get());
        } else {
            text.push_str(&line(record.get()));
        }
        text.push('\n');
    }
    if context.json {
        ui::raw(&text)
    } else {
        ui::text(&text)
    }
}

/// What became of the records before those that are shown.
fn note_beginning(begins: &Begins) {
    let place = match begins.earlier {
        Earlier::Archived => "are in .heddle/events/archive/",
        Earlier::NotOurs => "are not here: git brings checkpoints, not the history",
        Earlier::Lost => {
            "are lost; checkpoints may hold what they led to, and `heddle journal verify` says more"
        }
    };
    let mut which = "records";
    if begins.earlier != Earlier::Lost && !begins.lost.is_empty() {
        which = "the other records";
        for range in &begins.lost {
            ui::note(&format!("note: {}", lost(*range).trim_end()));
        }
    }
    ui::note(&format!(
        "note: {which} before seq {} {place}",
        begins.oldest
    ));
}

/// What nobody can be shown any more.
pub(super) fn lost([first, last]: [u64; 2]) -> String {
    let which = if first == last {
        format!("the record of seq {first} is")
    } else {
        format!("the records of seq {first} to {last} are")
    };
    format!("{which} lost from the journal; `heddle journal verify` says what that means\n")
}

/// A record for people.
pub(super) fn line(record: &str) -> String {
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    let word = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let rev = record["entity_rev"]
        .as_u64()
        .map_or(String::new(), |rev| format!(" r{rev}"));
    let summary = record["summary"]
        .as_str()
        .map_or(String::new(), |s| format!(": {s}"));
    let kind = record["payload"]["kind"].as_str();
    let kind = kind.filter(|_| record["item_type"] == "journal");
    let kind = kind.map_or(String::new(), |kind| format!(" {kind}"));
    let redacted = if record["redacted"].is_null() {
        ""
    } else {
        " [redacted]"
    };
    let line = format!(
        "{:>8}  {}  {:<16} {} {}{kind}{rev}{redacted}{summary}  ({})",
        record["seq"].as_u64().unwrap_or_default(),
        word("ts"),
        word("action"),
        word("item_type"),
        word("item_id"),
        word("agent"),
    );
    // One record, one line: a newline in a summary must not forge another.
    printable(&line).replace('\n', "\\n")
}
