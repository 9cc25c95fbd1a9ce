//! The doctor's look at the files of a home: sentences, each with one command. It changes nothing.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use heddle_core::pressure::FileSystem;
use heddle_store::{BackupError, Checkup, MeshCheck, check_up, is_bare, problem_in, quick_problem};
use heddle_wire::ipc::{DoctorView, Finding};

use super::{cold_start, look_effects};
use crate::config::{Config, HOME_MESH};
use crate::effects::PolicyFile;
use crate::inbox::damage::{in_words, is_readable};

/// Below this a start may fail for want of space.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// Files with a wrong mode that one finding names.
const NAMED_MAX: usize = 3;
/// What a person writes, and may want others to read.
const THEIRS: [&str; 3] = ["config.toml", "hooks.toml", "hooks"];

/// The verdict on a home in which nothing runs.
pub fn look(home: &Path) -> DoctorView {
    let mut findings = vec![Finding {
        check: "daemon".to_owned(),
        ok: true,
        says: "no daemon runs; only the files were looked at".to_owned(),
        next: "`heddle up` starts one.".to_owned(),
    }];
    if bytes(home, "data.db") == 0 && left(home).is_none() {
        findings.extend(config(home).err());
        findings.push(fine(
            "data.db",
            "there is none yet; the first start makes it",
        ));
    } else {
        findings.extend(self::findings(home, true));
    }
    DoctorView {
        ok: findings.iter().all(|finding| finding.ok),
        findings,
        ops: Vec::new(),
    }
}

/// The settings, or what is wrong with them.
fn config(home: &Path) -> Result<Config, Finding> {
    Config::load(&home.join("config.toml")).map_err(|error| {
        let next = "Correct the file; the next start would refuse it.";
        wrong("config.toml", error.to_string(), next)
    })
}

/// What the files say. `with_sync`: also how the tables say that the sync stands, for want of a daemon
/// that knows better. Blocks for as long as reading the files takes.
pub fn findings(home: &Path, with_sync: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    if bytes(home, "data.db") > 0 {
        found.extend(store_findings(home, with_sync));
    } else if let Some(left) = left(home) {
        found.push(wrong(
            "data.db",
            format!("it is missing or empty, but {left} is there"),
            "Put the last backup back with `heddle daemon restore FILE`.",
        ));
    }
    let broker = home.join("broker.db");
    if broker.exists() {
        found.push(match problem_in(&broker) {
            Ok(problem) => integrity("broker.db", problem.as_deref()),
            Err(error) => unreadable("broker.db", &error),
        });
    }
    if bytes(home, "effects.db") > 0 {
        found.push(match problem_in(&home.join("effects.db")) {
            Ok(problem) => integrity("effects.db", problem.as_deref()),
            Err(error) => unreadable("effects.db", &error),
        });
    }
    found.extend(look_effects::findings(home));
    found.push(disk(home));
    found.push(modes(home));
    found.extend(cold_start::finding(home));
    found
}

