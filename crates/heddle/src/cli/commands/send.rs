//! `heddle send TO TEXT`: one durable send; the same id again is always safe.

use std::io::Read;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_core::canonical::parse_ijson;
use heddle_core::limits::REQUEST_BYTES_MAX;
use heddle_core::shell::quoted;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{ExplainView, Level, LostView, SendAnswer, SendBody};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{CliError, Context, exit};

/// How long one request of `--wait` waits; then it is asked again.
const WAIT_STEP_SECONDS: u64 = 5;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// @agent, @member/agent, #topic or queue:NAME
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
    /// Wait until it is local (safe on this disk), committed, delivered, shown or acked, for everybody; committed
    /// by default
    #[arg(
        long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
        default_missing_value = "committed", value_parser = parse_level
    )]
    wait: Option<Level>,
    /// How many seconds --wait waits
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "wait")]
    timeout: u64,
}

fn parse_level(text: &str) -> Result<Level, String> {
    Level::parse(text).ok_or_else(|| "say local, committed, delivered, shown or acked".to_owned())
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let (wait, timeout) = (args.wait, args.timeout);
    let body = body(context, args)?;
    let client = context.client();
    let new_sender = new_sender(context);
    let mut answer = send(&client, &body)
        .map_err(|error| with_id(error, body.client_message_id.as_deref().unwrap_or_default()))?;
    if let Some(level) = wait
        && Level::parse(&answer.durability) < Some(level)
    {
        answer = wait_for(context, &client, answer, (level, timeout))?;
    }
    let reply_to = body.reply_to_id.as_deref();
    tell_with(context, answer, (reply_to, new_sender), |answer| {
        describe(&body.to, answer)
    })
}

/// Whoever speaks for the first time gets a mailbox by that. A slip in its name is worth a word.
fn new_sender(context: &Context) -> Option<Value> {
    let name = context.agent.as_deref()?;
    let name = name.strip_prefix('@').unwrap_or(name);
    let query: Vec<_> = context.mesh_scope().into_iter().collect();
    // A daemon that does not answer is found out by the send.
    let known = context.client().hasty().agents(&query).ok()?;
    if known.agents.iter().any(|agent| agent.agent == name) {
        return None;
    }
    Some(json!({
        "kind": "new_mailbox",
        "message": format!("@{name} has not been here before: it has a mailbox from now on"),
        "next": "If that was a slip, send again with the right --agent; `heddle agent list` shows who is here.",
    }))
}

/// An answer with what else there is to say about the send.
#[derive(Debug, Serialize)]
struct Told {
    #[serde(flatten)]
    answer: SendAnswer,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Value>,
}

/// Prints the answer. A reply to something that nobody here has seen is sent all the same, and said.
pub(super) fn tell(
    context: &Context,
    answer: SendAnswer,
    reply_to: Option<&str>,
    text: impl FnOnce(&SendAnswer) -> String,
) -> Result<(), CliError> {
    tell_with(context, answer, (reply_to, None), text)
}

/// The same with a further warning.
fn tell_with(
    context: &Context,
    answer: SendAnswer,
    (reply_to, warning): (Option<&str>, Option<Value>),
    text: impl FnOnce(&SendAnswer) -> String,
) -> Result<(), CliError> {
    let is_new = answer.duplicate != Some(true);
    let client = context.client();
    let strange = reply_to
        .filter(|id| is_new && !id.is_empty())
        .and_then(|id| strange_reply(&client, &context.scope(), id));
    // The send itself carries none. It is done: what cannot be asked now is told by the next verb.
    let lost = client.warnings(&context.scope());
    let lost = lost.map(|view| view.warnings).unwrap_or_default();
    let lost = lost.iter().filter_map(|one| serde_json::to_value(one).ok());
    let unreached = unreached(&answer);
    let warnings = warning.into_iter().chain(strange).chain(unreached);
    let told = Told {
        warnings: warnings.chain(lost).collect(),
        answer,
    };
    context.print(&told, |told| text(&told.answer))
}

/// Those who were mentioned and get no copy.
fn unreached(answer: &SendAnswer) -> Option<Value> {
    let (verb, gets) = match answer.unreached.len() {
        0 => return None,
        1 => ("is", "gets"),
        _ => ("are", "get"),
    };
    let names = answer.unreached.join(", ");
    Some(json!({
        "kind": "mentioned_without_copy",
        "message": format!("{names} {verb} mentioned, and {gets} no copy of it as far as this home knows: a mention makes nobody a recipient"),
        "next": format!("Send it to them as well, or to a topic that they follow; `heddle explain {}` shows who got it.", quoted(&answer.client_message_id)),
    }))
}

