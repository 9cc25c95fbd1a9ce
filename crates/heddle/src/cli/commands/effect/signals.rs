//! Signals to `heddle effect run` and `compensate`: the command is given its end, and what it comes to is kept.
//!
//! Whoever runs an effect must be there when it ends, or nobody knows how. TERM and HUP are passed on to the command; INT
//! comes to it from the terminal, by the group. The runner waits, keeps and tells. A second signal ends it at once, unless it
//! comes with the first one, or the command has ended: whoever ends a process often says so to its group as well
//! (`timeout`), and means one word.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::spelled::quoted;
use crate::cli::ui;
use crate::system::ignored;

const KINDS: [(SignalKind, Signal, &str); 3] = [
    (SignalKind::interrupt(), Signal::INT, "SIGINT"),
    (SignalKind::terminate(), Signal::TERM, "SIGTERM"),
    (SignalKind::hangup(), Signal::HUP, "SIGHUP"),
];

/// What comes so soon after the first signal is the same word, and no second one.
const ONE_WORD: Duration = Duration::from_secs(1);

/// How far this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is under way here: a signal ends it, as it ends any other verb.
    Idle,
    /// The run is being taken; no command is there yet.
    Taking,
    Running(Pid),
    /// The command has ended; what it printed is read to its end, and how it ended is about to be kept.
    Ended,
    /// How the command ended lies on the disk.
    Kept,
}

/// What a signal leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Wait { pass_to: Option<Pid> },
    End(&'static str),
}

const UNKNOWN: &str = "ended at once: how the command ends is not kept, and the outcome will be `unknown`, for a person to look at and resolve";
const KEPT: &str = "ended at once: how the command ended is kept; the same call again goes on from there, and runs nothing";

/// The whole decision. `is_first` of those that came since the run was begun to be taken.
fn act(phase: Phase, signal: Signal, is_first: bool) -> Act {
    match phase {
        Phase::Idle => Act::End(""),
        Phase::Kept => Act::End(KEPT),
        Phase::Taking | Phase::Running(_) if !is_first => Act::End(UNKNOWN),
        // Who presses ^C has told the whole group; twice would be a second word to the command.
        Phase::Running(pid) if signal != Signal::INT => Act::Wait { pass_to: Some(pid) },
        // Of a command that has ended: seconds, at most, and nothing is gained by not waiting for what is known already.
        Phase::Taking | Phase::Running(_) | Phase::Ended => Act::Wait { pass_to: None },
    }
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The first one since the run was begun to be taken.
    first: Option<Signal>,
}

#[derive(Debug)]
pub(super) struct Signals {
    state: Arc<Mutex<State>>,
}

impl Signals {
    /// From here on signals are ours. What was ignored when we began (`nohup`, a job in the background) stays so, for the
    /// command as well.
    pub(super) fn catch(key: &str) -> Self {
        let state = Arc::new(Mutex::new(State {
            phase: Phase::Idle,
            first: None,
        }));
        let (ready, is_ready) = mpsc::channel();
        let (shared, key) = (Arc::clone(&state), key.to_owned());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(heed(&shared, &key, ready));
            }
        });
        // Nothing comes where they cannot be caught: then they do as they always did.
        let _ = is_ready.recv();
        Self { state }
    }

    fn enter(&self, phase: Phase) -> Option<Signal> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if phase == Phase::Taking {
            state.first = None;
        }
        state.phase = phase;
        state.first
    }

    /// The run is about to be taken.
    pub(super) fn taking(&self) {
        self.enter(Phase::Taking);
    }

    /// The command runs. A signal that came before it was there is passed on now, whichever it is.
    pub(super) fn begun(&self, pid: u32) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return;
        };
        if let Some(signal) = self.enter(Phase::Running(pid)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// How it ended is on the disk.
    pub(super) fn kept(&self) {
        self.enter(Phase::Kept);
    }

    /// Nothing is under way here.
    pub(super) fn idle(&self) {
        self.enter(Phase::Idle);
    }
}

