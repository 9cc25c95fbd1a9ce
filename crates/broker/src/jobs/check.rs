//! The orphan check over every mesh of a store.

use heddle_core::ids::MeshId;
use heddle_core::names::MeshName;

use crate::storage::{Checked, Orphan, Storage, StorageError};

/// Looks at every row of the effects; names each row that lacks another, or is another than was accepted. Writes
/// nothing.
pub async fn orphan_check<S: Storage>(storage: &S) -> Result<Checked, StorageError> {
    let checked = check_these(storage, storage.meshes().await?).await?;
    metrics::counter!("heddle_broker_dedupe_orphan_check_total").increment(1);
    let found = u32::try_from(checked.orphans.len()).unwrap_or(u32::MAX);
    metrics::gauge!("heddle_broker_dedupe_orphan_found").set(f64::from(found));
    Ok(checked)
}

/// The same for some of the meshes.
pub async fn check_these<S: Storage>(
    storage: &S,
    meshes: Vec<(MeshId, MeshName)>,
) -> Result<Checked, StorageError> {
    let mut checked = Checked::default();
    for (mesh, name) in meshes {
        checked.row_count += storage.effect_rows(mesh).await?;
        let mut orphans = storage.orphan_check(mesh).await?;
        for one in super::contents::check(storage, mesh).await? {
            // The tables may have told of the same message by another name.
            let is_told = orphans
                .iter()
                .any(|told| told.problem == one.problem && one.row.ends_with(&told.row));
            if !is_told {
                orphans.push(one);
            }
        }
        checked
            .orphans
            .extend(orphans.into_iter().map(|orphan| Orphan {
                problem: orphan.problem,
                row: format!("{name}: {}", orphan.row),
            }));
    }
    Ok(checked)
}
