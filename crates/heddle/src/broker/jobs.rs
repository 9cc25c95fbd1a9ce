//! Jobs by hand: `heddle broker sweep` and `heddle broker orphan-check`, on the file itself. SQLite lets
//! a second process in, so both work beside a running daemon.

use std::num::NonZeroU32;
use std::path::Path;

use heddle_broker::jobs::{self, MeshSwept, Sweep};
use heddle_broker::storage::sqlite::{OpenError, Options};
use heddle_broker::storage::{Log, SqliteStorage, Storage, StorageError, Upkeep};
use heddle_core::clock::WallMs;
use heddle_daemon::config::Config;
use serde::Serialize;

use crate::cli::{CliError, Context, exit};
use crate::system::SystemClock;

#[derive(Serialize)]
struct SweepAnswer {
    meshes: Vec<SweptMesh>,
}

#[derive(Serialize)]
struct SweptMesh {
    mesh: String,
    expired: usize,
    pruned: usize,
    counted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_until: Option<String>,
}

impl From<MeshSwept> for SweptMesh {
    fn from(swept: MeshSwept) -> Self {
        let (held_by, held_until) = swept.held_by.unzip();
        Self {
            mesh: swept.name.to_string(),
            expired: swept.expired,
            pruned: swept.pruned,
            counted: swept.counted,
            held_by,
            held_until: held_until.map(WallMs::to_rfc3339),
        }
    }
}

pub fn sweep(context: &Context, data: &Path) -> Result<(), CliError> {
    let config = Config::load(&data.join("config.toml"))
        .map_err(|error| CliError::new(exit::USAGE, error.to_string()))?;
    let how = Sweep {
        holder: format!("heddle broker sweep, process {}", std::process::id()),
        message_retention_days: config.broker.message_retention_days.map(NonZeroU32::get),
    };
    let swept = on_storage(context, data, async |storage| {
        jobs::sweep(storage, &SystemClock::start(), &how).await
    })?;
    let answer = SweepAnswer {
        meshes: swept.into_iter().map(SweptMesh::from).collect(),
    };
    context.print(&answer, sweep_text)?;
    if answer.meshes.iter().any(|mesh| mesh.held_by.is_some()) {
        return Err(told(exit::CONFLICT));
    }
    Ok(())
}

fn sweep_text(answer: &SweepAnswer) -> String {
    let mut text = String::new();
    for mesh in &answer.meshes {
        text.push_str(&match (&mesh.held_by, &mesh.held_until) {
            (Some(holder), Some(until)) => format!(
                "{}: {holder} is at it, until {until} at most; try again then\n",
                mesh.mesh
            ),
            _ => format!(
                "{}: {} ids forgotten, {} bodies deleted, {} messages counted\n",
                mesh.mesh, mesh.expired, mesh.pruned, mesh.counted
            ),
        });
    }
    if text.is_empty() {
        text.push_str("no mesh is here yet\n");
    }
    text
}

#[derive(Serialize)]
struct CheckAnswer {
    checked: u64,
    orphans: Vec<OrphanRow>,
}

#[derive(Serialize)]
struct OrphanRow {
    problem: &'static str,
    row: String,
}

pub fn orphan_check(context: &Context, data: &Path) -> Result<(), CliError> {
    let checked = on_storage(context, data, async |storage| {
        jobs::orphan_check(storage).await
    })?;
    let orphans = checked.orphans.into_iter().map(|orphan| OrphanRow {
        problem: orphan.problem,
        row: orphan.row,
    });
    let answer = CheckAnswer {
        checked: checked.row_count,
        orphans: orphans.collect(),
    };
    context.print(&answer, check_text)?;
    if answer.orphans.is_empty() {
        Ok(())
    } else {
        Err(told(exit::FAILED))
    }
}

#[derive(Serialize)]
struct EpochAnswer {
    meshes: Vec<EpochRow>,
}

#[derive(Serialize)]
struct EpochRow {
    mesh: String,
    epoch: u64,
}

