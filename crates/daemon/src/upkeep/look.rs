//! The doctor's look at the files of a home: sentences, each with one command. It changes nothing.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use heddle_core::names::MeshName;
use heddle_core::pressure::FileSystem;
use heddle_store::{
    Checkup, Condition, MeshCheck, Meshless, Store, check_up, misplaced as misplaced_beside,
    not_a_file, without_home,
};
use heddle_wire::ipc::{DoctorView, Finding};

use super::files::{Beside, LookAtBroker, other_findings, store_finding, unreadable};
use super::{FullDisk, cold_start, look_effects, misplaced, restored, served, steps};
use crate::config::{Config, HOME_MESH};
use crate::inbox::damage::{in_words, is_readable};
use crate::sync::{log_hole_next, set_aside as set_aside_ops};

/// Below this a start may fail for want of space.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// Less than this is not worth a prune.
const PRUNE_WORTH: u64 = 64 << 10;
/// Files with a wrong mode that one finding names.
const NAMED_MAX: usize = 3;
/// What helps with rows that cannot be right.
pub(crate) const SENSELESS_NEXT: &str = "Trying again does not help: `heddle down`, then `heddle doctor --repair` mends \
    what can be mended, names what is lost and keeps the file; or put a backup back with `heddle daemon restore FILE`.";
/// What helps with a row that a disk has changed: its owner may know it better than any log.
pub(crate) const CHANGED_NEXT: &str = "Write it again or delete it, which mends it (a task is mended by its next step); or `heddle down`, \
    then `heddle doctor --repair`, which in a shared mesh brings it back from the others and keeps the file.";
/// What helps with a task of which a step was changed: no step that is taken now can say what that one said.
pub(crate) const TASK_NEXT: &str = "`heddle down`, then `heddle doctor --repair` mends the task: from its row what no log has, \
    from the log of a shared mesh the rest. The damaged file is kept.";
/// What a person writes, and may want others to read.
const THEIRS: [&str; 3] = ["config.toml", "hooks.toml", "hooks"];

/// The verdict on a home in which nothing runs.
pub fn look(home: &Path, broker: LookAtBroker) -> DoctorView {
    let mut findings = vec![Finding {
        check: "daemon".to_owned(),
        ok: true,
        says: "no daemon runs; only the files were looked at".to_owned(),
        next: "`heddle up` starts one.".to_owned(),
    }];
    let is_none = misplaced_beside(&home.join("data.db")).is_none();
    if bytes(home, "data.db") == 0 && left(home).is_none() && is_none {
        findings.extend(misplaced::findings(home));
        findings.extend(config(home).err());
        findings.push(fine(
            "data.db",
            "there is none yet; the first start makes it",
        ));
    } else {
        findings.extend(self::findings(home, Beside::Nobody(broker)));
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

/// What the files say; where no daemon knows better, also how the tables say that the sync stands. Blocks for as long
/// as reading the files takes.
pub fn findings(home: &Path, beside: Beside) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut prunable = 0;
    found.extend(misplaced::findings(home));
    if bytes(home, "data.db") > 0 || misplaced_beside(&home.join("data.db")).is_some() {
        let (findings, bytes) = store_findings(home, beside);
        found.extend(findings);
        prunable = bytes;
    } else if let Some(left) = left(home) {
        found.push(wrong(
            "data.db",
            format!("it is missing or empty, but {left} is there"),
            "Put the last backup back with `heddle daemon restore FILE`. Without one, move broker.db, effects.db and the folder effects away, and `heddle up` begins anew.",
        ));
    }
    found.extend(other_findings(home, beside));
    found.extend(look_effects::findings(home));
    let is_alone = matches!(beside, Beside::Nobody(_));
    let start = is_alone.then(|| FullDisk::for_start(home)).flatten();
    found.push(match start {
        Some(full) => wrong("disk", format!("{full}; {}", held(home)), full.next()),
        None => disk(home, prunable),
    });
    found.push(modes(home));
    found.extend(cold_start::finding(home));
    found
}

pub(super) fn bytes(home: &Path, name: &str) -> u64 {
    std::fs::metadata(home.join(name)).map_or(0, |metadata| metadata.len())
}

/// What shows that a home without a store is not a new one.
pub(super) fn left(home: &Path) -> Option<&'static str> {
    let names = ["broker.db", "effects.db"];
    let is_there = |name: &&str| bytes(home, name) > 0 || not_a_file(&home.join(name)).is_some();
    names.into_iter().find(is_there)
}

/// With the bytes that a prune would give back.
fn store_findings(home: &Path, beside: Beside) -> (Vec<Finding>, u64) {
    let is_alone = matches!(beside, Beside::Nobody(_));
    let data = home.join("data.db");
    let mut found = Vec::new();
    let checkup = match check_up(&data, &home.join("blobs"), is_readable, is_alone) {
        Ok(checkup) => checkup,
        Err(error) => return (vec![unreadable("data.db", &error.to_string())], 0),
    };
    found.push(store_finding(home, &checkup.outlook));
    if checkup.outlook.condition == Condition::Fit {
        found.extend(is_alone.then(|| steps::finding(&data)).flatten());
        found.push(blobs(&checkup));
        found.push(match config(home) {
            Ok(config) => served::finding(&config, &checkup.meshes),
            Err(finding) => finding,
        });
        found.extend(dead(&checkup));
        found.extend(damaged(&checkup));
        found.extend(senseless(&checkup));
        let put_back = restored::read(home).filter(|_| is_alone);
        found.extend(put_back.map(|note| note.finding()));
        let meshes = checkup.meshes.iter().filter(|_| is_alone);
        found.extend(meshes.map(sync));
    }
    found.extend(set_aside(&data));
    found.extend(old_files(&checkup, &data));
    (found, checkup.prunable_bytes)
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
        let next = "What others of a mesh have comes again when it is read (`heddle file get`), or after `heddle down` and `heddle doctor --repair`. Share your own files again (`heddle file list` shows them), or put a backup of the folder blobs back.";
        return wrong("blobs", says, next);
    }
    let mut finding = fine(
        "blobs",
        format!(
            "the bytes of all {} large files are here and are what was shared",
            checkup.blobs
        ),
    );
    if checkup.blobs_wanted > 0 {
        finding.says = format!(
            "{}; {} more are elsewhere, and come as soon as a member who has them is connected",
            finding.says, checkup.blobs_wanted
        );
    }
    if checkup.blobs_orphaned > 0 {
        finding.says = format!(
            "{}; {} blobs are nobody's, and the daily sweep takes them away",
            finding.says, checkup.blobs_orphaned
        );
        "`heddle advanced sweep` does it now.".clone_into(&mut finding.next);
    }
    finding
}

