//! The signals that end a process which serves, caught so that it drains.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Somebody wants it ended: Ctrl-C, SIGTERM.
    End,
    /// The terminal is gone (SIGHUP). The kernel says so, and often the shell as well.
    HangUp,
}

/// Ctrl-C, SIGTERM and SIGHUP, caught from here on.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where it was ignored when the process began (`nohup`): then it stays so.
    hang_up: Option<Signal>,
}

impl Signals {
    /// From here on they end nothing by themselves.
    pub fn catch() -> std::io::Result<Self> {
        let hang_up = SignalKind::hangup();
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if is_ignored(hang_up) {
                None
            } else {
                Some(signal(hang_up)?)
            },
        })
    }

    pub async fn next(&mut self) -> Word {
        tokio::select! {
            _ = self.interrupt.recv() => Word::End,
            _ = self.terminate.recv() => Word::End,
            () = hung_up(&mut self.hang_up) => Word::HangUp,
        }
    }
}

async fn hung_up(hang_up: &mut Option<Signal>) {
    match hang_up {
        Some(hang_up) => {
            hang_up.recv().await;
        }
        None => std::future::pending().await,
    }
}

fn is_ignored(kind: SignalKind) -> bool {
    ignored() & (1 << (kind.as_raw_value() - 1)) != 0
}

/// Those that this process ignores, a bit for each. Where the kernel does not say it, HUP is left as it was: it is what
/// `nohup` ignores.
pub fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(1 << (SignalKind::hangup().as_raw_value() - 1))
}
