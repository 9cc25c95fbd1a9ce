//! Jobs by hand: `heddle broker sweep`, `orphan-check`, `epoch` and `migrate`, on the tables themselves, beside those
//! who serve them.

use std::num::NonZeroU32;
use std::path::Path;

use heddle_broker::jobs::{self, MeshSwept, Sweep};
use heddle_broker::storage::sqlite::OpenError;
use heddle_broker::storage::{
    AnyStorage, Checked, Log as _, PostgresOptions, Storage as _, StorageError,
};
use heddle_core::clock::WallMs;
use heddle_daemon::config::Config;
use serde::Serialize;

use super::effects;
use super::engine::open_database;
use super::jobs_place::{Errand, Place, found, meshes, send};
use crate::cli::{CliError, Context, exit};
use crate::system::{Runtime, SystemClock};

const NO_MESH: &str = "no mesh is here yet\n";

#[derive(Serialize)]
struct SweepAnswer {
    meshes: Vec<SweptMesh>,
}

#[derive(Serialize)]
struct SweptMesh {
    mesh: String,
    expired: usize,
    pruned: usize,
    uploads: usize,
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
            uploads: swept.uploads,
            counted: swept.counted,
            held_by,
            held_until: held_until.map(WallMs::to_rfc3339),
        }
    }
}

struct SweepAll {
    wanted: Option<String>,
    how: Sweep,
}

impl Errand for SweepAll {
    type Answer = Option<Vec<MeshSwept>>;

    fn writes(&self) -> bool {
        true
    }

    async fn run(self, storage: &AnyStorage) -> Result<Self::Answer, StorageError> {
        let Some(meshes) = meshes(storage, self.wanted.as_deref()).await? else {
            return Ok(None);
        };
        let (clock, ages) = (SystemClock::start(), jobs::Ages::default());
        let swept = jobs::sweep_these(storage, (&clock, &ages), &self.how, meshes);
        swept.await.map(Some)
    }
}

