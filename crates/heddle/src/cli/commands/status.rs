//! `heddle status`: one verdict, the figures, and the one command to run next.

use clap::Args as ClapArgs;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::StatusView;
use serde_json::json;

use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    match context.client().hasty().status() {
        Ok(status) => context.print(&status, describe),
        // Not an error: it is the answer. What cannot be known is null, not zero (C29).
        Err(ClientError::NotRunning { .. }) => {
            let status = json!({
                "running": false, "connected": false, "meshes": null, "outbox": null, "inbox": null,
                "durability": null, "degraded": ["no daemon is running"],
                "version": env!("CARGO_PKG_VERSION"), "home": context.home,
            });
            context.print(&status, |_| {
                format!(
                    "not running (home {})\n  next: heddle up\n",
                    context.home.display()
                )
            })
        }
        Err(error) => Err(error.into()),
    }
}

fn describe(status: &StatusView) -> String {
    let mut text = String::new();
    let verdict = if !status.degraded.is_empty() {
        "degraded"
    } else if status.outbox.dead > 0 {
        "running, but some messages are dead"
    } else {
        "all is well"
    };
    text.push_str(&format!("{verdict} (heddle {})\n", status.version));
    for reason in &status.degraded {
        text.push_str(&format!("  ! {reason}\n"));
    }
    if status.durability != "full" {
        text.push_str("  ! HEDDLE_STORE_SYNC=normal: a power cut may take the last messages\n");
    }
    for mesh in &status.meshes {
        let state = if mesh.connected {
            "connected"
        } else {
            "not connected"
        };
        text.push_str(&format!(
            "  mesh    {} as {}, broker {}, {state}\n",
            mesh.mesh, mesh.member, mesh.broker
        ));
    }
    let outbox = &status.outbox;
    text.push_str(&format!(
        "  outbox  {} pending, {} in flight, {} done, {} dead, {} aborted\n",
        outbox.pending, outbox.inflight, outbox.done, outbox.dead, outbox.aborted
    ));
    text.push_str(&format!(
        "  inbox   {} messages, {} unread\n",
        status.inbox.items, status.inbox.unread
    ));
    let next = if !status.degraded.is_empty() {
        "tail daemon.log in the home folder; it mends itself, or: heddle down, then heddle up"
    } else if status.outbox.dead > 0 {
        "heddle daemon outbox --failed"
    } else if status.inbox.unread > 0 {
        "heddle agent list"
    } else {
        "heddle peers"
    };
    text.push_str(&format!("  next: {next}\n"));
    text
}
