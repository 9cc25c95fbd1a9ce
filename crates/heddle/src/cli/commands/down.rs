//! `heddle down`: asks the daemon to drain and stop, and waits until it has.

use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use heddle_daemon::{Holder, Home};
use heddle_wire::client::ClientError;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::cli::{CliError, Context, exit};

/// A little more than the daemon's own limit for stopping.
const WAIT_MAX: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, ClapArgs)]
pub struct Args {}

pub fn run(context: &Context, _: Args) -> Result<(), CliError> {
    let Some(holder) = Home::holder(&context.home) else {
        let nothing = json!({"stopped": false, "running": false});
        return context.print(&nothing, |_| "nothing runs here\n".to_owned());
    };
    match context.client().hasty().shutdown() {
        Ok(_) => {}
        // It holds the home but does not answer: starting, stopping, or stuck. The kernel can tell it.
        Err(ClientError::NotRunning { .. } | ClientError::Broken(_) | ClientError::Silent) => {
            terminate(&holder)?;
        }
        Err(error) => return Err(error.into()),
    }
    wait_until_released(context, &holder)?;
    let pid = holder.pid;
    context.print(
        &json!({"stopped": true, "running": false, "pid": pid}),
        |_| "stopped; everything accepted is on disk\n".to_owned(),
    )
}

fn terminate(holder: &Holder) -> Result<(), CliError> {
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
    match pid {
        // Gone already is fine; the wait below sees it.
        Some(pid) => {
            let _ = kill_process(pid, Signal::TERM);
            // One that somebody has stopped hears nothing before it goes on.
            let _ = kill_process(pid, Signal::CONT);
            Ok(())
        }
        None => Err(CliError::new(
            exit::FAILED,
            "the home is held by a process that says neither its number nor a word",
        )
        .next("Find it with `fuser heddle.lock` in the home folder.")),
    }
}

fn wait_until_released(context: &Context, holder: &Holder) -> Result<(), CliError> {
    let mut waited = Duration::ZERO;
    while Home::holder(&context.home).is_some() {
        if waited >= WAIT_MAX {
            return Err(
                CliError::new(exit::FAILED, format!("{holder} has not stopped in time"))
                    .next("`heddle logs` says what it is doing. If it hangs, end that process with `kill -9`: what was accepted is on disk."),
            );
        }
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    Ok(())
}
