//! `heddle doctor redact`: erases content from this repository's journal, and says what it cannot reach.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use heddle_core::shell::quoted;
use heddle_journal::{Ended, Journal, JournalError, LetBe, Redacted, Remains, Target};

use super::{mesh_slices, store};
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Every record of an item: ID, or TYPE/ID where several types have it
    #[arg(
        long,
        value_name = "ID",
        conflicts_with = "seq",
        required_unless_present_any = ["seq", "left", "let_be"]
    )]
    item: Option<String>,
    /// One record by its seq
    #[arg(long, value_name = "N")]
    seq: Option<u64>,
    /// Why; stays in the journal for ever, so say nothing of what is erased
    #[arg(long, required_unless_present_any = ["left", "let_be"])]
    reason: Option<String>,
    /// Name what earlier redactions have left for a person, and erase nothing
    #[arg(long, conflicts_with_all = ["item", "seq", "reason"])]
    left: bool,
    /// Tell no more of these files: a person has looked at them. Without one: of everything but files in which some of it was found
    #[arg(long, value_name = "FILE", num_args = 0.., conflicts_with_all = ["item", "seq", "reason", "left"])]
    let_be: Option<Vec<PathBuf>>,
}

impl Args {
    fn target(&self) -> Target {
        if let Some(seq) = self.seq {
            return Target::Seq(seq);
        }
        let item = self.item.as_deref().unwrap_or_default();
        let (item_type, item_id) = match item.split_once('/') {
            Some((item_type, id)) => (Some(item_type.to_owned()), id),
            None => (None, item),
        };
        Target::Item {
            item_type,
            item_id: item_id.to_owned(),
        }
    }

    /// The same once more.
    fn command(&self) -> String {
        let target = match (self.seq, &self.item) {
            (Some(seq), _) => format!("--seq {seq}"),
            (None, item) => format!("--item {}", quoted(item.as_deref().unwrap_or_default())),
        };
        let reason = quoted(self.reason.as_deref().unwrap_or_default());
        format!("heddle doctor redact {target} --reason {reason}")
    }
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    if let Some(files) = &args.let_be {
        return let_be(context, &journal, files);
    }
    if args.left {
        return show_left(context, &journal);
    }
    let reason = args.reason.as_deref().unwrap_or_default();
    let told = journal.redact(&args.target(), reason);
    let mut told = told.map_err(|error| unended(&journal, &args, error))?;
    told.warnings = warnings(&told, args.item.as_deref());
    told.warnings
        .extend(mesh_slices::still_shared(context, &journal));
    if told.left.is_nothing() {
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
        AS_FOUND
    };
    let sentence = format!("erased from the journal, but {}", words(&told.left, holds));
    let error = CliError::new(exit::FAILED, sentence).next(next(&told.left));
    Err(error.answer(answer))
}

const AS_FOUND: &str =
    "these files, which an earlier run found to hold some of the bytes, are still there";

/// One that failed behind its begin is gone on with by whoever comes next; only this command says what became of it.
fn unended(journal: &Journal, args: &Args, error: JournalError) -> CliError {
    let told = store::told(error);
    if !journal.is_redacting() {
        return told;
    }
    told.next(format!(
        "It has begun and has not ended. See to what stands in the way, and run the same again, which goes on with it and says what it has left: {}",
        args.command()
    ))
}

fn show_left(context: &Context, journal: &Journal) -> Result<(), CliError> {
    let left = journal.remains().map_err(store::told)?;
    if left.is_nothing() {
        return context.print_done(&left, |left| {
            let mut text = "no redaction has left anything\n".to_owned();
            text.extend(short_in(left).map(|note| format!("note: {note}\n")));
            printable(&text)
        });
    }
    let answer = serde_json::to_value(&left).unwrap_or_default();
    let sentence = format!(
        "earlier redactions have left this: {}",
        words(&left, AS_FOUND)
    );
    let error = CliError::new(exit::FAILED, sentence).next(next(&left));
    Err(error.answer(answer))
}

/// A person's word: nobody else can look any more.
fn let_be(context: &Context, journal: &Journal, files: &[PathBuf]) -> Result<(), CliError> {
    let whole = |file: &PathBuf| {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        in_store(journal, &path)
    };
    let files: Vec<PathBuf> = files.iter().map(whole).collect();
    let told = journal.let_be(&files).map_err(|error| {
        let is_refused = matches!(error, JournalError::Refused(_));
        let told = store::told(error);
        if is_refused {
            told.next("Nothing was changed; `heddle doctor redact --left` names them.")
        } else {
            told
        }
    })?;
    context.print_done(&told, let_be_text)
}

