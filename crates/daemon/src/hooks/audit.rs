//! `logs/hooks.jsonl`: a line for every run of a hook, with what happened and none of what was said.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use heddle_core::limits::HOOK_AUDIT_BYTES_MAX;
use serde::Serialize;

use crate::home::{create_log_folder, log_folder, open_private};
use crate::shared::lock;

#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) at: String,
    pub(super) hook: String,
    pub(super) event_id: String,
    pub(super) attempt: u32,
    pub(super) outcome: &'static str,
    pub(super) exit: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) duration_ms: u64,
    pub(super) input_truncated: bool,
    pub(super) output_bytes: u64,
    pub(super) output_truncated: bool,
}

pub(super) struct Audit {
    folder: PathBuf,
    /// One line at a time, and no line in the middle of an exchange of files.
    turn: Mutex<()>,
}

impl Audit {
    pub(super) fn new(home: &Path) -> Self {
        Self {
            folder: log_folder(home),
            turn: Mutex::new(()),
        }
    }

    /// Blocks for the disk.
    pub(super) fn write(&self, line: &Line) -> std::io::Result<()> {
        let _turn = lock(&self.turn);
        create_log_folder(&self.folder)?;
        let path = self.folder.join("hooks.jsonl");
        let mut file = open_private(&path)?;
        let mut end = file.seek(SeekFrom::End(0))?;
        if end >= HOOK_AUDIT_BYTES_MAX {
            std::fs::rename(&path, self.folder.join("hooks.1.jsonl"))?;
            file = open_private(&path)?;
            end = 0;
        }
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        file.seek(SeekFrom::Start(end))?;
        file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_is_bounded_by_two_files() {
        let home = tempfile::tempdir().unwrap();
        let audit = Audit::new(home.path());
        let line = Line {
            at: "2026-01-01T00:00:00Z".to_owned(),
            hook: "on-dm".to_owned(),
            event_id: "1".to_owned(),
            attempt: 1,
            outcome: "ok",
            exit: Some(0),
            signal: None,
            duration_ms: 1,
            input_truncated: false,
            output_bytes: 0,
            output_truncated: false,
        };
        audit.write(&line).unwrap();
        let path = home.path().join("logs/hooks.jsonl");
        let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
        let one = bytes(&path);
        audit.write(&line).unwrap();
        assert_eq!(bytes(&path), 2 * one);
        for _ in 0..2 {
            let file = open_private(&path).unwrap();
            file.set_len(HOOK_AUDIT_BYTES_MAX).unwrap();
            audit.write(&line).unwrap();
            assert_eq!(bytes(&path), one);
        }
        assert_eq!(
            std::fs::read_dir(home.path().join("logs")).unwrap().count(),
            2
        );
    }
}
