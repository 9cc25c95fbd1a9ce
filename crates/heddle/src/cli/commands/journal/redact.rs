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
    if told.is_clean() {
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
    let left = Left {
        leftovers: &told.leftovers,
        unread: &told.unread,
        hidden: told.hidden,
        unfinished: told.unfinished,
    };
    let sentence = format!("erased from the journal, but {}", left.words(holds));
    let error = CliError::new(exit::FAILED, sentence).next(left.next());
    Err(error.answer(answer))
}

/// What an erasure leaves for a person to look after.
pub(super) struct Left<'t> {
    pub(super) leftovers: &'t [String],
    pub(super) unread: &'t [String],
    pub(super) hidden: u64,
    pub(super) unfinished: bool,
}

impl Left<'_> {
    pub(super) fn is_nothing(&self) -> bool {
        self.leftovers.is_empty() && self.unread.is_empty() && self.hidden == 0 && !self.unfinished
    }

    pub(super) fn words(&self, holds: &str) -> String {
        let named = |what: &str, files: &[String]| {
            (!files.is_empty()).then(|| format!("{what}:\n  {}", printable(&files.join("\n  "))))
        };
        let parts = [
            named(holds, self.leftovers),
            named("these could not be read, so that nobody knows what they hold", self.unread),
            (self.hidden > 0).then(|| {
                format!(
                    "{} files hold some of it, and say some of it in their own names, which are noted nowhere",
                    self.hidden
                )
            }),
            self.unfinished.then(|| {
                "an earlier redaction was interrupted before its search of the store had ended: what it had erased by then is not known any more, and no file was searched for it".to_owned()
            }),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join("\n")
    }

    pub(super) fn next(&self) -> String {
        let is_own = self.leftovers.iter().any(|file| is_of_journal(file));
        let rows = [
            (is_own, OWN),
            (!is_own && !self.leftovers.is_empty(), STRANGE),
            (!self.unread.is_empty(), UNREAD),
            (self.hidden > 0 || self.unfinished, BY_HAND),
        ];
        let words = rows.into_iter().filter(|(is_so, _)| *is_so);
        words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    }
}

const STRANGE: &str = "They are not the journal's own: look at them, remove the files that must go, and run this again; nobody can search for erased content a second time.";
const OWN: &str = "Remove no file of .heddle/events: segments, checkpoints and blobs hold the records of all others. The bytes stand in a record that was not erased, or in a name or an id of one: `grep -n TEXT FILE` shows its seq, and `heddle doctor redact --seq N --reason REASON` erases it. Other files that are named: look at them, remove those that must go.";
const UNREAD: &str = "What could not be read is named until it can be, or is gone: look at it yourself (`ls -l`, `grep -l TEXT FILE`), for nobody can search for erased content later; then run this again.";
const BY_HAND: &str = "Look through the store yourself: `grep -rl TEXT .heddle`, for all that was to be erased. This is said once.";

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
    all.extend(unverified(&told.unverified));
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

/// The same.
pub(super) fn unverified(files: &[String]) -> Option<String> {
    let sentence = "these could not be read when an earlier run searched the store; they can be now, and nobody knows any more what to search for; look at them";
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
