//! `heddle daemon outbox requeue`: a stuck or dead message under a fresh id; the old one stays buried.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle_core::limits::REQUEST_BYTES_MAX;
use heddle_wire::ipc::{RequeueAnswer, RequeueBody};
use serde_json::Value;

use crate::cli::spelled::quoted;
use crate::cli::{CliError, Context, bounded, exit};

#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("fresh").required(true))]
pub struct Args {
    /// The row's own id or its client id
    #[arg(long, value_name = "ID")]
    id: String,
    /// The id of the successor
    #[arg(long, value_name = "ID", group = "fresh")]
    new_client_id: Option<String>,
    /// Let the daemon mint the id of the successor
    #[arg(long, group = "fresh")]
    auto: bool,
    /// A JSON file with fields that replace those of the message (to, message, priority, meta, …)
    #[arg(long, value_name = "FILE")]
    patch_payload: Option<PathBuf>,
    /// Requeue although the broker cannot be asked; the message may arrive twice
    #[arg(long)]
    force: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let command = command(&args);
    let body = RequeueBody {
        new_client_id: args.new_client_id,
        patch_payload: args.patch_payload.map(read_patch).transpose()?,
        force: args.force,
    };
    let answer = context
        .client()
        .requeue(&args.id, &context.scope(), &body)
        .map_err(|error| CliError::from(error).for_each_sender(&command))?;
    context.print(&answer, describe)
}

/// The same command again, for whoever has to say whose row it is.
fn command(args: &Args) -> String {
    let mut command = format!("heddle daemon outbox requeue --id {}", quoted(&args.id));
    match &args.new_client_id {
        Some(id) => command.push_str(&format!(" --new-client-id {}", quoted(id))),
        None => command.push_str(" --auto"),
    }
    if let Some(file) = &args.patch_payload {
        let file = file.display().to_string();
        command.push_str(&format!(" --patch-payload {}", quoted(&file)));
    }
    if args.force {
        command.push_str(" --force");
    }
    command
}

fn read_patch(path: PathBuf) -> Result<Value, CliError> {
    let usage = |why: String| {
        CliError::new(exit::USAGE, format!("{}: {why}", path.display()))
            .next("Give a file with a JSON object, such as {\"message\": \"new text\"}.")
    };
    let text = bounded::file(&path, REQUEST_BYTES_MAX as u64);
    let text = text.map_err(|error| usage(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| usage(error.to_string()))
}

fn describe(answer: &RequeueAnswer) -> String {
    match &answer.new {
        Some(new) => format!(
            "requeued as {}; {} is retired and stays taken\n",
            new.client_message_id, answer.old.client_message_id
        ),
        None => format!(
            "nothing was requeued: the broker has {} already, and its row is done now\n",
            answer.old.client_message_id
        ),
    }
}
