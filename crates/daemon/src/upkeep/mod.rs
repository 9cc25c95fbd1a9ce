//! Looking after a home's files: copies, putting them back, repairing, and the doctor's verdict.
//!
//! The functions that take a [`Home`] are for a home in which no daemon runs: its lock is the proof.

mod brokers;
mod cold_start;
mod companions;
mod files;
mod full_disk;
mod look;
pub(crate) mod look_effects;
mod misplaced;
pub(crate) mod restored;
mod served;
mod steps;
pub(crate) mod unreadable;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::names::{MemberName, MeshName, NameError};
use heddle_store::{
    BackedUp, BackupError, Blobs, Compacted, Look, MeshHint, RepairHints, Repaired, Restored,
    SaidOfModel, compact_database,
};
use heddle_wire::ipc::{BackupView, KeptTable, RepairView, RestoreView};

pub(crate) use brokers::SETTINGS_NEXT;
pub use brokers::broker_findings;
pub use files::{
    BROKER_BEYOND, BROKER_DAMAGED, Beside, LookAtBroker, Trouble, newer_next, trouble,
};
pub use full_disk::FullDisk;
pub use heddle_store::{Steps, Undone};
pub(crate) use look::{CHANGED_NEXT, SENSELESS_NEXT, TASK_NEXT};
pub use look::{findings, look};
pub use misplaced::{
    Misplaced, first_in as first_misplaced_in, first_of as first_misplaced, foreign_next,
    not_a_file_next,
};
pub(crate) use served::Unserved;
pub use steps::{StepsNow, steps_now};

use companions::Taken;

use crate::config::{Config, HOME_MESH};
use crate::home::Home;

/// A copy of a home in which nothing runs.
pub fn back_up(home: &Home, to: &Path) -> Result<BackupView, BackupError> {
    let blobs = Blobs::open(&home.blobs())?;
    back_up_home(home.path(), &blobs, to)
}

/// A copy of a home: its companions first, so that a `FILE` that is there has all that belongs to it.
pub(crate) fn back_up_home(
    home: &Path,
    blobs: &Blobs,
    to: &Path,
) -> Result<BackupView, BackupError> {
    // What is there is not ours to take away again.
    if to.symlink_metadata().is_ok() {
        let path = to.to_owned();
        return Err(BackupError::Exists { path });
    }
    let mut taken = companions::take(home, to)?;
    match heddle_store::back_up(&home.join("data.db"), blobs, to) {
        Ok(made) => {
            taken.finish();
            Ok(backup_view(made, taken))
        }
        Err(error) => {
            taken.undo();
            Err(error)
        }
    }
}

/// The files of a home in which nothing runs, written anew without the room of what was deleted.
pub fn compact(home: &Home) -> Result<Vec<Compacted>, BackupError> {
    let files = ["data.db", "broker.db"].map(|name| home.path().join(name));
    let there = files.iter().filter(|path| path.exists());
    there.map(|path| compact_database(path)).collect()
}

/// Puts a copy back; the present file is kept beside it.
pub fn restore(home: &Home, from: &Path, now: WallMs) -> Result<RestoreView, BackupError> {
    let blobs = Blobs::open(&home.blobs())?;
    heddle_store::check_backup(from)?;
    // Before the store: a home that has a broker and no store yet is refused by a start, and restored again.
    let with = companions::put_back(home.path(), from)?;
    let Restored {
        before,
        incarnation,
        blobs,
        missing,
    } = heddle_store::restore(from, &home.data(), &blobs, now)?;
    let view = RestoreView {
        file: from.display().to_string(),
        before: before.map(|path| path.display().to_string()),
        incarnation: Some(incarnation),
        blobs,
        blobs_missing: missing,
        with,
    };
    restored::note(home.path(), &view, now);
    Ok(view)
}

/// Puts the backup's broker in the place of the present one, which is kept beside it. The store stays.
pub fn restore_broker(home: &Home, from: &Path, now: WallMs) -> Result<RestoreView, BackupError> {
    let broker = companions::broker_of(from);
    let before = heddle_store::replace_database(&broker, &home.broker_data(), now)?;
    Ok(RestoreView {
        file: from.display().to_string(),
        before: before.map(|path| path.display().to_string()),
        incarnation: None,
        blobs: 0,
        blobs_missing: 0,
        with: vec!["broker.db".to_owned()],
    })
}

/// Saves what can be read of a damaged store. Nothing is changed where nothing is wrong.
pub fn repair(home: &Home, login: &str, now: WallMs) -> Result<RepairView, BackupError> {
    let blobs = Blobs::open(&home.blobs())?;
    let hints = hints(home, login)?;
    let repaired = heddle_store::repair(&home.data(), &blobs, &hints, now)?;
    let mut view = repaired.map_or_else(RepairView::default, repair_view);
    for file in [home.broker_data(), home.effects_data()] {
        view.logs_lost
            .extend(heddle_store::give_up_lost_log(&file)?);
    }
    view.files_wanted = heddle_store::want_lost_blobs(&home.data(), &blobs)?;
    Ok(view)
}

/// What a repair made of the broker's file.
pub enum BrokerMend {
    /// It is fit, or not used.
    Nothing,
    /// Where the damaged one lies now.
    Mended(PathBuf),
    /// More than a repair mends is damaged, and what that is.
    Beyond(String),
}

