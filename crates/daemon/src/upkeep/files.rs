//! What the databases of a home are, in words: the same judgement that a start makes of each of them, for `heddle
//! status`, which wants one sentence and one command, and for the doctor, who says all of it.

use std::path::Path;

use heddle_core::names::MeshName;
use heddle_registrar::storage::sqlite as effects;
use heddle_store::{
    Condition, Heals, Look, Outlook, is_bare, lost_mesh_in, not_a_file, outlook, problem_in,
    spoilt_in,
};
use heddle_wire::ipc::Finding;

use super::look::{bytes, fine, left, wrong};
use super::{FullDisk, look_effects, misplaced, steps};
use crate::config::{Config, HOME_MESH};
use crate::effects::PolicyFile;

/// What the broker's file of a home is. The daemon knows no broker; whoever embeds one knows its file.
pub type LookAtBroker = fn(&Path, Look) -> Condition;

/// Who else has the files open.
#[derive(Clone, Copy)]
pub enum Beside {
    /// Nobody: no daemon runs in this home.
    Nobody(LookAtBroker),
    /// The daemon, and it is this very process: it has judged the files when it started.
    Daemon,
}

/// What a start of this home would meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub says: String,
    /// The one command that helps.
    pub next: &'static str,
    /// A newer Heddle is needed: no command of this one helps.
    pub is_newer: bool,
}

const DOCTOR: &str = "heddle doctor";
const UP: &str = "heddle up";
const REPAIR: &str = "heddle doctor --repair";
/// Rows of each table that a status looks at; the doctor looks at all of them.
const SPOILT_ROWS_MAX: u64 = 2_000;

fn hard(says: String) -> Trouble {
    Trouble {
        says,
        next: DOCTOR,
        is_newer: false,
    }
}

/// What keeps a daemon from starting in this home, as far as the looks of a start itself tell; else what a start mends
/// by itself.
pub fn trouble(home: &Path, broker: LookAtBroker) -> Option<Trouble> {
    // Before the settings, which may be such a thing themselves.
    if let Some(found) = misplaced::elsewhere(home).into_iter().next() {
        return Some(hard(format!("{}: {}", found.file, found.why)));
    }
    let config = match Config::load(&home.join("config.toml")) {
        Ok(config) => config,
        Err(error) => {
            // Its first line names the file and the place; the doctor shows the rest.
            let says = error.to_string();
            return Some(hard(says.lines().next().unwrap_or_default().to_owned()));
        }
    };
    let data = home.join("data.db");
    if let Some(found) = misplaced::first_of(home, &config) {
        return Some(hard(format!("{}: {}", found.file, found.why)));
    }
    let has_data = bytes(home, "data.db") > 0 && (left(home).is_none() || !is_bare(&data));
    if !has_data && let Some(left) = left(home) {
        let says = format!("data.db is missing or empty, but {left} is there");
        return Some(hard(says));
    }
    let store = has_data.then(|| outlook(&data, Look::AsNeeded, true));
    let is_fit = |store: &&Outlook| store.condition == Condition::Fit;
    let spoilt = store.as_ref().filter(is_fit).and_then(|_| spoilt(&data));
    let stopped = store
        .as_ref()
        .filter(|store| store.heals.is_none())
        .and_then(|store| stops("data.db", &store.condition))
        .or_else(|| {
            spoilt
                .clone()
                .filter(|(_, stops)| *stops)
                .map(|(found, _)| found)
        })
        .or_else(|| {
            store.as_ref().filter(is_fit)?;
            steps::refused(&data).map(hard)
        })
        .or_else(|| has_data.then(|| effects_trouble(home)).flatten())
        .or_else(|| {
            // A broker elsewhere serves the home's own mesh: its own file is not opened.
            let is_used = config.broker.url.is_none() && bytes(home, "broker.db") > 0;
            let condition = is_used.then(|| broker(&home.join("broker.db"), Look::AsNeeded));
            stops("broker.db", &condition?)
        })
        .or_else(|| {
            let disk = FullDisk::for_start(home).filter(FullDisk::is_full)?;
            Some(hard(disk.to_string()))
        });
    stopped.or_else(|| spoilt.map(|(found, _)| found)).or_else(|| {
        let store = store?;
        let why = store.condition.damage().unwrap_or_default();
        let says = match store.heals? {
            Heals::Inbox => format!(
                "the inbox in data.db is damaged ({why}); everything else in it is whole, and the next start sets the \
                 inbox aside by itself"
            ),
            Heals::Everything => format!(
                "data.db is damaged where nothing is kept ({why}); every message in it is whole, and the next start \
                 writes it anew by itself"
            ),
        };
        Some(Trouble {
            says,
            next: UP,
            is_newer: false,
        })
    })
}

