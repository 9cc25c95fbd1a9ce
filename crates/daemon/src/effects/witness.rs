//! What the authorities of other meshes have proven to this home: shown to them with the next call, so that one whose
//! store was put back is noticed by whoever knows more than it does.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use heddle_core::ids::MeshId;

use crate::home::write_private;

/// Far more than a proof has.
const PROOF_BYTES_MAX: u64 = 512;

#[derive(Debug)]
pub(super) struct Witness {
    folder: PathBuf,
    held: Mutex<HashMap<MeshId, Option<String>>>,
}

impl Witness {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            held: Mutex::default(),
        }
    }

    fn file(&self, mesh: MeshId) -> PathBuf {
        self.folder.join(format!("{mesh}.seen"))
    }

    pub(super) fn seen(&self, mesh: MeshId) -> Option<String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held.entry(mesh).or_insert_with(|| read(&self.file(mesh)));
        known.clone()
    }

    /// One that cannot be kept costs a witness, and nothing else.
    pub(super) fn keep(&self, mesh: MeshId, proof: Option<String>) {
        let Some(proof) = proof else {
            return;
        };
        let is_known = self.seen(mesh).as_ref() == Some(&proof);
        if is_known || proof.len() as u64 > PROOF_BYTES_MAX {
            return;
        }
        if let Err(error) = write_private(&self.file(mesh), &proof) {
            tracing::warn!(%mesh, %error, "what the mesh's authority has proven could not be kept");
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(mesh, Some(proof));
    }
}

fn read(file: &Path) -> Option<String> {
    let about = std::fs::symlink_metadata(file).ok()?;
    if !about.is_file() || about.len() > PROOF_BYTES_MAX {
        return None;
    }
    crate::home::read_plain(file).ok()
}