/// What would keep a daemon from starting in this home, as far as a quick look tells.
pub fn trouble(home: &Path) -> Option<String> {
    let is_damaged = |name: &str| {
        let problem = (bytes(home, name) > 0).then(|| quick_problem(&home.join(name)));
        problem
            .flatten()
            .map(|why| format!("{name} is damaged: {why}"))
    };
    let config = Config::load(&home.join("config.toml")).err();
    config
        // Its first line names the file and the place; the doctor shows the rest.
        .map(|error| {
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .or_else(|| store_trouble(home))
        .or_else(|| is_damaged("broker.db"))
        .or_else(|| {
            let around = around(home).ok()?;
            let kb = around.free >> 10;
            around
                .is_full()
                .then(|| format!("the disk is full: {kb} KB are free"))
        })
}

fn store_trouble(home: &Path) -> Option<String> {
    let data = home.join("data.db");
    if bytes(home, "data.db") > 0 && (left(home).is_none() || !is_bare(&data)) {
        if let Some(problem) = quick_problem(&data) {
            return Some(format!("data.db is damaged: {problem}"));
        }
        return look_effects::lost(home)
            .map(|finding| format!("{}: {}", finding.check, finding.says))
            .or_else(|| look_effects::unfit(home).map(|finding| finding.says))
            .or_else(|| PolicyFile::new(home.join("effects.toml")).trouble());
    }
    let left = left(home)?;
    Some(format!("data.db is missing or empty, but {left} is there"))
}

pub(super) fn bytes(home: &Path, name: &str) -> u64 {
    std::fs::metadata(home.join(name)).map_or(0, |metadata| metadata.len())
}

/// What shows that a home without a store is not a new one.
fn left(home: &Path) -> Option<&'static str> {
    let names = ["broker.db", "effects.db"];
    names.into_iter().find(|name| bytes(home, name) > 0)
}

fn store_findings(home: &Path, with_sync: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    match check_up(&home.join("data.db"), &home.join("blobs"), is_readable) {
        Ok(checkup) => {
            found.push(integrity("data.db", checkup.problem.as_deref()));
            if checkup.problem.is_none() {
                found.push(blobs(&checkup));
                found.push(served(home, &checkup));
                found.extend(dead(&checkup));
                found.extend(damaged(&checkup));
                let meshes = checkup.meshes.iter().filter(|_| with_sync);
                found.extend(meshes.map(sync));
            }
            found.extend(old_files(&checkup));
        }
        Err(error) => found.push(unreadable("data.db", &error)),
    }
    found
}

pub(super) fn fine(check: &str, says: impl Into<String>) -> Finding {
    Finding {
        check: check.to_owned(),
        ok: true,
        says: says.into(),
        next: String::new(),
    }
}

pub(super) fn wrong(check: &str, says: String, next: impl Into<String>) -> Finding {
    Finding {
        check: check.to_owned(),
        ok: false,
        says,
        next: next.into(),
    }
}

fn integrity(file: &str, problem: Option<&str>) -> Finding {
    let Some(problem) = problem else {
        return fine(file, "every page of it was read and is whole");
    };
    let next = match file {
        "data.db" => {
            "Put the last backup back with `heddle daemon restore FILE`. Without one, `heddle down` and `heddle doctor --repair` save what can be read, and keep the damaged file."
        }
        "broker.db" => {
            "Stop with `heddle down` and put the last backup of broker.db in its place with `heddle daemon restore FILE --only broker`; nothing was changed."
        }
        _ => {
            "Stop with `heddle down` and put a copy of effects.db from the last copy of the stopped home in its place; without it nobody can say which effects have happened, so nothing begins it anew by itself."
        }
    };
    wrong(file, format!("it is damaged: {problem}"), next)
}

fn unreadable(file: &str, error: &BackupError) -> Finding {
    wrong(
        file,
        format!("it cannot be looked at: {error}"),
        "See to the disk and the rights of the home folder, then run `heddle doctor` again.",
    )
}

fn blobs(checkup: &Checkup) -> Finding {
    let bad = checkup.blobs_missing + checkup.blobs_damaged;
    if bad > 0 {
        let which: Vec<&str> = checkup
            .blobs_bad
            .iter()
            .take(NAMED_MAX)
            .map(String::as_str)
            .collect();
        let says = format!(
            "of {} large files the bytes of {} are gone from the blob folder and those of {} are not what was shared: {}{}",
            checkup.blobs,
            checkup.blobs_missing,
            checkup.blobs_damaged,
            which.join(", "),
            if bad > which.len() as u64 {
                " and more"
            } else {
                ""
            }
        );
        let next = "Share those files again (`heddle file list` shows them), or put a backup of the folder blobs back.";
        return wrong("blobs", says, next);
    }
    let mut finding = fine(
        "blobs",
        format!(
            "the bytes of all {} large files are here and are what was shared",
            checkup.blobs
        ),
    );
    if checkup.blobs_orphaned > 0 {
        finding.says = format!(
            "{}; {} blobs are nobody's, and the daily sweep takes them away",
            finding.says, checkup.blobs_orphaned
        );
        "`heddle advanced sweep` does it now.".clone_into(&mut finding.next);
    }
    finding
}

/// What the settings do not name is not served, and would be missed by nobody.
fn served(home: &Path, checkup: &Checkup) -> Finding {
    let config = match config(home) {
        Ok(config) => config,
        Err(finding) => return finding,
    };
    let is_named = |name: &str| {
        let mut named = config
            .mesh
            .iter()
            .map(|mesh| &mesh.name)
            .chain(&config.left);
        name == HOME_MESH || named.any(|mesh| mesh.as_str() == name)
    };
    let names = checkup.meshes.iter().map(|mesh| mesh.name.as_str());
    let unnamed: Vec<&str> = names.filter(|name| !is_named(name)).collect();
    if unnamed.is_empty() {
        return fine("meshes", "config.toml names every mesh of the store");
    }
    wrong(
        "meshes",
        format!(
            "the data of mesh {} is in the store, but config.toml does not name it: it is not served, synced, shown or exported",
            unnamed.join(", ")
        ),
        "Put its [[mesh]] back into config.toml (a backup has the file) and restart with `heddle down` and `heddle up`; a mesh that you were invited to comes back with `heddle mesh join LINK`. If it was left on purpose, write left = [\"NAME\"] at the top of config.toml.",
    )
}

fn dead(checkup: &Checkup) -> Option<Finding> {
    (checkup.dead > 0).then(|| {
        wrong(
            "outbox",
            format!(
                "{} messages are dead: they will not go out by themselves",
                checkup.dead
            ),
            "`heddle daemon outbox --failed` shows them and what to do.",
        )
    })
}

fn damaged(checkup: &Checkup) -> Option<Finding> {
    let says = in_words(&checkup.damaged)?;
    Some(wrong(
        "inbox",
        says,
        "`heddle inbox --all` marks them and names their senders, who can send them again; `heddle inbox --ack` takes them off this list.",
    ))
}

fn sync(mesh: &MeshCheck) -> Finding {
    let check = format!("sync of mesh {}", mesh.name);
    if !mesh.is_shared {
        return fine(&check, "its data stays in this home");
    }
    let start =
        "Start with `heddle up`, then `heddle doctor` lists the ops and what to do about them.";
    if mesh.paused {
        let says = "its sync is paused: one op was refused too often".to_owned();
        return wrong(&check, says, start);
    }
    if mesh.needs_resync {
        let says = "the broker's log has a gap; data of others may be missing here".to_owned();
        return wrong(
            &check,
            says,
            "Ask whoever runs the broker; the log must be whole.",
        );
    }
    if mesh.quarantined > 0 {
        let says = format!("{} ops from elsewhere were set aside", mesh.quarantined);
        return wrong(&check, says, start);
    }
    fine(
        &check,
        format!(
            "{} changes wait to be sent, {} wait for what they are about",
            mesh.out_waiting, mesh.parked
        ),
    )
}

fn old_files(checkup: &Checkup) -> Option<Finding> {
    let first = checkup.old_files.first()?;
    let mut finding = fine(
        "old files",
        format!(
            "{} older files of the store lie beside it, such as {}",
            checkup.old_files.len(),
            first.display()
        ),
    );
    "Move them away when you have looked at them; nothing needs them."
        .clone_into(&mut finding.next);
    Some(finding)
}

/// The file system that a home lies on.
fn around(home: &Path) -> std::io::Result<FileSystem> {
    let stat = rustix::fs::statvfs(home)?;
    Ok(FileSystem {
        size: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

fn disk(home: &Path) -> Finding {
    let free = match around(home) {
        Ok(around) => around.free,
        Err(error) => return wrong("disk", error.to_string(), "Check the disk."),
    };
    let mb = free >> 20;
    if free < FREE_BYTES_MIN {
        let next = "Free some space on this disk; `heddle daemon outbox prune --older-than 0s --confirm` gives back what messages hold that will not be sent any more.";
        return wrong(
            "disk",
            format!("only {mb} MB are free; {}", held(home)),
            next,
        );
    }
    fine("disk", format!("{mb} MB are free"))
}

/// What holds the room of a home, the largest first.
fn held(home: &Path) -> String {
    let folder = |name: &str| {
        let files = std::fs::read_dir(home.join(name)).into_iter().flatten();
        let files = files.filter_map(|file| file.ok()?.metadata().ok());
        files.map(|file| file.len()).sum::<u64>()
    };
    let with_log = |name: &str| bytes(home, name) + bytes(home, &format!("{name}-wal"));
    let mut held = [
        ("data.db (messages, memory, files)", with_log("data.db")),
        (
            "broker.db (the history of its meshes)",
            with_log("broker.db"),
        ),
        ("the logs", folder("logs")),
    ];
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let held = held.map(|(name, bytes)| format!("{name} {} MB", bytes.div_ceil(1 << 20)));
    format!("of this home {}", held.join(", "))
}

/// Everything in the home but what a person has written there is for its owner alone (LF-37).
fn modes(home: &Path) -> Finding {
    let mut open = Vec::new();
    walk(home, home, &mut open);
    if open.is_empty() {
        return fine("modes", "nobody else can read the home");
    }
    let names: Vec<&str> = open.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = open.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    wrong(
        "modes",
        format!("others may read or change {}{more}", names.join(", ")),
        format!("Run `chmod -R go= {}`.", home.display()),
    )
}

fn walk(home: &Path, at: &Path, open: &mut Vec<String>) {
    let Ok(metadata) = at.symlink_metadata() else {
        return;
    };
    let name = at.strip_prefix(home).unwrap_or(at);
    if THEIRS.iter().any(|theirs| name == Path::new(theirs)) || metadata.is_symlink() {
        return;
    }
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if metadata.permissions().mode() & 0o077 != 0 || !is_ours {
        let shown = if at == home { home } else { name };
        open.push(shown.display().to_string());
    }
    if metadata.is_dir() {
        for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
            walk(home, &entry.path(), open);
        }
    }
}
