//! One run of one hook: is it allowed, what is it told, what may it do, what came of it.

use std::time::Duration;

use heddle_core::limits::HOOK_OUTPUT_BYTES_MAX;
use heddle_core::names::MeshName;
use heddle_core::redact::redact;
use heddle_store::{InboxRow, OwedHook, StoreError};
use serde_json::{Map, Value, json};

use super::audit::Line;
use super::event::{Input, input};
use super::policy::Rule;
use super::process::{self, Cause, Job, Ran};
use super::scope::{Grant, GrantedMessage};
use super::tokens::Minted;
use super::work::behind;
use super::{Hooks, State};
use crate::ipc::item;
use crate::shared::Shared;

/// Tries to start a process: a file that is just being written, or a full process table, may pass.
const STARTS_MAX: u32 = 3;
const START_AGAIN: Duration = Duration::from_millis(200);
/// Between two tries to say that a run is paid.
const PAY_AGAIN: Duration = Duration::from_secs(5);
/// Of a failed hook's words, so many bytes are logged.
const LOGGED_BYTES_MAX: usize = 1024;

/// An event without a row.
pub(super) struct Happened {
    pub(super) hook: &'static str,
    pub(super) id: String,
    pub(super) mesh: Option<String>,
    pub(super) event: Value,
}

/// What a run is about.
pub(super) struct Task {
    pub(super) hook: String,
    pub(super) event_id: String,
    pub(super) attempt: u32,
    pub(super) event: Map<String, Value>,
    pub(super) mesh: Option<MeshName>,
    pub(super) message: Option<GrantedMessage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    /// It said no; an answer like any other, and not asked again.
    Failed,
    TimedOut,
    NotStarted,
    /// The policy or the file does not allow it.
    Refused,
    /// The daemon stopped under it; it stays owed.
    Stopped,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::NotStarted => "not_started",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
        }
    }
}

pub(super) async fn happened(shared: &Shared, hooks: &Hooks, happened: Happened) {
    let event = match happened.event {
        Value::Object(event) => event,
        _ => Map::new(),
    };
    let task = Task {
        hook: happened.hook.to_owned(),
        event_id: happened.id,
        attempt: 1,
        event,
        mesh: happened.mesh.and_then(|mesh| MeshName::parse(&mesh).ok()),
        message: None,
    };
    run(shared, hooks, task).await;
}

/// A run that a durable row owes: begun in the table, run, then paid in the table.
pub(super) async fn owed(shared: &Shared, hooks: &Hooks, owed: OwedHook) {
    let outcome = match begin(shared, &owed).await {
        Ok(Some(row)) => {
            run(shared, hooks, message_task(shared, &row, &owed))
                .await
                .0
        }
        // Nothing is owed any more, or the message is gone.
        Ok(None) => Outcome::Refused,
        Err(error) => {
            tracing::warn!(%error, hook = owed.hook, "a hook could not be begun");
            // It stays owed; the next look is not to come at once.
            wait(shared, PAY_AGAIN).await;
            return;
        }
    };
    if outcome != Outcome::Stopped {
        pay(shared, owed, outcome).await;
    }
}

/// Marks it as running before anything runs, so that a crash is seen as one.
async fn begin(shared: &Shared, owed: &OwedHook) -> Result<Option<InboxRow>, StoreError> {
    let (store, now) = (&shared.store, shared.clock.wall());
    let page = store.inbox_page(behind(owed.arrival - 1, 1)).await?;
    let is_begun = store
        .hook_started(owed.arrival, owed.hook.clone(), now)
        .await?;
    let mut rows = page.into_iter();
    Ok(rows.find(|row| is_begun && row.arrival == owed.arrival))
}

/// Until the table has it: a run that is not paid would be run again.
async fn pay(shared: &Shared, owed: OwedHook, outcome: Outcome) {
    let is_ok = outcome == Outcome::Ok;
    loop {
        let (hook, now) = (owed.hook.clone(), shared.clock.wall());
        let paid = shared.store.hook_ended(owed.arrival, hook, is_ok, now);
        match paid.await {
            Ok(_) => return,
            Err(error) => tracing::warn!(%error, hook = owed.hook, "a run could not be noted"),
        }
        if shared.shutdown.is_cancelled() {
            return;
        }
        wait(shared, PAY_AGAIN).await;
    }
}

async fn wait(shared: &Shared, how_long: Duration) {
    tokio::select! {
        () = tokio::time::sleep(how_long) => {}
        () = shared.shutdown.cancelled() => {}
    }
}

fn message_task(shared: &Shared, row: &InboxRow, owed: &OwedHook) -> Task {
    let attempt = owed.attempts.saturating_add(1);
    let item = item(shared, row);
    let message = GrantedMessage {
        agent: row.agent.clone(),
        sender: format!("{}/{}", row.sender.member, row.sender.agent),
        sender_name: item.from.clone(),
        topic: row.topic.clone(),
        ids: [
            item.client_message_id.clone(),
            item.broker_message_id.clone(),
        ],
    };
    let mut event = match serde_json::to_value(&item) {
        Ok(Value::Object(event)) => event,
        _ => Map::new(),
    };
    for (name, value) in [
        ("event", json!("message")),
        ("hook", json!(owed.hook)),
        ("attempt", json!(attempt)),
    ] {
        event.insert(name.to_owned(), value);
    }
    Task {
        hook: owed.hook.clone(),
        event_id: row.arrival.to_string(),
        attempt,
        event,
        mesh: MeshName::parse(&item.mesh).ok(),
        message: Some(message),
    }
}

