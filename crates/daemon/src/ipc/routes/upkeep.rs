//! `/v1/doctor` and `/v1/doctor/backup`: the verdict on the whole home, and a copy of its store while it runs.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_store::BackupError;
use heddle_wire::from_wire;
use heddle_wire::ipc::{BackupBody, DoctorView, Finding};
use heddle_wire::problem::Problem;

use super::status::all_wrong;
use super::sync;
use crate::files::stream;
use crate::inbox::recover;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::outbox::lost;
use crate::shared::{Shared, store_problem};
use crate::standing::with_all;
use crate::upkeep::{self, restored};

pub(super) async fn doctor(State(ipc): State<Arc<Ipc>>) -> Answered {
    let mut findings = vec![store_finding(&ipc.shared)];
    let home = ipc.home.clone();
    let looked =
        tokio::task::spawn_blocking(move || upkeep::findings(&home, upkeep::Beside::Daemon)).await;
    let looked = looked.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    ipc.shared.keep_looked(&looked);
    findings.extend(looked);
    let mut ops = Vec::new();
    let put_back = restored::told(&ipc.shared, &ipc.home).await;
    findings.extend(put_back.map_err(|error| store_problem(&error))?);
    for mesh in &ipc.shared.meshes {
        let sync = sync::view(&ipc.shared, mesh).await?;
        findings.push(sync::finding(mesh, &sync));
        findings.extend(older_finding(&ipc.shared, mesh).await?);
        findings.extend(forgot_finding(&ipc.shared, mesh).await?);
        ops.extend(sync::lost(&ipc.shared, mesh).await?);
        if mesh.is_hosted_here() {
            findings.push(super::mesh::members_finding(&ipc.shared, mesh).await);
        }
        if sync.kind != "personal" {
            ops.extend(sync::stuck(&ipc.shared, mesh).await?);
        }
    }
    let findings = with_all(findings, all_wrong(&ipc).await?);
    ok(&DoctorView {
        ok: findings.iter().all(|finding| finding.ok),
        findings,
        ops,
    })
}

/// A store that is an earlier copy of itself, as the broker of a mesh shows.
async fn older_finding(shared: &Shared, mesh: &MeshState) -> Result<Option<Finding>, Problem> {
    let says = recover::older(shared, mesh).await;
    let says = says.map_err(|error| store_problem(&error))?;
    Ok(says.map(|says| Finding {
        check: format!("store and mesh {}", mesh.mesh.name),
        ok: false,
        says,
        next: recover::OLDER_NEXT.to_owned(),
    }))
}

/// A broker that is an earlier copy of itself, as the answers to this home's own sends show.
async fn forgot_finding(shared: &Shared, mesh: &MeshState) -> Result<Option<Finding>, Problem> {
    let says = lost::said(shared, mesh).await;
    let says = says.map_err(|error| store_problem(&error))?;
    let figures = shared.store.lost_figures(mesh.mesh.mesh).await;
    let figures = figures.map_err(|error| store_problem(&error))?;
    Ok(says.map(|says| Finding {
        check: format!("broker of mesh {}", mesh.mesh.name),
        ok: !says.is_open,
        says: says.words,
        next: lost::next(figures).to_owned(),
    }))
}

fn store_finding(shared: &Shared) -> Finding {
    let poisoned = shared.store.poisoned();
    Finding {
        check: "store".to_owned(),
        ok: poisoned.is_none(),
        next: poisoned
            .as_ref()
            .map_or_else(String::new, |_| "Check the disk, then restart.".to_owned()),
        says: poisoned.map_or_else(
            || "the store takes writes".to_owned(),
            |why| format!("the store takes no writes since a sync failed ({why})"),
        ),
    }
}

pub(super) async fn back_up(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: BackupBody = body::read(&parts, incoming).await?;
    let to = Path::new(&asked.file).to_owned();
    if !to.is_absolute() {
        let problem = from_wire::invalid("the file of a backup is named with its whole path");
        return Err(problem.into());
    }
    let place = Arc::clone(&ipc.load.files).try_acquire_owned();
    let _place = place.map_err(|_| stream::no_place())?;
    let (home, blobs) = (ipc.home.clone(), ipc.shared.blobs.clone());
    let work = move || upkeep::back_up_home(&home, &blobs, &to);
    let made = tokio::task::spawn_blocking(work).await;
    let made = made.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    ok(&made.map_err(|error| problem(&error))?)
}

fn problem(error: &BackupError) -> Problem {
    let code = match error {
        BackupError::Exists { .. } => ErrorCode::NameTaken,
        BackupError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            ErrorCode::InsufficientStorage
        }
        BackupError::Unfinished { .. } | BackupError::Io { .. } => ErrorCode::InvalidRequest,
        BackupError::Damaged { .. } => ErrorCode::StorageUnavailable,
        _ => ErrorCode::Internal,
    };
    let problem = Problem::new(code, error.to_string());
    match error {
        BackupError::Exists { .. } => problem.next("Choose another name; nothing was written."),
        BackupError::Unfinished { .. } => {
            problem.next("Remove it, or choose another name; nothing was written.")
        }
        BackupError::Damaged { .. } => problem.next("`heddle doctor` says what to do."),
        _ => problem,
    }
}
