//! Giving bytes of shared files to other members of their mesh, a part at a time, when they ask.

use heddle_core::limits::BLOB_ASKED_MAX;
use heddle_wire::broker::{BlobPlace, PartBytes};
use tokio::sync::mpsc;

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::Shared;

/// A question of another member, under the broker's number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) ask: u64,
    pub(crate) part: BlobPlace,
}

/// As many as a broker of ours has open at once; what a stranger sends beyond is not answered.
pub(crate) fn questions() -> (mpsc::Sender<Ask>, mpsc::Receiver<Ask>) {
    mpsc::channel(BLOB_ASKED_MAX)
}

/// Answers one after the other, until the connection ends.
pub(crate) async fn run(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    mut asks: mpsc::Receiver<Ask>,
) -> String {
    while let Some(Ask { ask, part }) = asks.recv().await {
        let data = read(shared, mesh, part).await;
        let outcome = if data.is_some() { "given" } else { "absent" };
        metrics::counter!("heddle_blob_parts_served_total", "outcome" => outcome).increment(1);
        live.part(ask, data.map(PartBytes)).await;
    }
    "the session ended".to_owned()
}

/// The bytes, if a live file of this very mesh names them and they are here.
async fn read(shared: &Shared, mesh: &MeshState, part: BlobPlace) -> Option<Vec<u8>> {
    let hash = part.sha256;
    let size = match shared.store.blob_shared_in(mesh.mesh.mesh, hash).await {
        Ok(size) => size?,
        Err(error) => {
            tracing::warn!(%error, "a member's question for a file cannot be answered");
            return None;
        }
    };
    let blobs = shared.blobs.clone();
    let read = move || blobs.read_part(hash, size, part.offset, part.length);
    match tokio::task::spawn_blocking(read).await.ok()? {
        Ok(bytes) => Some(bytes).filter(|bytes| !bytes.is_empty()),
        Err(error) => {
            tracing::warn!(%error, "a shared file cannot be given to another member");
            super::lost(shared, mesh, (hash, size), &error).await;
            None
        }
    }
}