/// A cell that nobody can read, and whether a start needs it.
fn spoilt(data: &Path) -> Option<(Trouble, bool)> {
    let spoilt = spoilt_in(data, SPOILT_ROWS_MAX);
    // Over such a home nothing is begun; what a start reads before it has its own words.
    let is_first = matches!(spoilt, Some((_, true)));
    if let (false, Ok(home)) = (is_first, MeshName::parse(HOME_MESH))
        && let Some(found) = lost_mesh_in(data, &home)
    {
        let trouble = Trouble {
            says: format!("data.db: {found}"),
            next: REPAIR,
            is_newer: false,
        };
        return Some((trouble, true));
    }
    let (found, stops) = spoilt?;
    let trouble = Trouble {
        says: format!("data.db holds what cannot be read: {found}"),
        next: REPAIR,
        is_newer: false,
    };
    Some((trouble, stops))
}

fn effects_trouble(home: &Path) -> Option<Trouble> {
    let file = home.join("effects.db");
    look_effects::lost(home)
        .map(|finding| hard(format!("{}: {}", finding.check, finding.says)))
        .or_else(|| stops("effects.db", &effects::condition(&file)))
        .or_else(|| look_effects::unfit(home).map(|finding| hard(finding.says)))
        .or_else(|| {
            PolicyFile::new(home.join("effects.toml"))
                .trouble()
                .map(hard)
        })
}

/// Why a start refuses this file.
fn stops(file: &str, condition: &Condition) -> Option<Trouble> {
    match condition {
        Condition::New | Condition::Fit | Condition::Unseen(_) => None,
        Condition::NotAFile(why) => Some(hard(format!("{file}: {why}"))),
        Condition::Foreign { found, wanted } => {
            let (found, wanted) = (found.says(), wanted.says());
            Some(hard(format!("{file}: {}", foreign(found, wanted))))
        }
        Condition::Newer { found, known } => Some(Trouble {
            says: format!("{file}: {}", newer(*found, *known)),
            next: DOCTOR,
            is_newer: true,
        }),
        Condition::BadHeader(why) | Condition::Damaged(why) => {
            Some(hard(format!("{file} is damaged: {why}")))
        }
    }
}

fn foreign(found: &str, wanted: &str) -> String {
    format!("it is {found}, not {wanted}; nothing was changed")
}

fn newer(found: u32, known: u32) -> String {
    format!(
        "a newer Heddle has written it (schema {found}, this one knows {known}); nothing was changed; install the newer \
         version"
    )
}

/// What helps with a file that a newer Heddle has written, for every verb that meets one.
pub fn newer_next(file: &str, found: u32) -> String {
    let install = "Install the Heddle that wrote it, or a newer one, and start that";
    match file {
        "data.db" => format!(
            "{install}; that one can also take its newest step back, if nothing needs it: `heddle doctor \
             --rollback-migration {found}`."
        ),
        _ => format!("{install}."),
    }
}