/// What is strange about an id that is answered; nothing where it is known, or where nobody can tell.
pub fn strange_reply(client: &Client, scope: &[(&str, &str)], id: &str) -> Option<Value> {
    let mut query = scope.to_vec();
    query.push(("id", id));
    let known = client.known(&query).ok().filter(|known| !known.known)?;
    let next = match known.instead {
        Some(instead) => format!(
            "The message at place {id} of the inbox has the id {instead}; name that one the next time."
        ),
        None => "Check the id; `heddle inbox --json` shows it as client_message_id.".to_owned(),
    };
    Some(json!({
        "kind": "unknown_reply",
        "message": format!("no message here has the id {id}; the reply was sent, but it may stand alone"),
        "next": next,
    }))
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

/// Where nobody knows what became of a send, its id is what makes a second try safe: it is told with the error, the
/// more so where the caller gave none.
pub(super) fn with_id(error: ClientError, id: &str) -> CliError {
    let is_lost = error.is_outcome_unknown();
    let told = CliError::from(error);
    if !is_lost {
        return told;
    }
    let why = format!(
        "{}; whether it took the message with the id {id} is not known",
        told.message
    );
    let next = format!(
        "Run the same command again with --id {id}: it lands once, whatever happened. `heddle status` says what the daemon does, and `heddle explain {id}` whether it has the message.",
    );
    let answer = json!({
        "code": "unreachable",
        "client_message_id": id,
        "detail": why,
        "retry": "same_id",
        "next": next,
    });
    CliError::new(told.code, why).next(next).answer(answer)
}

/// Waits for a level, and says how far it came if that is not reached in time.
fn wait_for(
    context: &Context,
    client: &Client,
    answer: SendAnswer,
    (level, seconds): (Level, u64),
) -> Result<SendAnswer, CliError> {
    let id = &answer.client_message_id;
    let mut left = seconds;
    loop {
        let step = left.min(WAIT_STEP_SECONDS);
        let timeout = step.to_string();
        let mut query = context.scope();
        query.extend([("wait", level.as_str()), ("timeout_seconds", &timeout)]);
        let patient = client.clone().within(Duration::from_secs(step));
        let story = patient.explain(id, &query)?;
        left -= step;
        if story.has_reached(level) {
            return Ok(reached(&story, level, answer));
        }
        if level > Level::Committed && story.has_nobody() {
            let to = &story.outbox.to;
            return Err(CliError::new(
                exit::FAILED,
                format!("{id} is committed, but nobody receives {to}"),
            )
            // The same whether nobody follows it, or those who do take nothing from this sender: that is theirs to say,
            // and nobody is pointed at it.
            .next(
                "Nobody who subscribes later gets it either: send it anew under another id then.",
            ));
        }
        if let Some(lost) = story.lost.as_ref().filter(|_| story.is_over()) {
            return Err(lost_at_broker(id, lost));
        }
        if story.is_over() {
            let status = &story.outbox.status;
            let why = story.outbox.last_error.as_deref().unwrap_or(status);
            return Err(
                CliError::new(exit::FAILED, format!("the message is {status}: {why}"))
                    .next(format!("`heddle explain {id}` says what to run next.")),
            );
        }
        if let Some((says, next)) = story.held_back() {
            let last = story.level_of_all().as_str();
            let why = format!("{id} is {last}, but {says}");
            return Err(CliError::new(exit::FAILED, why).next(format!("{next}.")));
        }
        if left == 0 {
            return Err(not_yet(&story, id, level));
        }
    }
}

/// It was committed, and is not any more; nothing happens before a person says what.
fn lost_at_broker(id: &str, lost: &LostView) -> CliError {
    let why = format!(
        "{id} is not committed: its broker has lost it; {}",
        lost.says()
    );
    let error = CliError::new(exit::FAILED, why);
    match lost.next(id) {
        Some(next) => error.next(format!("{next}.")),
        None => error,
    }
}

/// The time is over.
fn not_yet(story: &ExplainView, id: &str, level: Level) -> CliError {
    let last = story.level_of_all().as_str();
    let mut why = format!("{id} is {last}, not yet {} for everybody", level.as_str());
    let waits_for = story.outbox.waits_for.as_ref();
    if let Some(broker) = &story.stale_why {
        why.push_str(&format!(": {broker}"));
    } else if let Some(waits_for) = waits_for.filter(|_| story.broker.is_none()) {
        why.push_str(&format!(": it waits for {waits_for}"));
    }
    let code = if story.stale {
        exit::UNREACHABLE
    } else {
        exit::FAILED
    };
    CliError::new(code, why).next(format!(
        "Nothing is lost, it goes on by itself; see `heddle explain {id}`."
    ))
}

fn reached(story: &ExplainView, level: Level, answer: SendAnswer) -> SendAnswer {
    let broker = story.broker.as_ref();
    SendAnswer {
        status: None,
        broker_message_id: broker.map(|b| b.broker_message_id.clone()),
        history_id: broker.map(|b| b.history_id.clone()),
        durability: level.as_str().to_owned(),
        lost: None,
        next: None,
        ..answer
    }
}

pub(super) fn describe(to: &str, answer: &SendAnswer) -> String {
    let id = &answer.client_message_id;
    if let Some(lost) = &answer.lost {
        let next = answer.next.as_deref().unwrap_or_default();
        return format!(
            "sent to {to} before, but its broker has lost it: {} ({id})\n  next: {next}.\n",
            lost.says()
        );
    }
    match (answer.duplicate, answer.durability.as_str()) {
        (Some(true), "local") => format!("already queued for {to}, safe on disk ({id})\n"),
        (Some(true), "committed") => format!("already sent to {to} ({id})\n"),
        (Some(true), level) => format!("{level} to {to}, as it was sent before ({id})\n"),
        (_, "local") => format!("queued for {to}, safe on disk ({id})\n"),
        (_, "committed") => format!("sent to {to} ({id})\n"),
        (_, level) => format!("{level} to {to} ({id})\n"),
    }
}
