//! Payloads too large for a line: content-addressed files, written and synced before the record that names them.

use sha2::{Digest, Sha256};

use crate::disk::{Disk, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::{BLOB_BYTES_MAX, is_sha256};
use crate::layout::Layout;

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Of the first piece, and of both together, in one pass.
pub(crate) fn sha256_hex_two(first: &[u8], second: &[u8]) -> [String; 2] {
    let mut hash = Sha256::new();
    hash.update(first);
    let of_first = hash.clone().finalize();
    hash.update(second);
    [hex(&of_first), hex(&hash.finalize())]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a blob once; when this returns it survives a power cut under its name.
pub(crate) fn put(disk: &dyn Disk, layout: &Layout, bytes: &[u8]) -> Result<String, JournalError> {
    if bytes.len() > BLOB_BYTES_MAX {
        return Err(JournalError::Refused(format!(
            "the payload has {} bytes; the most is {BLOB_BYTES_MAX}",
            bytes.len()
        )));
    }
    let sha256 = sha256_hex(bytes);
    let path = layout.blob(&sha256);
    // One that is there may be the orphan of a power cut, so it is read before it is believed; and its
    // writer may have died before its name was synced, so the folders are synced again.
    if read_if_there(disk, &path, BLOB_BYTES_MAX as u64)
        .at(&path)?
        .as_deref()
        == Some(bytes)
    {
        disk.sync(&path).at(&path)?;
        return sync_folders(disk, layout, &sha256).map(|()| sha256);
    }
    let folder = layout.blobs().join(&sha256[..2]);
    disk.create_dir(&folder).at(&folder)?;
    replace(disk, &path, bytes, true).at(&path)?;
    sync_folders(disk, layout, &sha256)?;
    Ok(sha256)
}

fn sync_folders(disk: &dyn Disk, layout: &Layout, sha256: &str) -> Result<(), JournalError> {
    for folder in [
        layout.blobs().join(&sha256[..2]),
        layout.blobs(),
        layout.events(),
    ] {
        disk.sync_dir(&folder).at(&folder)?;
    }
    Ok(())
}

/// The bytes behind a reference. Missing or other bytes are an error, never silence (JN-25).
pub(crate) fn get(disk: &dyn Disk, layout: &Layout, sha256: &str) -> Result<Vec<u8>, String> {
    if !is_sha256(sha256) {
        return Err("the payload_ref is no SHA-256".to_owned());
    }
    let path = layout.blob(sha256);
    let bytes = disk
        .read(&path, BLOB_BYTES_MAX as u64)
        .map_err(|error| format!("blob {sha256}: {error}"))?;
    if sha256_hex(&bytes) == sha256 {
        Ok(bytes)
    } else {
        Err(format!("blob {sha256} holds other bytes"))
    }
}