/// As the store itself spells it, whatever links the person's way to it has.
fn in_store(journal: &Journal, path: &Path) -> PathBuf {
    let root = journal.layout().root();
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let inside = folder
        .zip(root.canonicalize().ok())
        .and_then(|(folder, real)| {
            let inside = folder.strip_prefix(real).ok()?;
            Some(root.join(inside).join(path.file_name()?))
        });
    inside.unwrap_or_else(|| path.to_owned())
}

fn let_be_text(told: &LetBe) -> String {
    let mut text = format!("let be: {}\n", told.let_be);
    if !told.left.is_nothing() {
        let words = words(&told.left, AS_FOUND);
        text.push_str(&format!(
            "still told: {words}\n  next: heddle doctor redact --left\n"
        ));
    }
    text
}

/// For who shows records and ends nothing.
pub(super) fn note_begun(journal: &Journal) {
    if !journal.is_redacting() {
        return;
    }
    let shown = if journal.damaged_redaction().is_some() {
        "what it was to erase is not known, for .heddle/events/redact.json is damaged"
    } else {
        "what it erases is shown as [redacted]"
    };
    ui::note(&format!(
        "note: a redaction has begun and not ended; {shown}; next: heddle doctor redact --left"
    ));
}

/// One that was interrupted, of whoever ends it on the way to something else.
pub(super) fn ended(ended: &Ended) -> String {
    let told = &ended.told;
    let done = format!(
        "note: a redaction of {} that was interrupted was ended here: {} records and {} blobs erased",
        ended.what,
        told.redacted.len(),
        told.blobs
    );
    let left = if told.left.is_nothing() {
        "nothing is left of it that anybody knows of".to_owned()
    } else {
        format!(
            "{}\n  next: heddle doctor redact --left",
            words(&told.left, HELD)
        )
    };
    printable(&format!("{done}; {left}"))
}

const HELD: &str = "these files of the store still hold some of the bytes";

/// A name is a line of its own: a newline in it must not forge another.
fn in_line(name: &str) -> String {
    printable(name).replace('\n', "\\n")
}

fn in_lines(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| in_line(name)).collect();
    names.join(", ")
}

/// What is left, in a person's words.
pub(super) fn words(left: &Remains, holds: &str) -> String {
    let named = |what: &str, files: &[String]| {
        let files: Vec<String> = files.iter().map(|file| in_line(file)).collect();
        (!files.is_empty()).then(|| format!("{what}:\n  {}", files.join("\n  ")))
    };
    let parts = [
        named(holds, &left.leftovers),
        named("these could not be read, so that nobody knows what they hold", &left.unread),
        named(
            "these could not be read when the store was searched; they can be now, and nobody knows any more what to search for",
            &left.unverified,
        ),
        named(
            "more is compressed in these than is looked into (64 MB of one stream, 512 MB of one file, four streams inside of one another)",
            &left.unsearched,
        ),
        named(
            "these files held some of the bytes, were changed since, and cannot be searched any more",
            &left.changed,
        ),
        (left.hidden > 0).then(|| {
            format!(
                "{} files hold some of it, or could not be searched, whose own names say some of it or are no text: these are noted nowhere",
                left.hidden
            )
        }),
        left.unfinished.then(|| {
            "not all that was erased is known, and no file was searched for the rest: a blob of it is here and cannot be read, or an earlier redaction was interrupted before its search of the store had ended, or the list of what it had found is damaged".to_owned()
        }),
    ];
    let damaged = left.damaged_job.then(|| {
        ".heddle/events/redact.json, which says what a redaction that has begun was to erase, is damaged: nothing is erased by it, and nobody goes on with it".to_owned()
    });
    let parts: Vec<String> = parts.into_iter().flatten().chain(damaged).collect();
    parts.join("\n")
}

