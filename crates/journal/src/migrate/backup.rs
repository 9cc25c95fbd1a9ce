//! A whole copy of the store before its mode changes.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::action::Mode;
use crate::disk::replace;
use crate::error::{At, JournalError};
use crate::journal::Journal;

const FILE_BYTES_MAX: u64 = 4 << 30;

impl Journal {
    /// Complete when `backup.json` is in it: that comes last.
    pub(super) fn back_up(&self, from: Mode, to: Mode) -> Result<PathBuf, JournalError> {
        let name = format!(
            "{}-{}-to-{}",
            self.world.ids.ulid(),
            from.as_str(),
            to.as_str()
        );
        let root = self.layout.root();
        let target = self.layout.backups().join(name);
        // A link would take the copy to where no redaction comes.
        match self.disk().check_dir(&self.layout.backups()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            checked => checked.at(&self.layout.backups())?,
        }
        let mut folders = vec![target.clone()];
        self.disk().create_dir(&target).at(&target)?;
        let mut files = self.files_below(root)?;
        files.retain(|path| !path.strip_prefix(root).is_ok_and(is_passing));
        let copy_of = |path: &Path| Some(target.join(path.strip_prefix(root).ok()?));
        let copies: Vec<(PathBuf, PathBuf)> = files
            .into_iter()
            .filter_map(|path| copy_of(&path).map(|copy| (path, copy)))
            .collect();
        // Also where it fails half way: what was copied until then stays there.
        self.follow_left(copies.iter().map(|(path, copy)| (&**path, &**copy)))?;
        for (path, copy) in copies {
            if let Some(folder) = copy
                .parent()
                .filter(|f| !folders.contains(&f.to_path_buf()))
            {
                self.disk().create_dir(folder).at(folder)?;
                folders.push(folder.to_owned());
            }
            let bytes = self.disk().read(&path, FILE_BYTES_MAX).at(&path)?;
            self.disk().write(&copy, &bytes).at(&copy)?;
            self.disk().sync(&copy).at(&copy)?;
        }
        let all: Vec<PathBuf> = folders.iter().flat_map(|f| above(f, &target)).collect();
        for folder in all.iter().chain([&self.layout.backups(), &root.to_owned()]) {
            self.disk().sync_dir(folder).at(folder)?;
        }
        let done = target.join("backup.json");
        let text = json!({"v": 1, "from": from, "to": to}).to_string();
        replace(self.disk(), &done, text.as_bytes(), true).at(&done)?;
        Ok(target)
    }
}

/// Not part of a copy: other copies, locks, requests, what was never finished.
fn is_passing(inside: &Path) -> bool {
    let name = inside.file_name().and_then(|n| n.to_str()).unwrap_or("");
    inside.starts_with("backups")
        || inside.starts_with("events/queue")
        || inside.starts_with("events/lock")
        // Of the store, and no part of what it was: a copy of the list says nothing to anybody.
        || inside == Path::new("events/leftovers.json")
        || name.strip_suffix(".tmp").is_some()
        || name.strip_suffix(".lock").is_some()
}

/// A folder and those above it, up to the copy's own.
pub(super) fn above(folder: &Path, top: &Path) -> Vec<PathBuf> {
    let inside = folder.ancestors().take_while(|f| f.starts_with(top));
    inside.map(Path::to_path_buf).collect()
}
