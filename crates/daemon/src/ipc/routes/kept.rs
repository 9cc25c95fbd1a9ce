//! `/v1/mesh/{kept,take-back}` and `/v1/doctor/let-be`: what a log has lost goes back to the home that made it.
//!
//! A home gives out what it has of others, a person carries it, and the home that made it sends it again as its
//! own. Nobody else can: a stamp in another's name is set aside everywhere.

use std::sync::Arc;

use axum::extract::{Request, State};
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::RESPONSE_BYTES_MAX;
use heddle_core::op::DataOp;
use heddle_store::{KeptBy, KeptCursor};
use heddle_wire::from_wire;
use heddle_wire::ipc::{DoctorAnswer, KeptPage, ResumeBody, TakeBackAnswer, TakeBackBody};
use heddle_wire::problem::Problem;

use super::sync::DumpQuery;
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;

/// Of a page's bytes; in an answer every quote of an op is escaped.
const OPS_BYTES_MAX: usize = RESPONSE_BYTES_MAX / 4;

pub(super) async fn list(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let query: DumpQuery = body::query(&request.into_parts().0)?;
    let mesh = ipc.shared.mesh(query.mesh.as_deref())?;
    let mut after = match query.cursor.as_deref() {
        None => Some(KeptCursor::default()),
        Some(text) => Some(
            cursor_of(text)
                .ok_or_else(|| from_wire::invalid("the cursor is not one of ours".to_owned()))?,
        ),
    };
    let (lost, by) = (mesh.sync.kept().lost, KeptBy::Others(mesh.mesh.member));
    let (mut ops, mut bytes) = (Vec::new(), 0);
    while let Some(cursor) = after.take_if(|_| bytes < OPS_BYTES_MAX && !lost.is_empty()) {
        let store = &ipc.shared.store;
        let found = store
            .kept_ops(mesh.mesh.mesh, by, lost.clone(), cursor)
            .await;
        let found = found.map_err(|error| store_problem(&error))?;
        for op in &found.ops {
            let line = op.to_bytes().ok().and_then(|op| String::from_utf8(op).ok());
            let line = line.ok_or_else(|| {
                Problem::new(ErrorCode::Internal, "a row of this home makes no op")
            })?;
            bytes += line.len();
            ops.push(line);
        }
        after = found.next;
    }
    let more = after.filter(|_| !lost.is_empty());
    ok(&KeptPage {
        mesh: mesh.mesh.name.to_string(),
        mesh_id: mesh.mesh.mesh.to_string(),
        ops,
        cursor: more.map(|cursor| cursor_text(&cursor)),
    })
}

pub(super) async fn take_back(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: TakeBackBody = body::read(&parts, incoming).await?;
    let mut meshes = ipc.shared.meshes.iter();
    let mesh = meshes.find(|mesh| mesh.mesh.mesh.to_string() == asked.mesh_id);
    let mesh = mesh.ok_or_else(|| {
        Problem::new(
            ErrorCode::UnknownMesh,
            "what was kept is of a mesh that this home is not in",
        )
        .next("`heddle mesh list` shows the meshes of this home; join it first, or take the file to the home that made the changes.")
    })?;
    let mut ops = Vec::new();
    for (number, line) in asked.ops.iter().enumerate() {
        let op = DataOp::parse(line.as_bytes()).map_err(|error| {
            from_wire::invalid(format!("change {} is none: {error}", number + 1))
                .next("Make the file anew with `heddle mesh give-back`; nothing was changed.")
        })?;
        ops.push(op);
    }
    let lost = mesh.sync.kept().lost;
    let now = ipc.shared.clock.wall();
    let (id, own) = (mesh.mesh.mesh, mesh.mesh.member);
    let taken = ipc.shared.store.take_back(id, own, lost, ops, now).await;
    let taken = taken.map_err(|error| store_problem(&error))?;
    mesh.sync.wake();
    ok(&TakeBackAnswer {
        duplicate: false,
        mesh: mesh.mesh.name.to_string(),
        taken: taken.queued,
        known: taken.known,
        of_others: taken.of_others,
    })
}

pub(super) async fn let_be(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let asked: ResumeBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(Some(&asked.mesh))?;
    let lost = mesh.sync.kept().lost;
    let let_be = ipc.shared.store.let_be(mesh.mesh.mesh, lost).await;
    let changed = let_be.map_err(|error| store_problem(&error))? > 0;
    mesh.sync.forget_kept();
    ok(&DoctorAnswer {
        duplicate: false,
        mesh: mesh.mesh.name.to_string(),
        changed,
        says: if changed {
            "what its log has lost stays in this home and is told no more; whoever joins does not get it"
        } else {
            "its log has lost nothing that this home knows of"
        }
        .to_owned(),
    })
}

/// What to do about changes that the log has lost.
pub(super) fn next(mesh: &MeshState) -> String {
    let name = &mesh.mesh.name;
    format!(
        "`heddle mesh give-back --out FILE --mesh {name}` writes them into a file; `heddle mesh take-back FILE` in each home that made some sends them again. Homes that are gone for good: `heddle mesh give-back --let-be --mesh {name}`."
    )
}

fn cursor_text(cursor: &KeptCursor) -> String {
    let bytes = cursor.through.iter().map(|byte| format!("{byte:02x}"));
    format!("{}.{}", cursor.table, bytes.collect::<String>())
}

fn cursor_of(text: &str) -> Option<KeptCursor> {
    let (table, hex) = text.split_once('.')?;
    let is_hex = hex.len() % 2 == 0 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pairs = hex.as_bytes().chunks(2);
    let through = pairs.map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    Some(KeptCursor {
        table: table.parse().ok()?,
        through: through.collect::<Option<_>>().filter(|_| is_hex)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_is_one() {
        for cursor in [
            KeptCursor::default(),
            KeptCursor {
                table: 3,
                through: vec![0, 255, 16],
            },
        ] {
            assert_eq!(cursor_of(&cursor_text(&cursor)), Some(cursor));
        }
        for bad in ["", "1", "x.00", "1.0", "1.zz", "1.+1", "-1.00"] {
            assert_eq!(cursor_of(bad), None, "{bad}");
        }
    }
}
