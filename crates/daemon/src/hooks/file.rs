//! Whether a hook's file may be run: our own regular executable, which nobody else can write.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Program,
}

/// Looks at the folder and the file in it, following no link. Nobody else can exchange the file behind
/// our back, because nobody else can write the folder.
pub(super) fn may_run(folder: &Path, program: &Path) -> Result<(), String> {
    for (path, kind, what) in [
        (folder, Kind::Folder, "the folder hooks"),
        (program, Kind::Program, "its file"),
    ] {
        let metadata = std::fs::symlink_metadata(path)
            .map_err(|error| format!("{what} cannot be looked at: {error}"))?;
        may_be_trusted(&metadata, kind).map_err(|why| format!("{what}: {why}"))?;
    }
    Ok(())
}

pub(super) fn may_be_trusted(metadata: &Metadata, kind: Kind) -> Result<(), String> {
    let is_right_kind = match kind {
        Kind::Folder => metadata.is_dir(),
        Kind::File | Kind::Program => metadata.is_file(),
    };
    if !is_right_kind {
        return Err(match kind {
            Kind::Folder => "it is not a folder (a link is none); make one",
            _ => "it is not a regular file (a link is none); put the file itself there",
        }
        .to_owned());
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user; make it yours with chown".to_owned());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("others can write it; run chmod go-w on it".to_owned());
    }
    if kind == Kind::Program && metadata.mode() & 0o100 == 0 {
        return Err("it is not executable; run chmod u+x on it".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn only_a_private_executable_of_our_own_may_run() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("hooks");
        std::fs::create_dir(&folder).unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        set(&folder, 0o755);
        let program = folder.join("on-dm");
        assert!(may_run(&folder, &program).is_err(), "there is none");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        for (mode, word) in [
            (0o600, "executable"),
            (0o720, "others"),
            (0o702, "others"),
            (0o777, "others"),
        ] {
            set(&program, mode);
            let why = may_run(&folder, &program).unwrap_err();
            assert!(why.contains(word), "{mode:o}: {why}");
        }
        set(&program, 0o755);
        assert_eq!(may_run(&folder, &program), Ok(()));
        let link = folder.join("on-message");
        symlink(&program, &link).unwrap();
        assert!(may_run(&folder, &link).unwrap_err().contains("link"));
        set(&folder, 0o777);
        assert!(may_run(&folder, &program).unwrap_err().contains("folder"));
    }
}