fn dead(checkup: &Checkup) -> Option<Finding> {
    (checkup.dead > 0).then(|| {
        wrong(
            "outbox",
            match checkup.dead {
                1 => "1 message is dead: it will not go out by itself".to_owned(),
                dead => format!("{dead} messages are dead: they will not go out by themselves"),
            },
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

fn senseless(checkup: &Checkup) -> Option<Finding> {
    let mut lines = checkup.senseless.clone();
    lines.extend(checkup.meshless.iter().map(Meshless::in_words));
    let has_home = checkup.meshes.iter().any(|mesh| mesh.name == HOME_MESH);
    let is_begun = !checkup.meshes.is_empty() || !checkup.meshless.is_empty();
    if let (false, true, Ok(home)) = (has_home, is_begun, MeshName::parse(HOME_MESH)) {
        lines.push(without_home(&home));
    }
    let says = lines.join("; ");
    (!says.is_empty()).then(|| wrong("rows of data.db", says, SENSELESS_NEXT))
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
        let next = format!("Start with `heddle up`; then {}", log_hole_next(&mesh.name));
        return wrong(&check, says, next);
    }
    if mesh.quarantined > 0 {
        let says = set_aside_ops(mesh.own_refused, mesh.quarantined);
        let next = if mesh.own_refused > 0 {
            SENSELESS_NEXT
        } else {
            start
        };
        return wrong(&check, says, next);
    }
    if mesh.out_refused > 0 {
        let says = format!(
            "{} of {} changes that wait to be sent were refused by its broker or are damaged; the others do not have them",
            mesh.out_refused, mesh.out_waiting
        );
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

/// As long as it lies there the status says so as well: an inbox that was lost is not to be overlooked.
fn set_aside(data: &Path) -> Option<Finding> {
    let parked = Store::parked_files(data);
    let names: Vec<String> = parked
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    (!names.is_empty()).then(|| {
        wrong(
            "inbox that was set aside",
            format!(
                "the inbox was damaged and began anew; the old file lies at {}",
                names.join(", ")
            ),
            "What the broker still held has come again. Move the file away when you have looked at it; nothing needs it.",
        )
    })
}

fn old_files(checkup: &Checkup, data: &Path) -> Option<Finding> {
    let parked = Store::parked_files(data);
    let mut old = checkup.old_files.clone();
    old.retain(|path| !parked.contains(path));
    let first = old.first()?;
    let mut finding = fine(
        "old files",
        format!(
            "{} older files of the store lie beside it, such as {}",
            old.len(),
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

/// `prunable`: what a prune would give back. It gives it back to the store, whose file does not shrink by it.
fn disk(home: &Path, prunable: u64) -> Finding {
    let free = match around(home) {
        Ok(around) => around.free,
        Err(error) => return wrong("disk", error.to_string(), "Check the disk."),
    };
    let mb = free >> 20;
    if free < FREE_BYTES_MIN {
        let next = if prunable < PRUNE_WORTH {
            "Free some space on this disk, or give the home a larger one; a prune would give nothing back.".to_owned()
        } else {
            format!(
                "Free some space on this disk. `heddle daemon outbox prune --older-than 0s` says what it would give back, and with --confirm makes room for {} KB of new messages inside of data.db; the file itself stays as large as it is.",
                prunable >> 10
            )
        };
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
    let folder = |name: &str| all_bytes(&home.join(name));
    let with_log = |name: &str| bytes(home, name) + bytes(home, &format!("{name}-wal"));
    let mut held = [
        ("data.db (messages, memory, files)", with_log("data.db")),
        (
            "broker.db (the history of its meshes)",
            with_log("broker.db"),
        ),
        (SHARED, folder("blobs")),
        ("the logs", folder("logs")),
    ];
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let frees = if held[0].0 == SHARED {
        "; `heddle file list` shows what is shared, and what is deleted (`heddle file delete`) is given back by `heddle advanced sweep`"
    } else {
        ""
    };
    let held = held.map(|(name, bytes)| format!("{name} {}", size(bytes)));
    format!("of this home {}{frees}", held.join(", "))
}

/// What large files lie in.
const SHARED: &str = "blobs (the bytes of large files)";

/// In the unit in which it is a number.
pub(super) fn size(bytes: u64) -> String {
    match bytes.div_ceil(1 << 10) {
        kb if kb < 1 << 10 => format!("{kb} KB"),
        kb => format!("{} MB", kb.div_ceil(1 << 10)),
    }
}

/// Of all files in a folder and below; nothing follows a link.
fn all_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => all_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
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
