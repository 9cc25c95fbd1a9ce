//! The daemon's log: words on standard error, JSON lines in `logs/daemon.jsonl` of the home.
//!
//! It starts before the home is claimed, because claiming may have something to say; the file is
//! opened by the one process that holds the home. Nothing that goes wrong here reaches the daemon.

mod file;
mod last_words;
mod limit;
mod line;
mod within;

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use heddle_core::clock::Clock;
use heddle_daemon::config::LogConfig;
use heddle_daemon::home::log_folder;
use serde_json::Map;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, callsite};

use self::file::{Budget, LogFile};
use self::limit::Limit;
use self::line::Line;
use self::within::Within;
use crate::cli::{CliError, Context, exit};

pub use file::path as file_path;
pub use last_words::{LastWords, last_words};

/// Lines that are kept for the file until it is open.
const EARLY_LINES_MAX: usize = 100;
/// How often places are asked what they held back.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A handle on the log of this process.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    /// `HEDDLE_LOG`, which beats the config.
    wanted: Option<LevelFilter>,
    terminal: AtomicU8,
    file: AtomicU8,
    state: Mutex<State>,
}

struct State {
    limit: Limit<callsite::Identifier>,
    sink: Sink,
    told: Duration,
}

enum Sink {
    Early(Vec<String>),
    File(LogFile),
}

/// Where the words of a process go besides the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    StandardError,
    /// In the background standard error is a file without a bound; only last words go there.
    Nowhere,
}

pub fn start(context: &Context, clock: Arc<dyn Clock>, words: Words) -> Result<Log, CliError> {
    let wanted = match context.environment.log.as_deref() {
        None => None,
        Some(text) => Some(text.parse::<LevelFilter>().map_err(|_| {
            CliError::new(exit::USAGE, format!("HEDDLE_LOG={text} is not a level"))
                .next("Use error, warn, info, debug or trace.")
        })?),
    };
    let terminal = match words {
        Words::StandardError => wanted.unwrap_or(LevelFilter::WARN),
        Words::Nowhere => LevelFilter::OFF,
    };
    let log = Log(Arc::new(Inner {
        clock,
        wanted,
        terminal: AtomicU8::new(rank(terminal)),
        file: AtomicU8::new(rank(wanted.unwrap_or(LevelFilter::INFO))),
        state: Mutex::new(State {
            limit: Limit::new(),
            sink: Sink::Early(Vec::new()),
            told: Duration::ZERO,
        }),
    }));
    tracing::subscriber::set_global_default(log.clone())
        .map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    // A panic is caught per request; what it said belongs into the log like everything else.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let why = panic.payload_as_str().unwrap_or("no words");
        tracing::error!(why, place = place.unwrap_or_default(), "a panic of ours");
    }));
    Ok(log)
}

impl Log {
    /// Opens the file. The caller holds the home, so nobody else writes there.
    pub fn keep_in(&self, home: &Path, config: &LogConfig) -> Result<(), CliError> {
        let budget = Budget {
            file_bytes_max: u64::from(config.max_mb.get()) << 20,
            files: u32::from(config.files.get()),
        };
        let folder = log_folder(home);
        let mut file = LogFile::open(&folder, budget).map_err(|error| {
            CliError::new(
                exit::FAILED,
                format!("the log in {} cannot be opened: {error}", folder.display()),
            )
            .next("Move that folder away; the daemon makes a new one.")
        })?;
        let level = config.level.as_str().parse().unwrap_or(LevelFilter::INFO);
        let level = self.0.wanted.unwrap_or(level);
        self.0.file.store(rank(level), Ordering::Relaxed);
        self.0.held(|state| {
            if let Sink::Early(lines) = &state.sink {
                for line in lines {
                    file.write(line);
                }
            }
            state.sink = Sink::File(file);
        });
        callsite::rebuild_interest_cache();
        Ok(())
    }

    /// The end: what was held back is told.
    pub fn finish(&self) {
        self.0.held(|state| self.0.tell_held_back(state, true));
    }
}