/// The verdict on the store's file.
pub(super) fn store_finding(home: &Path, outlook: &Outlook) -> Finding {
    let why = outlook.condition.damage().unwrap_or_default();
    match outlook.heals {
        None => of_condition(home, "data.db", &outlook.condition),
        Some(Heals::Inbox) => wrong(
            "data.db",
            format!("its inbox is damaged: {why}; everything else in it is whole"),
            "`heddle up` (after `heddle down`, where one runs) sets the damaged inbox aside and begins a new one: what \
             the broker still holds comes again. A backup has the rest: `heddle daemon restore FILE`.",
        ),
        Some(Heals::Everything) => wrong(
            "data.db",
            format!("it is damaged where nothing is kept: {why}; every message in it is whole"),
            "`heddle up` (after `heddle down`, where one runs) writes it anew with everything that is in it, and keeps \
             the damaged file.",
        ),
    }
}

/// The verdicts on the other two files.
pub(super) fn other_findings(home: &Path, beside: Beside) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in ["broker.db", "effects.db"] {
        let path = home.join(name);
        if bytes(home, name) == 0 && not_a_file(&path).is_none() {
            continue;
        }
        found.push(match beside {
            Beside::Daemon => match problem_in(&path) {
                Ok(problem) => integrity(name, problem.as_deref()),
                Err(error) => unreadable(name, &error.to_string()),
            },
            Beside::Nobody(broker) if name == "broker.db" => {
                of_condition(home, name, &broker(&path, Look::Wholly))
            }
            Beside::Nobody(_) => of_condition(home, name, &effects::condition(&path)),
        });
    }
    found
}

fn of_condition(home: &Path, file: &str, condition: &Condition) -> Finding {
    match condition {
        Condition::NotAFile(why) => {
            wrong(file, why.clone(), misplaced::not_a_file_next(home, file))
        }
        Condition::Foreign { found, wanted } => wrong(
            file,
            foreign(found.says(), wanted.says()),
            misplaced::foreign_next(home, file),
        ),
        Condition::New | Condition::Fit => integrity(file, None),
        Condition::Newer { found, known } => {
            wrong(file, newer(*found, *known), newer_next(file, *found))
        }
        Condition::BadHeader(why) | Condition::Damaged(why) => integrity(file, Some(why)),
        Condition::Unseen(why) => unreadable(file, why),
    }
}

macro_rules! broker_beyond {
    () => {
        "ut the last backup in its place: `heddle daemon restore FILE --only broker`, where FILE is what `heddle doctor --backup FILE` \
         made; the damaged file is kept. Without one, move broker.db away and start again: a new one is made, everything in data.db \
         stays, guests have to join anew, and work that waited in a queue is only in the damaged file."
    };
}

/// What is left for a broker.db that a repair does not mend: also for a person without a backup there is a way.
pub const BROKER_BEYOND: &str = concat!("P", broker_beyond!());

/// The ways out of a damaged broker.db, for everybody who meets one.
pub const BROKER_DAMAGED: &str = concat!(
    "`heddle doctor --repair` mends it where only its header or the list of its free pages is damaged. Else p",
    broker_beyond!()
);

fn integrity(file: &str, problem: Option<&str>) -> Finding {
    let Some(problem) = problem else {
        return fine(file, "every page of it was read and is whole");
    };
    let next = match file {
        "data.db" => {
            "Put the last backup back with `heddle daemon restore FILE`. Without one, `heddle down` and `heddle doctor --repair` save what can be read, and keep the damaged file."
        }
        "broker.db" => {
            return wrong(
                file,
                format!("it is damaged: {problem}"),
                format!("Stop with `heddle down`. {BROKER_DAMAGED}"),
            );
        }
        _ => {
            "Stop with `heddle down` and put a copy of effects.db from the last copy of the stopped home in its place; without it nobody can say which effects have happened, so nothing begins it anew by itself."
        }
    };
    wrong(file, format!("it is damaged: {problem}"), next)
}

pub(super) fn unreadable(file: &str, why: &str) -> Finding {
    wrong(
        file,
        format!("it cannot be looked at: {why}"),
        "See to the disk and the rights of the home folder, then run `heddle doctor` again.",
    )
}
