//! `heddle status`: one verdict, the figures, and the one command to run next.
//!
//! It answers in bounded time whatever the daemon does: running, starting, stopped, stuck, gone.

use clap::Args as ClapArgs;
use heddle_daemon::upkeep::{FullDisk, StepsNow, steps_now};
use heddle_daemon::{Holder, Home};
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{MeshStatus, StatusView, Verdict};
use serde_json::{Value, json};

use crate::cli::{CliError, Context, exit};
use crate::up::{LastWords, last_words};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    match context.client().hasty().status() {
        Ok(status) => {
            context.known_mesh(status.meshes.iter().map(|mesh| mesh.mesh.as_str()))?;
            let mut status = status.judged_for(context.mesh.as_deref());
            status.next = context.spelled(&status.next);
            context.print(&status, describe)
        }
        // Not an error: it is the answer.
        Err(ClientError::NotRunning { .. }) => match Home::holder(&context.home) {
            None => {
                let broker = heddle_broker::storage::sqlite::condition;
                let status = match heddle_daemon::upkeep::trouble(&context.home, broker) {
                    None => without_trouble(context),
                    Some(trouble) => {
                        // SQLite says what it found on lines of its own.
                        let says = trouble.says.replace('\n', " ");
                        let why = format!("no daemon is running, and {says}");
                        unknown(context, false, &why, trouble.next)
                    }
                };
                context.print(&status, |status| in_words(context, status))
            }
            Some(holder) => {
                let why = format!(
                    "{holder} holds the home, but its door is shut: it is starting or stopping"
                );
                let status = unknown(context, false, &why, "heddle status");
                context.print(&status, |status| in_words(context, status))
            }
        },
        Err(ClientError::Silent) => {
            let holder = Home::holder(&context.home).unwrap_or_default();
            Err(stuck(context, &holder))
        }
        Err(error) => Err(error.into()),
    }
}

/// Nothing in the files stands against a start; perhaps what the last one said does, or a disk on which one may not find
/// its room: whoever has tried has heard that in the same words.
fn without_trouble(context: &Context) -> Value {
    let disk = FullDisk::for_start(&context.home);
    let last = last_words(&context.home);
    // A start would end the same way until somebody has changed something: the doctor says what.
    let ends_again = |last: &LastWords| !last.starts_again || is_in_the_way(context, last);
    let needs_doctor = disk.is_some() || last.as_ref().is_some_and(ends_again);
    let mut why = "no daemon is running".to_owned();
    if let Some(disk) = disk {
        why.push_str(&format!(", and {disk}"));
    }
    if let Some(last) = last {
        why.push_str(&format!("; the last one stopped: {}", last.why));
    }
    let next = if needs_doctor {
        "heddle doctor"
    } else {
        "heddle up"
    };
    unknown(context, false, &why, next)
}

/// A step of the schema that the last start did not take, and that nobody can say the next one will.
fn is_in_the_way(context: &Context, last: &LastWords) -> bool {
    let is_told = |now| matches!(now, StepsNow::NoneWaits | StepsNow::Taken);
    last.migration.is_some() && !is_told(steps_now(&context.home))
}

/// It is there and says nothing. `down` speaks to the kernel where the daemon does not listen.
fn stuck(context: &Context, holder: &Holder) -> CliError {
    let why = format!("{holder} does not answer: it is stopped, stuck or overloaded");
    let status = unknown(context, true, &why, "heddle down");
    CliError::new(
        exit::UNREACHABLE,
        format!("{}: {why}", Verdict::Down.as_str()),
    )
    .next("heddle down")
    .answer(status)
}

/// What can be said without the daemon. What cannot be known is null, not zero (C29).
fn unknown(context: &Context, running: bool, why: &str, next: &str) -> Value {
    json!({
        "running": running, "connected": false, "meshes": null, "outbox": null, "inbox": null,
        "durability": null, "degraded": [why], "version": env!("CARGO_PKG_VERSION"),
        "home": context.home, "verdict": Verdict::Down.as_str(), "next": context.spelled(next),
    })
}

fn in_words(context: &Context, status: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}: {} (home {})\n  next: {}\n",
        text(&status["verdict"]),
        text(&status["degraded"][0]),
        context.home.display(),
        text(&status["next"]),
    )
}

/// How the data of a mesh that has others is shared.
fn sync(mesh: &MeshStatus) -> String {
    match &mesh.sync {
        Some(sync) if sync.kind != "personal" => {
            format!(", sync {}, {} to send", sync.state, sync.out_waiting)
        }
        _ => String::new(),
    }
}

fn describe(status: &StatusView) -> String {
    let outbox = &status.outbox;
    let says = match status.judge().0 {
        Verdict::Ok => "all is well".to_owned(),
        _ if status.degraded.is_empty() => match outbox.dead {
            0 => "it needs a person".to_owned(),
            1 => "1 message is dead".to_owned(),
            dead => format!("{dead} messages are dead"),
        },
        _ => "it works, but not all of it".to_owned(),
    };
    let mut text = format!("{}: {says} (heddle {})\n", status.verdict, status.version);
    for reason in &status.degraded {
        text.push_str(&format!("  ! {reason}\n"));
    }
    if status.durability != "full" {
        text.push_str("  ! HEDDLE_STORE_SYNC=normal: a power cut may take the last messages\n");
    }
    for note in &status.notes {
        text.push_str(&format!("  note    {note}\n"));
    }
    for mesh in &status.meshes {
        let state = if mesh.connected {
            "connected"
        } else {
            "not connected"
        };
        text.push_str(&format!(
            "  mesh    {} as {}, broker {}, {state}{}\n",
            mesh.mesh,
            mesh.member,
            mesh.broker,
            sync(mesh)
        ));
        if let Some(why) = &mesh.limited {
            text.push_str(&format!(
                "  limit   mesh {}: {why}; what waits goes out by itself, `heddle daemon outbox list` shows it\n",
                mesh.mesh
            ));
        }
    }
    text.push_str(&format!(
        "  outbox  {} pending, {} in flight, {} done, {} dead, {} aborted\n",
        outbox.pending, outbox.inflight, outbox.done, outbox.dead, outbox.aborted
    ));
    // Beside other trouble the command that comes next is about that one.
    if outbox.dead > 0 && !status.degraded.is_empty() {
        let messages = match outbox.dead {
            1 => "1 message is dead and goes nowhere by itself".to_owned(),
            dead => format!("{dead} messages are dead and go nowhere by themselves"),
        };
        text.push_str(&format!(
            "  dead    {messages}: `heddle daemon outbox --failed`\n"
        ));
    }
    text.push_str(&format!(
        "  inbox   {} messages, {} unread\n",
        status.inbox.items, status.inbox.unread
    ));
    text.push_str(&format!("  next: {}\n", status.next));
    text
}
