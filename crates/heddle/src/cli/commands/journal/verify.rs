//! `heddle journal verify`: state equals log, or exit 1 with what differs.

use clap::Args as ClapArgs;
use heddle_journal::action::Mode;
use heddle_journal::{Journal, Verified};

use super::{advice, store};
use crate::cli::{CliError, Context, exit, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Records are missing and lost for good: note that you know, and why, so that only what is new is told
    #[arg(long, value_name = "REASON")]
    accept_gaps: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    level(&journal);
    if let Some(reason) = &args.accept_gaps {
        let told = journal.accept_gaps(reason).map_err(store::told)?;
        store::note_aside(&journal);
        for [first, last] in &told.accepted {
            ui::note(&format!("accepted: seq {first} to {last} are missing"));
        }
        for [first, last] in &told.back {
            ui::note(&format!(
                "seq {first} to {last} were missing and are here again: taken in as they are"
            ));
        }
    }
    let report = journal.verify().map_err(store::told)?;
    for warning in &report.warnings {
        ui::note(&format!("warning: {warning}"));
    }
    if journal.mode() == Mode::Off {
        return context.print(&report, |_| {
            "the journal is off: there is nothing to compare; next: heddle journal migrate\n"
                .to_owned()
        });
    }
    if report.ok {
        return context.print(&report, |report| {
            let (records, entities) = (report.records, report.entities);
            let mut text = format!(
                "ok: {records} records, {entities} entities, every projection equals the journal\n"
            );
            if report.redactions_open > 0 {
                text.push_str(
                    "  but a redaction is not done with; next: heddle doctor redact --left\n",
                );
            }
            text
        });
    }
    let answer = serde_json::to_value(&report).unwrap_or_default();
    let error = CliError::new(exit::FAILED, sentence(&report)).next(advice::next(&report));
    Err(error.answer(answer))
}

/// What a crash left behind is brought level first; that is no drift. A busy store, or one that cannot be
/// written, is only looked at.
pub(super) fn level(journal: &Journal) {
    let level = journal.level();
    store::note_aside(journal);
    if let Err(error) = level {
        ui::note(&format!(
            "warning: the files could not be brought level with the journal: {error}"
        ));
    }
}

pub(super) fn sentence(report: &Verified) -> String {
    let counters = &report.counters;
    let parts = [
        (report.divergent.len() as u64, "entities differ"),
        (counters.damaged_lines, "damaged lines"),
        (counters.seq_gaps, "places where records are missing"),
        (
            counters.checkpoints_rejected,
            "checkpoints that are not sound",
        ),
        (counters.newer_records, "records of a newer heddle"),
        (
            counters.misnamed_segments,
            "segments under another name than their own",
        ),
        (
            counters.errors() - counters.damaged_lines,
            "records that contradict the rules",
        ),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let mut text = format!(
        "the journal and its projections are not as they should be: {}",
        parts.join(", ")
    );
    for one in report.divergent.iter().take(20) {
        text.push_str(&format!(
            "\n  {} {}: {}",
            one.item_type, one.item_id, one.reason
        ));
    }
    text
}
