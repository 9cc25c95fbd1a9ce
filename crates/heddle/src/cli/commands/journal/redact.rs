//! `heddle doctor redact`: erases content from this repository's journal, and says what it cannot reach.

use clap::Args as ClapArgs;
use heddle_journal::{Redacted, Target};

use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Every record of an item: ID, or TYPE/ID where several types have it
    #[arg(
        long,
        value_name = "ID",
        conflicts_with = "seq",
        required_unless_present = "seq"
    )]
    item: Option<String>,
    /// One record by its seq
    #[arg(long, value_name = "N")]
    seq: Option<u64>,
    /// Why; stays in the journal for ever, so say nothing of what is erased
    #[arg(long)]
    reason: String,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let target = match (args.seq, &args.item) {
        (Some(seq), _) => Target::Seq(seq),
        (None, item) => {
            let item = item.as_deref().unwrap_or_default();
            let (item_type, item_id) = match item.split_once('/') {
                Some((item_type, id)) => (Some(item_type.to_owned()), id),
                None => (None, item),
            };
            Target::Item {
                item_type,
                item_id: item_id.to_owned(),
            }
        }
    };
    let journal = store::open(context, None)?;
    let mut told = journal.redact(&target, &args.reason).map_err(store::told)?;
    told.warnings = warnings(&told);
    if told.leftovers.is_empty() {
        return context.print_done(&told, text);
    }
    // What the sentence below does not say.
    for warning in &told.warnings {
        ui::note(&format!("note: {warning}"));
    }
    let answer = serde_json::to_value(&told).unwrap_or_default();
    let holds = if told.searched {
        "these files of the store still hold some of the bytes"
    } else {
        "these files, which an earlier run found to hold some of the bytes, are still there"
    };
    let sentence = format!(
        "erased from the journal, but {holds}:\n  {}",
        printable(&told.leftovers.join("\n  "))
    );
    let is_own = told.leftovers.iter().any(|file| is_of_journal(file));
    let error = CliError::new(exit::FAILED, sentence).next(if is_own { OWN } else { STRANGE });
    Err(error.answer(answer))
}

const STRANGE: &str = "They are not the journal's own: look at them, remove the files that must go, and run this again; nobody can search for erased content a second time.";
const OWN: &str = "Remove no file of .heddle/events: segments, checkpoints and blobs hold the records of all others. The bytes stand in a record that was not erased, or in a name or an id of one: `grep -n TEXT FILE` shows its seq, and `heddle doctor redact --seq N --reason REASON` erases it. Other files that are named: look at them, remove those that must go.";

/// A file without which records are lost.
fn is_of_journal(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    let is_one = name.starts_with("seg-") || name.starts_with("ckpt-");
    is_one || file.contains("/events/blobs/")
}

/// Said every time: nobody should believe that more was erased than was.
fn warnings(told: &Redacted) -> Vec<String> {
    let mut all = vec![
        "git may still hold old projections and checkpoints: `git log --all --oneline -- .heddle` shows where; \
         `git filter-repo --invert-paths --path .heddle/events/checkpoints --path .heddle/entities/TYPE/ID.json` rewrites that history"
            .to_owned(),
        "copies outside of this store (clones, backups of the disk, a folder it was migrated from) are not reached".to_owned(),
    ];
    all.extend(changed(&told.changed));
    if told.short > 0 {
        all.push(format!(
            "{} of the texts have fewer than 8 bytes, as words do that anybody uses: these were searched for as whole words, and only in files that are not the journal's own",
            told.short
        ));
    }
    if told.shared > 0 {
        all.push(format!(
            "{} of the texts stand in records of others, too: these were searched for only in files that are not the journal's own",
            told.shared
        ));
    }
    if !told.short_in.is_empty() {
        all.push(format!(
            "these files hold some of that; look at them: {}",
            told.short_in.join(", ")
        ));
    }
    if told.keys > 0 {
        all.push(format!(
            "{} ids of requests said some of the content and went with it; nothing remembers them, so stop whoever retries them: it would be recorded again",
            told.keys
        ));
    }
    if !told.also_in.is_empty() {
        all.push(format!(
            "others hold some of the same texts and were left as they are: {}",
            told.also_in.join(", ")
        ));
    }
    all
}

/// Told once: after that nobody knows what to look for.
pub(super) fn changed(files: &[String]) -> Option<String> {
    let sentence = "these files held some of the bytes, were changed since, and cannot be searched any more; look at them";
    (!files.is_empty()).then(|| format!("{sentence}: {}", files.join(", ")))
}

fn text(told: &Redacted) -> String {
    let search = if told.searched {
        "every file of the store was searched"
    } else if told.short + told.shared > 0 {
        "only files that are not the journal's own were searched, for all that was erased is short or is held by others, too"
    } else if told.redacted.is_empty() && told.checkpoints.is_empty() && told.blobs == 0 {
        "no file was searched, for nothing of the content is known any more; no file is left that an earlier search had found"
    } else {
        "no file was searched, for what was erased has no text that could be searched for"
    };
    let mut text = format!(
        "erased: {} records, {} blobs; written anew: {} segments, {} checkpoints; {search}\n",
        told.redacted.len(),
        told.blobs,
        told.segments.len(),
        told.checkpoints.len()
    );
    for warning in &told.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    printable(&text)
}