pub(super) fn next(left: &Remains) -> String {
    let is_own = left.leftovers.iter().any(|file| is_of_journal(file));
    let is_unlooked = [
        &left.unread,
        &left.unverified,
        &left.unsearched,
        &left.changed,
    ]
    .iter()
    .any(|files| !files.is_empty());
    let rows = [
        (is_own, OWN),
        (!is_own && !left.leftovers.is_empty(), STRANGE),
        (is_unlooked, UNLOOKED),
        (left.damaged_job, ANEW),
        (left.hidden > 0 || left.unfinished, BY_HAND),
        (true, LET_BE),
    ];
    let words = rows.into_iter().filter(|(is_so, _)| *is_so);
    words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

const STRANGE: &str = "They are not the journal's own: look at them, remove the files that must go, and run this again; nobody can search for erased content a second time.";
const OWN: &str = "Remove no file of .heddle/events: segments, checkpoints and blobs hold the records of all others. The bytes stand in a record that was not erased, or in a name or an id of one: `grep -n TEXT FILE` shows its seq, and `heddle doctor redact --seq N --reason REASON` erases it. Other files that are named: look at them, remove those that must go.";
const UNLOOKED: &str = "Files of which nobody knows: look at them yourself (`ls -l`, `grep -l TEXT FILE`, unpack what is compressed), for nobody can search for erased content later, and remove those that must go.";
const BY_HAND: &str =
    "Look through the store yourself: `grep -rl TEXT .heddle`, for all that was to be erased.";
const LET_BE: &str = "What is told stays told until it is gone or you say that you have looked: `heddle doctor redact --let-be FILE` for a file, without FILE for all in which none of it was found. A file of which no name is noted is let be by its name as well, also when it is gone.";
const ANEW: &str = "Ask for the same erasure again (`heddle doctor redact --item ID --reason REASON`): it sets the damaged file aside in .heddle/events/quarantine, and begins anew. `heddle journal log` shows as [redacted] what was erased already.";

/// A file without which records are lost.
fn is_of_journal(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    let is_one = name.starts_with("seg-") || name.starts_with("ckpt-");
    is_one || file.contains("/events/blobs/")
}

/// Said every time: nobody should believe that more was erased than was.
fn warnings(told: &Redacted, item: Option<&str>) -> Vec<String> {
    // Where the type is known it can be pasted.
    let item = item.filter(|item| item.contains('/')).unwrap_or("TYPE/ID");
    let file = quoted(&format!(".heddle/entities/{item}.json"));
    let mut all = vec![
        format!(
            "git may still hold old projections and checkpoints: `git log --all --oneline -- .heddle` shows where; \
             `git filter-repo --invert-paths --path .heddle/events/checkpoints --path {file}` rewrites that history"
        ),
        "copies outside of this store (clones, backups of the disk, a folder it was migrated from) are not reached".to_owned(),
    ];
    if told.short > 0 {
        all.push(format!(
            "{} of the texts have fewer than 8 bytes, as words do that anybody uses: these were searched for as whole words, and only in files that are not the journal's own",
            told.short
        ));
    }
    if told.lost > 0 {
        all.push(format!(
            "the content of {} blobs was gone before: nobody knows what it was, and no file was searched for it",
            told.lost
        ));
    }
    if told.shared > 0 {
        all.push(format!(
            "{} of the texts stand in records of others, too: these were searched for only in files that are not the journal's own",
            told.shared
        ));
    }
    if let Some(aside) = &told.set_aside {
        all.push(format!(
            "what an interrupted redaction was to erase was damaged: nothing was erased by it, it lies in {} now, and what it had found is not known any more; if it was about another item, redact that one again",
            in_line(aside)
        ));
    }
    all.extend(short_in(&told.left));
    if !told.links.is_empty() {
        all.push(format!(
            "these links lead out of the store, and nobody has looked behind them: {}",
            in_lines(&told.links)
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

fn short_in(left: &Remains) -> Option<String> {
    (!left.short_in.is_empty()).then(|| {
        format!(
            "these files hold some of what was short or is held by others, too; look at them: {}",
            in_lines(&left.short_in)
        )
    })
}

fn text(told: &Redacted) -> String {
    let search = if told.searched {
        "every file of the store was searched"
    } else if told.short + told.shared > 0 {
        "only files that are not the journal's own were searched, for all that was erased is short or is held by others, too"
    } else if told.redacted.is_empty() && told.checkpoints.is_empty() && told.blobs == 0 {
        "no file was searched, for nothing of the content is known any more; no file is left that an earlier search had found"
    } else if told.lost > 0 {
        "no file was searched, for the content was gone before"
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
