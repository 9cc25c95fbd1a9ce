//! `heddle file share | get | list | delete`: files that the agents of a mesh show each other.

mod get;
mod text;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use heddle_core::file::FilePath;
use heddle_core::ids::OpId;
use heddle_wire::ipc::{FileDeleteBody, FileShareBody};

use super::remember::{again, describe, id};
use crate::cli::{CliError, Context, exit};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Share a file of this machine with the mesh
    Share {
        /// The file; a relative path is also what it is shared under
        file: PathBuf,
        /// What to share it under, such as docs/plan.md
        #[arg(long = "as", value_name = "PATH")]
        path: Option<String>,
        /// What it is, such as text/plain
        #[arg(long)]
        mime: Option<String>,
        /// The idempotency key: the same key and request again land once
        #[arg(long)]
        id: Option<String>,
    },
    /// Show a file, or write it to a file of this machine
    Get(get::Args),
    /// Show which files are shared
    List {
        /// What the paths begin with
        #[arg(default_value = "")]
        prefix: String,
        /// Whose: self, all, or a peer
        #[arg(long, default_value = "all")]
        scope: String,
        /// Go on where a list was cut
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Share a file no longer
    Delete {
        /// Its id, or the path that you shared it under
        file: String,
        /// The idempotency key: the same key and request again land once
        #[arg(long)]
        id: Option<String>,
    },
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Share {
            file,
            path,
            mime,
            id: given,
        } => {
            let body = FileShareBody {
                path: path.map_or_else(|| path_of(&file), Ok)?,
                from: Some(absolute(&file)?),
                mime,
                client_message_id: Some(id(given)),
                mesh: context.mesh.clone(),
                agent: context.agent.clone(),
                ..FileShareBody::default()
            };
            let client = context.client();
            let answer = again(|| client.share_file(&body))?;
            context.print(&answer, text::shared)
        }
        Verb::Get(args) => get::run(context, args),
        Verb::List {
            prefix,
            scope,
            cursor,
        } => list(context, &prefix, &scope, cursor.as_deref()),
        Verb::Delete { file, id: given } => delete(context, file, given),
    }
}

fn list(
    context: &Context,
    prefix: &str,
    scope: &str,
    cursor: Option<&str>,
) -> Result<(), CliError> {
    let mut query = vec![("prefix", prefix), ("scope", scope)];
    query.extend(cursor.map(|cursor| ("cursor", cursor)));
    query.extend(context.scope());
    let page = context.client().files(&query)?;
    context.print(&page, |page| {
        let mut text = text::page(page);
        if let Some(cursor) = &page.cursor {
            let words: &[&str] = if prefix.is_empty() { &[] } else { &[prefix] };
            let options = [("scope", Some(scope)), ("cursor", Some(cursor.as_str()))];
            text.push_str(&context.there_is_more("file list", words, &options));
        }
        text
    })
}

fn delete(context: &Context, file: String, given: Option<String>) -> Result<(), CliError> {
    let is_id = file.parse::<OpId>().is_ok();
    let body = FileDeleteBody {
        id: Some(file.clone()).filter(|_| is_id),
        path: Some(file).filter(|_| !is_id),
        client_message_id: Some(id(given)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.delete_file(&body))?;
    context.print(&answer, |answer| describe("deleted", answer))
}

/// What a file is shared under where nobody says: as it was typed if that can be a path, else its name.
fn path_of(file: &Path) -> Result<String, CliError> {
    let typed = file.to_str().map(|text| text.trim_start_matches("./"));
    let name = file.file_name().and_then(|name| name.to_str());
    let may_be = |text: &&str| FilePath::parse(text).is_ok();
    let found = typed.filter(may_be).or_else(|| name.filter(may_be));
    found.map(str::to_owned).ok_or_else(|| {
        let message = format!("{} cannot be the path of a shared file", file.display());
        CliError::new(exit::USAGE, message).next(
            "Say what to share it under with --as: letters, digits, blanks and . _ - + ( ) between '/'.",
        )
    })
}

/// The daemon runs elsewhere than the person at the keyboard.
fn absolute(file: &Path) -> Result<String, CliError> {
    let refused = |why: String| CliError::new(exit::USAGE, format!("{}: {why}", file.display()));
    let whole = std::path::absolute(file).map_err(|error| refused(error.to_string()))?;
    let whole = whole.into_os_string().into_string();
    whole.map_err(|_| refused("the path is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shared_under_what_was_typed_or_else_under_its_name() {
        for (typed, expected) in [
            ("docs/plan.md", Some("docs/plan.md")),
            ("./docs/plan.md", Some("docs/plan.md")),
            ("../other/plan.md", Some("plan.md")),
            ("/tmp/plan.md", Some("plan.md")),
            ("we?rd/plan.md", Some("plan.md")),
            ("we?rd", None),
            ("..", None),
        ] {
            let path = path_of(Path::new(typed));
            assert_eq!(path.ok().as_deref(), expected, "{typed}");
        }
    }
}
