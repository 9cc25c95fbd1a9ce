//! `heddle send TO TEXT`: one durable send; the same id again is always safe.

use std::io::Read;
use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::canonical::parse_ijson;
use heddle_core::limits::REQUEST_BYTES_MAX;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{OutboxRow, SendAnswer, SendBody};
use serde_json::Value;

use crate::cli::{CliError, Context, exit};

/// How long `--wait` waits for the broker.
const WAIT_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// @agent, @member/agent or #topic
    to: String,
    /// The message; `-` reads it from standard input
    text: String,
    /// The idempotency key: the same key and message again land once
    #[arg(long)]
    id: Option<String>,
    /// now, next or low
    #[arg(long)]
    priority: Option<String>,
    /// A JSON object that travels along
    #[arg(long, value_name = "JSON")]
    meta: Option<String>,
    /// The id of the message that this answers
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
    /// Somebody to point out, as @agent; may be repeated
    #[arg(long, value_name = "@AGENT")]
    mention: Vec<String>,
    /// Wait until the broker has committed it
    #[arg(long)]
    wait: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let wait = args.wait;
    let body = body(context, args)?;
    let client = context.client();
    let mut answer = send(&client, &body)?;
    if wait && answer.durability == "local" {
        answer = committed(context, &client, &answer)?;
    }
    context.print(&answer, |answer| describe(&body.to, answer))
}

fn body(context: &Context, args: Args) -> Result<SendBody, CliError> {
    let message = message(args.text)?;
    let meta = args.meta.as_deref().map(parse_meta).transpose()?;
    Ok(SendBody {
        to: args.to,
        message,
        priority: args.priority,
        meta,
        reply_to_id: args.reply_to,
        mentions: args.mention,
        // Always an id: an answer that is lost on the way must not become a second message.
        client_message_id: Some(args.id.unwrap_or_else(|| Context::mint_id().to_string())),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    })
}

/// The message itself, or standard input for `-`.
pub(super) fn message(text: String) -> Result<String, CliError> {
    if text == "-" { read_stdin() } else { Ok(text) }
}

pub(super) fn parse_meta(text: &str) -> Result<Value, CliError> {
    parse_ijson(text.as_bytes()).map_err(|error| {
        CliError::new(exit::USAGE, format!("--meta: {error}"))
            .next("Pass a JSON object, as in --meta '{\"ticket\": 7}'.")
    })
}

fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    let most = REQUEST_BYTES_MAX as u64 + 1;
    match std::io::stdin().lock().take(most).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(CliError::new(
            exit::USAGE,
            format!("standard input: {error}"),
        )),
    }
}

/// One more try when the answer was lost: under the same id it is the same send.
fn send(client: &Client, body: &SendBody) -> Result<SendAnswer, ClientError> {
    match client.send(body) {
        Err(ClientError::Broken(_)) => client.send(body),
        other => other,
    }
}

fn committed(
    context: &Context,
    client: &Client,
    answer: &SendAnswer,
) -> Result<SendAnswer, CliError> {
    let id = &answer.client_message_id;
    let mut waited = Duration::ZERO;
    loop {
        let row: OutboxRow = client.outbox_row(id, &context.scope())?;
        match row.status.as_str() {
            "done" => {
                return Ok(SendAnswer {
                    status: None,
                    broker_message_id: row.broker_message_id,
                    history_id: row.history_id,
                    durability: "committed".to_owned(),
                    ..answer.clone()
                });
            }
            "dead" | "aborted" => {
                let why = row.last_error.unwrap_or_else(|| row.status.clone());
                return Err(CliError::new(
                    exit::FAILED,
                    format!("the message is {}: {why}", row.status),
                )
                .next("It is kept in the outbox; send it again under a new id."));
            }
            _ if waited >= WAIT_MAX => {
                return Err(CliError::new(
                    exit::UNREACHABLE,
                    format!("{id} is durable here, but the broker has not taken it yet"),
                )
                .next("It will be sent by itself; `heddle status` shows when."));
            }
            _ => {
                thread::sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
        }
    }
}

pub(super) fn describe(to: &str, answer: &SendAnswer) -> String {
    let id = &answer.client_message_id;
    match (answer.duplicate, answer.durability.as_str()) {
        (Some(true), _) => format!("already sent to {to} ({id})\n"),
        (_, "committed") => format!("sent to {to} ({id})\n"),
        _ => format!("queued for {to}, safe on disk ({id})\n"),
    }
}