/// Mends the broker's file of a home where only its header is damaged, or the list of its free pages.
pub fn mend_broker(
    home: &Home,
    broker: LookAtBroker,
    now: WallMs,
) -> Result<BrokerMend, BackupError> {
    let file = home.broker_data();
    let config = Config::load(&home.path().join("config.toml")).unwrap_or_default();
    let is_used = config.broker.url.is_none() && file.is_file();
    if !is_used {
        return Ok(BrokerMend::Nothing);
    }
    let condition = broker(&file, Look::Wholly);
    let Some(why) = condition.damage() else {
        return Ok(BrokerMend::Nothing);
    };
    match heddle_store::mend_header(&file, broker, now) {
        Err(BackupError::Damaged { .. } | BackupError::Sqlite(_)) => {
            Ok(BrokerMend::Beyond(why.to_owned()))
        }
        mended => Ok(mended?.map_or(BrokerMend::Nothing, BrokerMend::Mended)),
    }
}

/// What the settings know of the meshes, should the store not know them any more.
fn hints(home: &Home, login: &str) -> Result<RepairHints, BackupError> {
    let unnamed = |error: NameError| BackupError::Prepare(error.to_string());
    // `claim_data` leaves the settings alone, and a repair must not fail for them.
    let config = Config::load(&home.path().join("config.toml")).unwrap_or_default();
    let person = match config.daemon.member {
        Some(name) => name,
        None => MemberName::parse(login)
            .or_else(|_| MemberName::parse("me"))
            .map_err(unnamed)?,
    };
    let elsewhere = config.mesh.into_iter().map(|mesh| MeshHint {
        mesh: mesh.id.unwrap_or_else(|| MeshId::named(&mesh.name)),
        name: mesh.name,
        member: mesh.member_id,
        member_name: mesh.member,
        broker_url: Some(mesh.url),
    });
    Ok(RepairHints {
        elsewhere: elsewhere.collect(),
        home: MeshName::parse(HOME_MESH).map_err(unnamed)?,
        person,
        models: vec![SaidOfModel {
            texts: [
                config.vectors.provider.as_str(),
                config.vectors.model_name(),
                config.vectors.version_name(),
            ]
            .map(|text| text.as_bytes().to_vec()),
            dim: config.vectors.dim.map(|dim| dim.get().into()),
        }],
    })
}

/// Undoes the newest step of the schema, if nothing needs it. The lock on the home is the proof that nobody has the
/// file open.
pub fn undo_step(home: &Home, number: u32) -> Result<Undone, BackupError> {
    heddle_store::undo_step(&home.data(), number)
}

/// The latest copy of a store from before it took a step, if one lies beside it.
pub fn copy_before(data: &Path, step: u32) -> Option<PathBuf> {
    let mut copies = heddle_store::copies_before_steps(data).into_iter();
    let (_, path) = copies.rfind(|(next, _)| *next <= step)?;
    Some(path)
}

/// The copy of a store from before it took steps that was made last, and when.
pub fn latest_copy(home: &Path) -> Option<(SystemTime, PathBuf)> {
    let copies = heddle_store::copies_before_steps(&home.join("data.db"));
    let dated = copies.into_iter().filter_map(|(_, copy)| {
        let made = copy.metadata().and_then(|file| file.modified()).ok()?;
        Some((made, copy))
    });
    dated.max()
}

/// Which steps of the schema a store has taken.
pub fn steps(data: &Path) -> Result<Steps, BackupError> {
    heddle_store::steps_of(data)
}

fn backup_view(made: BackedUp, taken: Taken) -> BackupView {
    BackupView {
        file: made.file.display().to_string(),
        bytes: made.bytes,
        blobs: made.blobs,
        blob_bytes: made.blob_bytes,
        blobs_missing: made.missing,
        unreadable: made.unreadable,
        with: taken.with,
        left_out: taken.left_out,
    }
}

fn repair_view(repaired: Repaired) -> RepairView {
    let lost = repaired.tables.iter().any(|kept| !kept.is_whole())
        || repaired.rows.outbox_gone > 0
        || !repaired.rows.from_log.is_empty()
        || !repaired.rows.gone.is_empty();
    RepairView {
        repaired: true,
        lost: lost || repaired.log_lost.is_some(),
        logs_lost: repaired.log_lost.into_iter().collect(),
        step_refused: repaired.step_refused.then(|| repaired.problem.clone()),
        problem: Some(repaired.problem),
        damaged: Some(repaired.damaged.display().to_string()),
        incarnation: Some(repaired.incarnation),
        relisted: repaired.relisted,
        meshes_made: repaired.meshes_made,
        meshes_left: repaired.meshes_left,
        tasks_restated: repaired.tasks.restated,
        tasks_restated_titles: repaired.tasks.restated_titles,
        tasks_from_log: repaired.tasks.from_log,
        tasks_dropped: repaired.tasks.dropped,
        tasks_dropped_titles: repaired.tasks.dropped_titles,
        tasks_stuck: repaired.tasks.stuck,
        broker_damaged: None,
        broker_beyond: None,
        mended: repaired
            .tables
            .iter()
            .flat_map(|kept| kept.mended.clone())
            .collect(),
        unreadable: repaired.unreadable,
        outbox_gone: repaired.rows.outbox_gone,
        brought_back: repaired.rows.brought_back.into_iter().collect(),
        from_log: repaired.rows.from_log.into_iter().collect(),
        gone: repaired.rows.gone.into_iter().collect(),
        sent: repaired.rows.sent,
        nameless_models: repaired.nameless_models,
        unmended: repaired.unmended,
        files_wanted: Vec::new(),
        tables: repaired
            .tables
            .into_iter()
            .map(|kept| KeptTable {
                table: kept.table,
                rows: kept.rows,
                refused: kept.refused,
                gaps: kept.gaps,
            })
            .collect(),
    }
}
