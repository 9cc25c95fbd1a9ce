//! What `heddle doctor` asks of the repository's journal: `--verify-journal`, `redact` and `quarantine`.

use heddle_journal::Examined;
use heddle_journal::phases::Spread;

use super::{advice, store, verify};
pub use super::{quarantine, redact};
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};

/// State against log, the counters, where time goes, one verdict; exit 1 on drift.
pub fn examine(context: &Context) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    verify::level(&journal);
    let told = journal.examine().map_err(store::told)?;
    for warning in &told.verified.warnings {
        ui::note(&format!("warning: {warning}"));
    }
    if told.verified.ok && told.verified.redactions_open == 0 {
        return context.print(&told, text);
    }
    let mut answer = serde_json::to_value(&told).unwrap_or_default();
    // What a script reads says the same as the code that it ends with.
    answer["ok"] = false.into();
    if told.verified.ok {
        // State equals log, and a person is asked for all the same.
        let error = CliError::new(exit::FAILED, printable(&told.verdict)).next(&told.next);
        return Err(error.answer(answer));
    }
    let sentence = format!("{}: {}", told.verdict, verify::sentence(&told.verified));
    let error = CliError::new(exit::FAILED, printable(&sentence));
    let next = advice::next(&told.verified);
    Err(error.next(next).answer(answer))
}

fn text(told: &Examined) -> String {
    let mut text = format!(
        "{}: {} records, {} entities, mode {}\n",
        told.verdict,
        told.verified.records,
        told.verified.entities,
        told.mode.as_str()
    );
    for (name, spread) in [
        ("waiting for the lock", told.times.wait),
        ("append", told.times.append),
        ("sync", told.times.sync),
        ("projections", told.times.project),
    ] {
        text.push_str(&line(name, spread));
    }
    text.push_str(&format!("next: {}\n", told.next));
    text
}

fn line(name: &str, spread: Spread) -> String {
    let ms = |us: u64| format!("{}.{:03} ms", us / 1000, us % 1000);
    let (p50, p95) = (ms(spread.p50_us), ms(spread.p95_us));
    format!(
        "  {name}: p50 below {p50}, p95 below {p95} ({} times)\n",
        spread.count
    )
}
