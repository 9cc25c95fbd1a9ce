//! Shared files beside their rows: reading what is to be shared, streaming what is asked for, carrying
//! bytes between homes, and sweeping away what nobody names.

pub(crate) mod fetch;
pub(crate) mod gone;
pub(crate) mod serve;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod sweep;

use heddle_core::error_code::ErrorCode;
use heddle_core::file::ContentHash;
use heddle_store::BlobError;
use heddle_wire::from_wire;
use heddle_wire::problem::Problem;
use tokio::runtime::Handle;

use crate::mesh::MeshState;
use crate::shared::Shared;

/// A read has found the bytes of a file gone or wrong: true where they are fetched again from now on, because others of
/// a mesh may have them.
pub(crate) async fn lost(
    shared: &Shared,
    mesh: &MeshState,
    (hash, size): (ContentHash, u64),
    error: &BlobError,
) -> bool {
    let is_bad = matches!(
        error,
        BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Foreign { .. }
    );
    if !is_bad {
        return false;
    }
    let (store, blobs, runtime) = (
        shared.store.clone(),
        shared.blobs.clone(),
        Handle::current(),
    );
    let marking =
        tokio::task::spawn_blocking(move || runtime.block_on(store.blob_lost(&blobs, hash, size)));
    match marking.await {
        Ok(Ok(Some(true))) => {
            tracing::warn!(%hash, %error, "the content of a shared file is damaged; it is fetched again");
            mesh.fetch.wake();
            true
        }
        Ok(Ok(Some(false))) => {
            shared.gone.note(&shared.blobs, hash);
            false
        }
        Ok(Ok(None)) => false,
        Ok(Err(error)) => {
            tracing::warn!(%error, "a damaged file could not be marked to be fetched again");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "a damaged file could not be marked to be fetched again");
            false
        }
    }
}

/// The door's view of a blob that could not be kept.
pub(crate) fn keep_problem(error: &BlobError) -> Problem {
    let detail = error.to_string();
    match error {
        BlobError::Full => Problem::new(ErrorCode::InsufficientStorage, detail),
        BlobError::TooLarge => Problem::new(ErrorCode::PayloadTooLarge, detail)
            .next("Share it in parts; nothing was kept and no id was consumed."),
        BlobError::Source(_) => from_wire::invalid(detail)
            .next("Check that the file can be read to its end, then share it again."),
        BlobError::Foreign { .. } => Problem::new(ErrorCode::StorageUnavailable, detail)
            .next("Look at the folder blobs of the home and move away what is not of Heddle."),
        BlobError::Poisoned(_) => Problem::new(ErrorCode::StorageUnavailable, detail),
        BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Io { .. } => {
            Problem::new(ErrorCode::Internal, detail)
        }
    }
}

/// The same for one that could not be read back.
pub(crate) fn read_problem(error: &BlobError) -> Problem {
    match error {
        BlobError::Missing { .. } | BlobError::Damaged { .. } | BlobError::Foreign { .. } => {
            metrics::counter!("heddle_blobs_damaged_total").increment(1);
            tracing::error!(%error, "the content of a shared file is damaged");
            Problem::new(ErrorCode::FileDamaged, error.to_string())
        }
        _ => keep_problem(error),
    }
}
