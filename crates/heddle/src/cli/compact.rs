//! `heddle doctor --compact`: the files of a home in which nothing runs give back the room of what was deleted.

use heddle_daemon::upkeep;
use serde::Serialize;

use super::error::{CliError, exit};
use super::upkeep::{claim, no_data, refused};
use super::{Context, text};

#[derive(Debug, Serialize)]
struct View {
    files: Vec<Compacted>,
    bytes_before: u64,
    bytes_after: u64,
}

#[derive(Debug, Serialize)]
struct Compacted {
    file: String,
    bytes_before: u64,
    bytes_after: u64,
}

pub fn run(context: &Context) -> Result<(), CliError> {
    if !context.home.join("data.db").exists() {
        return Err(no_data(&context.home));
    }
    let home = claim(context)?;
    let broker = heddle_broker::storage::sqlite::condition;
    if let Some(trouble) = upkeep::trouble(&context.home, broker) {
        let message = format!(
            "nothing is written anew: {}",
            trouble.says.replace('\n', " ")
        );
        let code = if trouble.is_newer {
            exit::REFUSED
        } else {
            exit::FAILED
        };
        return Err(CliError::new(code, message)
            .next("`heddle doctor` says what to do; nothing was changed."));
    }
    let files = upkeep::compact(&home).map_err(refused)?;
    let files: Vec<Compacted> = files
        .into_iter()
        .map(|one| Compacted {
            file: one.file.display().to_string(),
            bytes_before: one.bytes_before,
            bytes_after: one.bytes_after,
        })
        .collect();
    let view = View {
        bytes_before: files.iter().map(|one| one.bytes_before).sum(),
        bytes_after: files.iter().map(|one| one.bytes_after).sum(),
        files,
    };
    context.print(&view, words)
}

fn words(view: &View) -> String {
    let lines = view.files.iter().map(|one| {
        format!(
            "  {}: {} bytes, was {}\n",
            text::printable(&one.file),
            one.bytes_after,
            one.bytes_before
        )
    });
    let given = view.bytes_before.saturating_sub(view.bytes_after);
    format!(
        "{given} bytes were given back\n{}",
        lines.collect::<String>()
    )
}
