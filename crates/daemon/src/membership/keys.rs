//! Key files: one for each mesh, 0600, written once and read at every start.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use heddle_core::clock::Ids;
use heddle_core::ids::MeshId;
use heddle_core::membership::MemberKey;

use crate::home::{create_private_folder, open_private, write_private};

const FOLDER: &str = "keys";
/// A key file is one line.
const FILE_BYTES_MAX: u64 = 1024;

/// Where the key of a mesh lies, relative to the home.
pub(crate) fn file_of(mesh: MeshId) -> PathBuf {
    Path::new(FOLDER).join(format!("{mesh}.key"))
}

/// The key of this mesh; minted, and on disk with its folder before this returns, if there is none.
pub(crate) fn load_or_mint(home: &Path, mesh: MeshId, ids: &dyn Ids) -> std::io::Result<MemberKey> {
    let path = home.join(file_of(mesh));
    match std::fs::symlink_metadata(&path) {
        Ok(_) => return load(&path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    create_private_folder(&home.join(FOLDER))?;
    // The folder's own entry: a key in a folder that is gone after a power cut is gone.
    File::open(home)?.sync_all()?;
    let mut seed = [0; 32];
    ids.fill(&mut seed);
    let key = MemberKey::from_seed(seed);
    write_private(&path, &URL_SAFE_NO_PAD.encode(key.seed()))?;
    Ok(key)
}

/// Never mints: a mesh that was joined knows this home by that very key.
pub(crate) fn load(path: &Path) -> std::io::Result<MemberKey> {
    // Opening would make an empty one.
    std::fs::symlink_metadata(path)?;
    let mut text = String::new();
    let file = open_private(path)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let seed = URL_SAFE_NO_PAD.decode(text.trim()).ok();
    let seed = seed.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    seed.map(MemberKey::from_seed).ok_or_else(|| {
        std::io::Error::other("not a key; put the file back from a backup, or move it away")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use heddle_core::clock::ManualIds;
    use ulid::Ulid;

    use super::*;

    #[test]
    fn lf_37_a_key_is_minted_once_private_and_never_replaced_in_silence() {
        let home = tempfile::tempdir().unwrap();
        let (mesh, ids) = (MeshId(Ulid(1)), ManualIds::seeded(1));
        let first = load_or_mint(home.path(), mesh, &ids).unwrap();
        let again = load_or_mint(home.path(), mesh, &ids).unwrap();
        assert_eq!(first.public(), again.public());
        let other = load_or_mint(home.path(), MeshId(Ulid(2)), &ids).unwrap();
        assert_ne!(first.public(), other.public());
        let path = home.path().join(file_of(mesh));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        for damaged in ["", "short", &"A".repeat(60)] {
            std::fs::write(&path, damaged).unwrap();
            assert!(
                load_or_mint(home.path(), mesh, &ids).is_err(),
                "{damaged:?}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert!(load(&path).is_err());
        assert!(!path.exists(), "looking made no file");
    }
}
