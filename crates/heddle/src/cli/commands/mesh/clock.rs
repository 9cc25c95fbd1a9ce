//! `heddle mesh clock`: where the clock of a mesh's data stands, and how far its sync has come.

use heddle_wire::ipc::ClockView;

use crate::cli::{CliError, Context};

pub(super) fn run(context: &Context) -> Result<(), CliError> {
    let query: Vec<_> = context.mesh_scope().into_iter().collect();
    context.print(&context.client().clock(&query)?, clock)
}

fn clock(view: &ClockView) -> String {
    let sync = &view.sync;
    let mut text = format!(
        "mesh {}: lamport {}, incarnation {}, {} ({})\n",
        view.mesh, view.lamport, view.incarnation, view.sync_state, sync.kind
    );
    if sync.kind != "personal" {
        text.push_str(&format!(
            "  log   through {} (epoch {}), last heard {}\n",
            sync.log,
            sync.broker_epoch,
            view.last_sync_at.as_deref().unwrap_or("never")
        ));
        text.push_str(&format!(
            "  ops   {} to send, {} to apply, {} parked, {} set aside\n",
            sync.out_waiting, sync.in_waiting, sync.in_parked, sync.in_quarantined
        ));
        if sync.out_refused > 0 {
            text.push_str(&format!(
                "  ! {} of those to send were refused; `heddle doctor` says why\n",
                sync.out_refused
            ));
        }
    }
    if sync.kept > 0 {
        text.push_str(&format!(
            "  ! {} changes of others are here and no more in its log\n",
            sync.kept
        ));
    }
    if let Some(why) = &sync.last_error {
        text.push_str(&format!("  ! {why}\n"));
    }
    text
}