/// Runs it and leaves a line about it. Of a hook that failed its words come along, shortened and without
/// secrets.
pub(super) async fn run(shared: &Shared, hooks: &Hooks, mut task: Task) -> (Outcome, String) {
    let began = shared.clock.mono();
    let event = std::mem::take(&mut task.event);
    let (outcome, ran, is_input_cut) = match allowed(hooks, &task.hook) {
        Ok(rule) => {
            let input = input(event, &rule.redact);
            let is_cut = input.is_truncated;
            let (outcome, ran) = start(shared, hooks, &task, rule, input).await;
            (outcome, ran, is_cut)
        }
        Err(why) => {
            tracing::warn!(hook = task.hook, %why, "a hook is skipped");
            (Outcome::Refused, None, false)
        }
    };
    metrics::counter!("heddle_hook_runs_total", "outcome" => outcome.as_str()).increment(1);
    let lasted = shared.clock.mono().saturating_sub(began);
    let output_bytes = ran.as_ref().map_or(0, |ran| ran.output_bytes);
    let said = match &ran {
        Some(ran) if outcome == Outcome::Failed => String::from_utf8_lossy(&ran.output).into(),
        _ => String::new(),
    };
    let line = Line {
        at: shared.clock.wall().to_rfc3339(),
        hook: task.hook,
        event_id: task.event_id,
        attempt: task.attempt,
        outcome: outcome.as_str(),
        exit: ran.as_ref().and_then(|ran| ran.exit),
        signal: ran.as_ref().and_then(|ran| ran.signal),
        duration_ms: u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX),
        input_truncated: is_input_cut,
        output_bytes,
        output_truncated: output_bytes > HOOK_OUTPUT_BYTES_MAX as u64,
    };
    hooks.note(line).await;
    (outcome, said)
}

fn allowed<'a>(hooks: &'a Hooks, hook: &str) -> Result<&'a Rule, String> {
    let State::On(policy) = &hooks.state else {
        return Err("hooks are off".to_owned());
    };
    let rule = policy
        .rule(hook)
        .ok_or_else(|| "hooks.toml does not allow it any more".to_owned())?;
    hooks.may_run(hook).map(|()| rule)
}

/// The token lives from here to the end of the process.
async fn start(
    shared: &Shared,
    hooks: &Hooks,
    task: &Task,
    rule: &Rule,
    input: Input,
) -> (Outcome, Option<Ran>) {
    let grant = Grant {
        hook: task.hook.clone(),
        scopes: rule.scopes.clone(),
        mesh: task.mesh.clone(),
        message: task.message.clone(),
    };
    let token = shared
        .hook_tokens
        .mint(shared.ids.as_ref(), shared.clock.mono(), grant);
    let job = Job {
        program: hooks.folder.join(&task.hook),
        arguments: Vec::new(),
        folder: hooks.folder.clone(),
        environment: vec![
            ("PATH", "/usr/bin:/bin".into()),
            ("HEDDLE_HOME", hooks.home.clone().into()),
            (
                "HEDDLE_SOCKET",
                crate::home::socket_path(&hooks.home).into(),
            ),
            ("HEDDLE_EVENT_ID", task.event_id.clone().into()),
            ("HEDDLE_HOOK_TOKEN", token.secret().into()),
        ],
        input: input.bytes,
        timeout: rule.timeout(),
        output_bytes_max: HOOK_OUTPUT_BYTES_MAX,
        errors: process::Errors::Output,
    };
    let mut starts = 1;
    loop {
        match process::run(&job, &shared.shutdown).await {
            Ok(mut ran) => {
                ran.output = words(&ran, &token).into_bytes();
                return (outcome_of(task, &ran), Some(ran));
            }
            Err(_) if shared.shutdown.is_cancelled() => return (Outcome::Stopped, None),
            Err(_) if starts < STARTS_MAX => wait(shared, START_AGAIN).await,
            Err(error) => {
                tracing::warn!(hook = task.hook, %error, "a hook could not be started");
                return (Outcome::NotStarted, None);
            }
        }
        starts += 1;
    }
}

/// What it said, shortened and without secrets.
fn words(ran: &Ran, token: &Minted<'_>) -> String {
    let words = String::from_utf8_lossy(&ran.output).replace(token.secret(), "[redacted]");
    redact(&words).chars().take(LOGGED_BYTES_MAX).collect()
}

/// What a failed hook said goes to the log.
fn outcome_of(task: &Task, ran: &Ran) -> Outcome {
    let outcome = match (ran.cause, ran.exit) {
        (Cause::Stopped, _) => Outcome::Stopped,
        (Cause::TimedOut, _) => Outcome::TimedOut,
        (Cause::Itself, Some(0)) => Outcome::Ok,
        (Cause::Itself, _) => Outcome::Failed,
    };
    if matches!(outcome, Outcome::Failed | Outcome::TimedOut) {
        let words = String::from_utf8_lossy(&ran.output);
        tracing::warn!(
            hook = task.hook,
            event_id = task.event_id,
            outcome = outcome.as_str(),
            exit = ran.exit,
            said = %words,
            "a hook failed"
        );
    }
    outcome
}
