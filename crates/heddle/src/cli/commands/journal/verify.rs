//! `heddle journal verify`: state equals log, or exit 1 with what differs.

use clap::Args as ClapArgs;
use heddle_journal::Verified;

use super::store;
use crate::cli::{CliError, Context, exit, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    // What a crash left behind is brought level first; that is no drift. A busy store is only looked at.
    journal.reconcile().map_err(store::told)?;
    let report = journal.verify().map_err(store::told)?;
    for warning in &report.warnings {
        ui::note(&format!("warning: {warning}"));
    }
    if report.ok {
        return context.print(&report, |report| {
            let (records, entities) = (report.records, report.entities);
            format!(
                "ok: {records} records, {entities} entities, every projection equals the journal\n"
            )
        });
    }
    let answer = serde_json::to_value(&report).unwrap_or_default();
    let error = CliError::new(exit::FAILED, sentence(&report)).next(
        "Nothing was changed. Keep a copy of .heddle/ before you repair anything; `heddle journal log` shows the history.",
    );
    Err(error.answer(answer))
}

pub(super) fn sentence(report: &Verified) -> String {
    let mut text = format!(
        "the journal and its projections differ: {} entities, {} damaged lines",
        report.divergent.len(),
        report.counters.damaged_lines
    );
    for one in report.divergent.iter().take(20) {
        text.push_str(&format!(
            "\n  {} {}: {}",
            one.item_type, one.item_id, one.reason
        ));
    }
    text
}
