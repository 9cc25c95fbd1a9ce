//! `heddle journal append`: one change, on the disk before the answer.

use std::path::Path;

use clap::Args as ClapArgs;
use heddle_core::canonical::parse_ijson;
use heddle_journal::action::Action;
use heddle_journal::{Change, JournalError, Receipt};
use serde_json::Value;

use super::store;
use crate::cli::{CliError, Context, bounded, exit, ui};

/// A payload may be large, but not without end.
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// plan, decision, claim, … or a type of .heddle/schemas/
    #[arg(long = "type", value_name = "TYPE")]
    item_type: String,
    /// The entity; not needed for events of a session
    #[arg(long)]
    id: Option<String>,
    /// create, update, delete, claim, release_claim, run_running, …
    #[arg(long, value_parser = parse_action)]
    action: Action,
    /// The whole document: JSON, @FILE, or `-` for standard input
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// A sentence for people
    #[arg(long)]
    summary: Option<String>,
    /// The same request under the same key again records nothing and gets the first answer; another one is refused
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The reader that you are: its own events are not shown back to it
    #[arg(long, value_name = "NAME")]
    reader: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let document = args.payload.as_deref().map(payload).transpose()?;
    let journal = store::open(context, args.reader.clone())?;
    let change = Change {
        item_type: args.item_type.clone(),
        item_id: args.id.clone(),
        action: Some(args.action),
        document,
        summary: args.summary.clone(),
    };
    let committed = match &args.idempotency_key {
        Some(key) => journal.mutate_once(change, key),
        None => journal.mutate(vec![change]),
    };
    let committed = committed.map_err(refused)?;
    let receipt = committed.receipts()[0].clone();
    let answer = store::answer(&receipt);
    // The record is on the disk: answer first, projections then.
    let printed = context.print(&answer, |_| text(&args, &receipt));
    let is_delete = args.action == Action::Delete && receipt.seq.is_some();
    match committed.finish_told() {
        Ok(aside) => {
            for name in aside {
                ui::note(&format!("note: {}", store::edited(&name)));
            }
        }
        Err(error) => ui::note(&format!(
            "note: the record is safe; its projection follows with the next call ({error})"
        )),
    }
    if is_delete && journal.has_checkpoint().unwrap_or(false) {
        ui::note(
            "note: a git clone brings checkpoints and no history: it learns of this delete with the next `heddle journal checkpoint`, and shows the item until then",
        );
    }
    printed.map_err(|error| unprinted(error, &receipt))
}

/// The answer is lost, the record is not: whoever asked must not take it for refused.
fn unprinted(error: CliError, receipt: &Receipt) -> CliError {
    let what = match receipt.seq {
        Some(seq) if receipt.duplicate => format!("it was recorded as seq {seq} before"),
        Some(seq) => format!("it is recorded as seq {seq}"),
        None => "there was nothing to record".to_owned(),
    };
    let message = format!(
        "{what}, but the answer could not be printed: {}",
        error.message
    );
    let next = "Do not record it again; `heddle journal log` shows it.";
    CliError { message, ..error }.next(next)
}

fn text(args: &Args, receipt: &Receipt) -> String {
    let before = if receipt.duplicate {
        "as before, and nothing was recorded now: "
    } else {
        ""
    };
    match (receipt.seq, receipt.entity_rev) {
        (None, _) => format!("{before}nothing to record: no lasting field changed\n"),
        (Some(seq), None) => format!("{before}recorded as seq {seq}\n"),
        (Some(seq), Some(rev)) => {
            let (name, id) = (&args.item_type, args.id.as_deref().unwrap_or_default());
            let is = if receipt.duplicate { "was" } else { "is" };
            format!("{before}recorded as seq {seq}: {name} {id} {is} at revision {rev}\n")
        }
    }
}

fn refused(error: JournalError) -> CliError {
    let is_refused = matches!(error, JournalError::Refused(_));
    let told = store::told(error);
    if is_refused {
        let next = "Nothing was written; `heddle journal append --help` says what is needed.";
        return told.next(next);
    }
    told
}

fn parse_action(text: &str) -> Result<Action, String> {
    Action::parse(text).ok_or_else(|| {
        let known: Vec<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
        format!("the actions are {}", known.join(", "))
    })
}

fn payload(text: &str) -> Result<Value, CliError> {
    let refused = |reason: String| {
        CliError::new(exit::USAGE, format!("the payload: {reason}"))
            .next("Pass a JSON object, @FILE, or - for standard input.")
    };
    let bytes = if text == "-" {
        let read = bounded::all(std::io::stdin().lock(), PAYLOAD_BYTES_MAX);
        read.map_err(|error| refused(format!("standard input: {error}")))?
    } else if let Some(path) = text.strip_prefix('@') {
        let read = bounded::file(Path::new(path), PAYLOAD_BYTES_MAX);
        read.map_err(|error| refused(format!("{path}: {error}")))?
    } else {
        text.as_bytes().to_vec()
    };
    parse_ijson(&bytes).map_err(|error| refused(error.to_string()))
}