/// `data` is the folder whose config.toml says how long bodies are kept.
pub fn sweep(context: &Context, place: &Place, data: &Path) -> Result<(), CliError> {
    let config = Config::load(&data.join("config.toml"))
        .map_err(|error| CliError::new(exit::USAGE, error.to_string()))?;
    let how = Sweep {
        holder: format!("heddle broker sweep, process {}", std::process::id()),
        message_retention_days: config.broker.message_retention_days.map(NonZeroU32::get),
        dedupe_retention_days: config.broker.dedupe_retention_days.0.days(),
    };
    let wanted = context.mesh.clone();
    let swept = found(context, send(context, place, SweepAll { wanted, how })?)?;
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
                "{}: {} ids forgotten, {} bodies deleted, {} messages counted, {} abandoned uploads thrown away\n",
                mesh.mesh, mesh.expired, mesh.pruned, mesh.counted, mesh.uploads
            ),
        });
    }
    if text.is_empty() {
        text.push_str(NO_MESH);
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

struct CheckAll {
    wanted: Option<String>,
}

impl Errand for CheckAll {
    type Answer = Option<Checked>;

    fn writes(&self) -> bool {
        false
    }

    async fn run(self, storage: &AnyStorage) -> Result<Self::Answer, StorageError> {
        match meshes(storage, self.wanted.as_deref()).await? {
            Some(meshes) => jobs::check_these(storage, meshes).await.map(Some),
            None => Ok(None),
        }
    }
}

pub fn orphan_check(context: &Context, place: &Place) -> Result<(), CliError> {
    let wanted = context.mesh.clone();
    let checked = found(context, send(context, place, CheckAll { wanted })?)?;
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

struct Epochs {
    wanted: Option<String>,
    is_bump: bool,
}

impl Errand for Epochs {
    type Answer = Option<EpochAnswer>;

    fn writes(&self) -> bool {
        self.is_bump
    }

    async fn run(self, storage: &AnyStorage) -> Result<Self::Answer, StorageError> {
        let Some(wanted) = meshes(storage, self.wanted.as_deref()).await? else {
            return Ok(None);
        };
        let mut meshes = Vec::new();
        for (mesh, name) in wanted {
            let epoch = if self.is_bump {
                storage.bump_epoch(mesh).await?
            } else {
                storage.epoch(mesh).await?
            };
            let mesh = name.to_string();
            meshes.push(EpochRow { mesh, epoch });
        }
        Ok(Some(EpochAnswer { meshes }))
    }
}

/// Shows the epochs; begins a new one first where that is asked for.
pub fn epoch(context: &Context, place: &Place, is_bump: bool) -> Result<(), CliError> {
    let wanted = context.mesh.clone();
    let answer = found(context, send(context, place, Epochs { wanted, is_bump })?)?;
    context.print(&answer, |answer| {
        if answer.meshes.is_empty() {
            return NO_MESH.to_owned();
        }
        let lines = answer.meshes.iter();
        lines
            .map(|row| format!("{}: epoch {}\n", row.mesh, row.epoch))
            .collect()
    })
}

#[derive(Serialize)]
struct MigrateAnswer {
    from: i64,
    to: i64,
}

/// Brings the tables of a database up to date, as a start would.
pub fn migrate(context: &Context, options: &PostgresOptions) -> Result<(), CliError> {
    let runtime =
        Runtime::single().map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    let migrated = runtime.run(async {
        let storage = open_database(options).await?;
        let migrated = storage.migrated();
        let effects = effects::migrate(&storage, &options.schema).await;
        storage.stop().await;
        effects.map(|()| migrated)
    })?;
    let answer = MigrateAnswer {
        from: migrated.from,
        to: migrated.to,
    };
    context.print(&answer, |answer| match (answer.from, answer.to) {
        (0, to) => format!("the tables were made, version {to}\n"),
        (from, to) if from == to => format!("the tables are up to date, version {to}\n"),
        (from, to) => format!("the tables were brought from version {from} to {to}\n"),
    })
}

fn check_text(answer: &CheckAnswer) -> String {
    let mut text = match answer.checked {
        1 => "1 row checked, ".to_owned(),
        count => format!("{count} rows checked, "),
    };
    if answer.orphans.is_empty() {
        text.push_str("no orphans\n");
        return text;
    }
    text.push_str(&match answer.orphans.len() {
        1 => "1 orphan:\n".to_owned(),
        count => format!("{count} orphans:\n"),
    });
    for orphan in &answer.orphans {
        text.push_str(&format!("  {}: {}\n", orphan.problem, orphan.row));
    }
    text.push_str("  next: keep a copy of the tables as they are, then report these lines.\n");
    text
}

/// An exit code whose words have been printed already.
fn told(code: u8) -> CliError {
    CliError {
        code,
        ..CliError::quiet()
    }
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
    if let OpenError::NewerSchema { found, .. } = error {
        let message = format!("{}: {error}; nothing was changed", path.display());
        let next = heddle_daemon::upkeep::newer_next("broker.db", *found);
        return CliError::new(exit::REFUSED, message).next(next);
    }
    let home = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match error {
        OpenError::Foreign { .. } => {
            return CliError::new(exit::FAILED, format!("{}: {error}", path.display()))
                .next(heddle_daemon::upkeep::foreign_next(home, &name));
        }
        OpenError::Symlink { .. } | OpenError::NotAFile { .. } => {
            return CliError::new(exit::FAILED, format!("{error}; nothing was changed"))
                .next(heddle_daemon::upkeep::not_a_file_next(home, &name));
        }
        _ => {}
    }
    CliError::new(exit::FAILED, format!("{}: {error}", path.display())).next(
        "Nothing was changed. On a full disk free some space. If it is locked, a daemon or a broker is busy there: \
         try again in a moment, or stop it first (`heddle down`, or Ctrl-C in the terminal of `heddle broker serve`).",
    )
}