impl Inner {
    /// With the log for this thread alone. Whatever the work has to say itself is written behind it: who holds the log
    /// must not wait for it.
    fn held(&self, work: impl FnOnce(&mut State)) {
        let _within = Within::enter();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut state);
        for line in Within::said() {
            self.write(&mut state, &line);
        }
    }

    fn now(&self) -> String {
        self.clock.wall().to_rfc3339()
    }

    fn takes(&self, level: Level) -> bool {
        let rank = level_rank(level);
        rank <= self.terminal.load(Ordering::Relaxed) || rank <= self.file.load(Ordering::Relaxed)
    }

    fn write(&self, state: &mut State, line: &Line) {
        let rank = level_rank(line.level);
        if rank <= self.terminal.load(Ordering::Relaxed) {
            // Nobody may be listening any more; that costs the words, never the daemon (L-27).
            let _ = crate::cli::log_bytes(line.words().as_bytes());
        }
        if rank > self.file.load(Ordering::Relaxed) {
            return;
        }
        let text = line.json();
        match &mut state.sink {
            Sink::Early(lines) if lines.len() < EARLY_LINES_MAX => lines.push(text),
            Sink::Early(_) => {}
            Sink::File(file) => {
                if let Some(lost) = file.write(&text) {
                    let mut fields = Map::new();
                    fields.insert("lost".to_owned(), lost.into());
                    let told =
                        Line::own(self.now(), "lines of this log could not be written", fields);
                    file.write(&told.json());
                }
            }
        }
    }

    fn tell_held_back(&self, state: &mut State, all: bool) {
        let now = self.clock.mono();
        if !all && now.saturating_sub(state.told) < TELL_EVERY {
            return;
        }
        state.told = now;
        for suppressed in state.limit.overdue(now, all) {
            let mut fields = Map::new();
            fields.insert("suppressed".to_owned(), suppressed.lines.into());
            fields.insert("place".to_owned(), suppressed.place.into());
            let line = Line::own(self.now(), "a place said more than is written", fields);
            self.write(state, &line);
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.takes(*metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let rank = self.0.terminal.load(Ordering::Relaxed);
        let rank = rank.max(self.0.file.load(Ordering::Relaxed));
        LEVELS.get(usize::from(rank)).copied()
    }

    fn event(&self, event: &Event<'_>) {
        if Within::is_here() {
            Within::say(Line::of(event, self.0.now()));
            return;
        }
        let metadata = event.metadata();
        let name = || {
            let place = (metadata.file(), metadata.line());
            let (file, line) = (place.0.unwrap_or("?"), place.1.unwrap_or(0));
            format!("{file}:{line}")
        };
        self.0.held(|state| {
            self.0.tell_held_back(state, false);
            let now = self.0.clock.mono();
            if state.limit.admit(metadata.callsite(), now, name) {
                let line = Line::of(event, self.0.now());
                self.0.write(state, &line);
            }
        });
    }

    // There are no spans in this program: an event says everything itself.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

const LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

fn rank(level: LevelFilter) -> u8 {
    level.into_level().map_or(0, level_rank)
}

fn level_rank(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use heddle_core::clock::{ManualClock, WallMs};

    use super::*;

    fn log(folder: &Path) -> Log {
        let budget = Budget {
            file_bytes_max: 1 << 20,
            files: 2,
        };
        Log(Arc::new(Inner {
            clock: Arc::new(ManualClock::at(WallMs(0))),
            wanted: None,
            terminal: AtomicU8::new(0),
            file: AtomicU8::new(rank(LevelFilter::INFO)),
            state: Mutex::new(State {
                limit: Limit::new(),
                sink: Sink::File(LogFile::open(folder, budget).unwrap()),
                told: Duration::ZERO,
            }),
        }))
    }

    /// The log opens a file anew and says that its mode was wrong, while it holds itself.
    #[test]
    fn what_the_log_says_of_its_own_file_stops_nobody_and_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        let log = log(&logs);
        let path = file_path(&logs, 0);
        let (done, ended) = std::sync::mpsc::channel();
        let moved = path.clone();
        // As a process has it: a subscriber of one scope is never asked from within itself.
        tracing::subscriber::set_global_default(log).unwrap();
        std::thread::spawn(move || {
            tracing::warn!("before");
            std::fs::remove_file(&moved).unwrap();
            std::fs::write(&moved, "").unwrap();
            let mode = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(&moved, mode).unwrap();
            tracing::warn!("after");
            tracing::warn!("more");
            done.send(()).unwrap();
        });
        let waited = ended.recv_timeout(Duration::from_secs(20));
        assert!(waited.is_ok(), "the log waits for itself");
        let text = std::fs::read_to_string(&path).unwrap();
        let has = |words: &str| text.lines().any(|line| line.contains(words));
        assert!(has("after") && has("more") && has("mode"), "{text}");
    }
}