async fn heed(state: &Mutex<State>, key: &str, ready: mpsc::Sender<()>) {
    let ignored = ignored();
    let caught = KINDS.map(|(kind, number, name)| {
        let is_ours = ignored & (1 << (number.as_raw() - 1)) == 0;
        let stream = is_ours.then(|| signal(kind).ok()).flatten();
        (stream, number, name)
    });
    let _ = ready.send(());
    let [mut interrupt, mut terminate, mut hang_up] = caught;
    loop {
        let (number, name) = tokio::select! {
            () = next(&mut interrupt.0) => (interrupt.1, interrupt.2),
            () = next(&mut terminate.0) => (terminate.1, terminate.2),
            () = next(&mut hang_up.0) => (hang_up.1, hang_up.2),
        };
        on_signal(state, key, (number, name));
        tokio::time::sleep(ONE_WORD).await;
        for (stream, ..) in [&mut interrupt, &mut terminate, &mut hang_up] {
            passed_over(stream).await;
        }
    }
}

/// What has come by now is not looked at.
async fn passed_over(stream: &mut Option<tokio::signal::unix::Signal>) {
    tokio::select! {
        biased;
        () = next(stream) => {}
        () = std::future::ready(()) => {}
    }
}

async fn next(stream: &mut Option<tokio::signal::unix::Signal>) {
    let came = match stream {
        Some(stream) => stream.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending::<()>().await;
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a signal ends the process wherever it is, as it always did; the lock and the end on the disk are made for that"
)]
fn on_signal(state: &Mutex<State>, key: &str, (number, name): (Signal, &str)) {
    let act = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = state.first.is_none();
        state.first.get_or_insert(number);
        let phase = match state.phase {
            Phase::Running(pid) if has_ended(pid) => Phase::Ended,
            phase => phase,
        };
        act(phase, number, is_first)
    };
    match act {
        Act::Wait { pass_to } => {
            let passed = pass_to.is_some_and(|pid| kill_process(pid, number).is_ok());
            let told = if passed {
                ", which was passed on to the command"
            } else {
                ""
            };
            ui::note(&format!(
                "note: {name}{told}; how the command ends is waited for and kept. A further signal, later than a second from now, ends this at once, and the outcome will be `unknown`."
            ));
        }
        Act::End(words) => {
            if !words.is_empty() {
                ui::note(&format!(
                    "error: {key}: {name}, {words}\n  next: `heddle effect status {}` says what stands.",
                    quoted(key)
                ));
            }
            std::process::exit(128 + number.as_raw());
        }
    }
}

/// Whether the command is gone, or waits only for somebody to ask how it ended. Where the kernel does not say it, it lives.
fn has_ended(pid: Pid) -> bool {
    if test_kill_process(pid).is_err() {
        return true;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // Its name, in parentheses, may hold anything.
    let stat = stat.unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    matches!(after.split_whitespace().next(), Some("Z" | "X"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_an_answer_to_every_signal() {
        let pid = Pid::from_raw(7).unwrap();
        let wait = |pass_to| Act::Wait { pass_to };
        for (phase, first, second) in [
            (Phase::Idle, Act::End(""), Act::End("")),
            (Phase::Taking, wait(None), Act::End(UNKNOWN)),
            (Phase::Running(pid), wait(Some(pid)), Act::End(UNKNOWN)),
            (Phase::Ended, wait(None), wait(None)),
            (Phase::Kept, Act::End(KEPT), Act::End(KEPT)),
        ] {
            for signal in [Signal::TERM, Signal::HUP] {
                assert_eq!(act(phase, signal, true), first, "{phase:?}");
                assert_eq!(act(phase, signal, false), second, "{phase:?}");
            }
        }
        // The group has it from the terminal.
        assert_eq!(act(Phase::Running(pid), Signal::INT, true), wait(None));
        assert_eq!(
            act(Phase::Running(pid), Signal::INT, false),
            Act::End(UNKNOWN)
        );
    }

    #[test]
    fn a_command_that_nobody_has_asked_for_its_end_has_ended_all_the_same() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!has_ended(pid));
        drop(child.stdin.take());
        while !has_ended(pid) {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(has_ended(pid));
    }
}