/// Shows the epochs; begins a new one first where that is asked for.
pub fn epoch(context: &Context, data: &Path, is_bump: bool) -> Result<(), CliError> {
    let wanted = context.mesh.clone();
    let answer = on_storage(context, data, async |storage| {
        let mut meshes = Vec::new();
        for (mesh, name) in storage.meshes().await? {
            if wanted
                .as_deref()
                .is_some_and(|wanted| wanted != name.as_str())
            {
                continue;
            }
            let epoch = if is_bump {
                storage.bump_epoch(mesh).await?
            } else {
                storage.epoch(mesh).await?
            };
            let mesh = name.to_string();
            meshes.push(EpochRow { mesh, epoch });
        }
        Ok(EpochAnswer { meshes })
    })?;
    if answer.meshes.is_empty()
        && let Some(name) = &context.mesh
    {
        let message = format!("no mesh here is called {name:?}");
        return Err(CliError::new(exit::NOT_FOUND, message)
            .next("`heddle broker epoch` without --mesh shows all of them."));
    }
    context.print(&answer, |answer| {
        let lines = answer.meshes.iter();
        lines
            .map(|row| format!("{}: epoch {}\n", row.mesh, row.epoch))
            .collect()
    })
}

fn check_text(answer: &CheckAnswer) -> String {
    let mut text = format!("{} rows checked, ", answer.checked);
    if answer.orphans.is_empty() {
        text.push_str("no orphans\n");
        return text;
    }
    text.push_str(&format!("{} orphans:\n", answer.orphans.len()));
    for orphan in &answer.orphans {
        text.push_str(&format!("  {}: {}\n", orphan.problem, orphan.row));
    }
    text.push_str("  next: keep a copy of broker.db as it is, then report these lines.\n");
    text
}

/// An exit code whose words have been printed already.
fn told(code: u8) -> CliError {
    CliError {
        code,
        ..CliError::quiet()
    }
}

pub(super) fn on_storage<T>(
    context: &Context,
    data: &Path,
    job: impl AsyncFnOnce(&SqliteStorage) -> Result<T, StorageError>,
) -> Result<T, CliError> {
    let path = data.join("broker.db");
    if !path.is_file() {
        return Err(CliError::new(
            exit::NOT_FOUND,
            format!("there is no broker.db in {}", data.display()),
        )
        .next(
            "Name the folder with --data: a home, or the data folder of `heddle broker serve`.",
        ));
    }
    let options = Options {
        durability: context.durability()?,
        ..Options::new(&path)
    };
    let storage = SqliteStorage::open(options).map_err(|error| cannot_open(&path, &error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    let done = runtime.block_on(job(&storage));
    let damage = storage.is_poisoned();
    storage.stop();
    done.map_err(|error| match damage {
        Some(why) => damaged(&path, &why),
        None => CliError::new(exit::FAILED, format!("{}: {error}", path.display()))
            .next("If a daemon or a broker is busy there, try again in a moment."),
    })
}

/// A broker's file whose content is wrong. Trying again does not help, and nothing destructive comes first.
pub fn damaged(path: &Path, why: &str) -> CliError {
    CliError::new(
        exit::FAILED,
        format!("{} is damaged: {why}; nothing was changed", path.display()),
    )
    .next(
        "Stop whoever uses it (`heddle down`, or Ctrl-C in the terminal of `heddle broker serve`), keep a copy of it, \
         and put the last backup in its place. Without one, move it away: the next start makes a new one, and what \
         was accepted but not yet delivered is only in the copy.",
    )
}

/// Why the broker's file cannot be opened, and what helps.
pub fn cannot_open(path: &Path, error: &OpenError) -> CliError {
    if let OpenError::Damaged(why) = error {
        return damaged(path, why);
    }
    CliError::new(exit::FAILED, format!("{}: {error}", path.display())).next(
        "Nothing was changed. On a full disk free some space. If it is locked, a daemon or a broker is busy there: \
         try again in a moment, or stop it first (`heddle down`, or Ctrl-C in the terminal of `heddle broker serve`).",
    )
}
