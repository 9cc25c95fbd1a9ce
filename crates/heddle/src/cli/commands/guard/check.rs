//! `heddle guard check`: the staged paths against what others have reserved.

use clap::Args as ClapArgs;
use heddle_journal::action::Mode;
use serde_json::json;

use super::super::journal::store;
use super::git::git;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};

const SHOWN_MAX: usize = 20;

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    // Both names of a rename: moving a file away touches it too.
    let staged = git(&["diff", "--cached", "--name-only", "--no-renames", "-z"])?;
    let paths: Vec<String> = staged
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    let journal = match store::open(context, None) {
        Ok(journal) => journal,
        // Without a journal nothing can be reserved, and whoever put the guard here should know.
        Err(error) if error.code == exit::NOT_FOUND => {
            ui::note(&format!("note: {}; nothing was checked", error.message));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if journal.mode() == Mode::Off {
        ui::note(
            "note: the journal is off, nothing was checked; `heddle journal migrate` turns it on",
        );
        return Ok(());
    }
    let blocked = journal.blocked(&paths);
    store::note_aside(&journal);
    let blocked = blocked.map_err(store::told)?;
    if blocked.is_empty() {
        store::note_losses(&journal);
        return Ok(());
    }
    let mut sentence = String::from("this commit touches paths that others have reserved:");
    for (path, held) in blocked.iter().take(SHOWN_MAX) {
        sentence.push_str(&format!(
            "\n  {}: {} by {} until {}",
            // One path, one line: a newline in a name must not forge another.
            path.replace('\n', "\\n"),
            held.glob,
            held.owner,
            held.expires_at
        ));
    }
    let all: Vec<_> = blocked
        .iter()
        .map(|(path, held)| json!({"path": path, "reservation": held}))
        .collect();
    let error = CliError::new(exit::FAILED, printable(&sentence)).next(
        "Leave these paths out, wait, or ask their holder to release them; `git commit --no-verify` goes around the guard.",
    );
    Err(error.beside(json!({ "blocked": all })))
}
