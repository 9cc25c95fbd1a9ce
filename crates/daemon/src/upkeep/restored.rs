//! That this home was put back from a backup: noted beside its store by the restore, or by the sync where the log of a mesh
//! knows changes of this home that its file does not; told by `status` and `doctor`, with what the logs have given back since.

use std::path::Path;

use heddle_core::clock::WallMs;
use heddle_store::StoreError;
use heddle_wire::ipc::{Finding, RestoreView};
use serde::{Deserialize, Serialize};

use super::look::fine;
use crate::home::write_private;
use crate::shared::Shared;

const NAME: &str = "restored.json";
/// After this long it is no news any more; the doctor tells it all the same.
const NEWS_MS: i64 = 7 * 24 * 3600 * 1000;
/// More changes than this are not counted one by one.
const COUNT_MAX: u32 = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    at_ms: i64,
    /// Empty where somebody has put an older file in its place, and it was only noticed.
    file: String,
    /// Where the store of before lies, where there was one.
    before: Option<String>,
    /// The broker of this home came out of the backup as well.
    broker: bool,
}

/// After the restore: a crash before this line leaves a home that was put back and does not say so, and whoever ran it
/// has not been answered.
pub(super) fn note(home: &Path, view: &RestoreView, now: WallMs) {
    let note = Note {
        at_ms: now.0,
        file: view.file.clone(),
        before: view.before.clone(),
        broker: view.with.iter().any(|name| name == "broker.db"),
    };
    write(home, &note);
}

/// A log has given this home changes of its own that it does not know of: its file is older than they are. A note that is
/// news still says why already.
pub(crate) fn notice(home: &Path, now: WallMs) {
    if read(home).is_some_and(|note| note.is_news(now)) {
        return;
    }
    tracing::warn!("the log has changes of this home that its data.db does not know");
    write(
        home,
        &Note {
            at_ms: now.0,
            file: String::new(),
            before: None,
            broker: false,
        },
    );
}

fn write(home: &Path, note: &Note) {
    let text = serde_json::to_string(note).unwrap_or_default();
    if let Err(error) = write_private(&home.join(NAME), &text) {
        tracing::warn!(%error, "that this home was put back was not noted");
    }
}

/// None where it never was, or where somebody has written something else into the file.
pub(crate) fn read(home: &Path) -> Option<Note> {
    let text = crate::home::read_plain(&home.join(NAME)).ok()?;
    serde_json::from_str(&text).ok()
}

impl Note {
    pub(crate) fn is_news(&self, now: WallMs) -> bool {
        now.0.saturating_sub(self.at_ms) < NEWS_MS
    }

    /// Without a daemon only this much is known.
    pub(super) fn finding(&self) -> Finding {
        fine(CHECK, format!("{}; {}", self.put_back(), self.rest()))
    }

    fn put_back(&self) -> String {
        let at = WallMs(self.at_ms).to_rfc3339();
        if self.file.is_empty() {
            return format!(
                "data.db does not know all that this home has made, as was noticed at {at}: an older copy was put in its place, a repair could not save it, or another copy of this home is at work"
            );
        }
        format!("this home was put back at {at} from {}", self.file)
    }

    fn rest(&self) -> String {
        let since = match self.file.as_str() {
            "" => "of that time",
            _ => "since that backup",
        };
        let mut words = format!(
            "what it had made {since} and no broker had is not known any more, and neither are its sends and its mail of that time but for what a broker still holds"
        );
        if let Some(before) = self.before.as_ref().filter(|path| Path::new(path).exists()) {
            words += &format!("; the store of before is kept as {before}");
        }
        words
    }
}

const CHECK: &str = "put back from a backup";

/// Of one mesh, in words.
fn given(mesh: &str, count: u64, connected: bool) -> String {
    let changes = match count {
        0 => "no change that it had made since has".to_owned(),
        1 => "1 change that it had made since has".to_owned(),
        count if count >= u64::from(COUNT_MAX) => {
            format!("{COUNT_MAX} changes or more that it had made since have")
        }
        count => format!("{count} changes that it had made since have"),
    };
    let so_far = if connected {
        ""
    } else {
        " so far, and its broker is out of reach"
    };
    format!("{changes} come back from the log of mesh {mesh}{so_far}")
}

/// What was put back, and what the meshes have given back.
pub(crate) async fn said(shared: &Shared, note: &Note) -> Result<String, StoreError> {
    let mut words = vec![note.put_back()];
    for mesh in &shared.meshes {
        let head = shared.store.sync_head(mesh.mesh.mesh).await?;
        if !head.kind.is_shared() {
            continue;
        }
        let whose = (mesh.mesh.mesh, mesh.mesh.member);
        let count = shared
            .store
            .came_again(whose, WallMs(note.at_ms), COUNT_MAX);
        let name = mesh.mesh.name.as_str();
        words.push(given(name, count.await?, mesh.is_answering()));
        if note.broker && mesh.is_hosted_here() {
            words.push(format!("the broker of mesh {name} was put back as well, so the rest is with the others: `heddle status` in their homes says what they have kept, `heddle mesh give-back --out FILE` there and `heddle mesh take-back FILE` here bring it back"));
        }
    }
    words.push(note.rest());
    Ok(words.join("; "))
}

/// The same for the doctor of a running home.
pub(crate) async fn told(shared: &Shared, home: &Path) -> Result<Option<Finding>, StoreError> {
    let Some(note) = read(home) else {
        return Ok(None);
    };
    said(shared, &note)
        .await
        .map(|says| Some(fine(CHECK, says)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_noted_and_no_news_after_a_week() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), None);
        let view = RestoreView {
            file: "/b/copy.db".into(),
            before: None,
            incarnation: Some(2),
            blobs: 0,
            blobs_missing: 0,
            with: Vec::new(),
        };
        note(folder.path(), &view, WallMs(1000));
        let kept = read(folder.path()).unwrap();
        assert!(kept.is_news(WallMs(NEWS_MS)) && !kept.is_news(WallMs(NEWS_MS + 1000)));
        assert!(kept.finding().says.contains("from /b/copy.db"));
        assert!(given("team", 1, true).contains("1 change that it had made since has come back"));
        assert!(given("team", 5000, false).contains("1000 changes or more"));
        // What is noticed behind a restore is explained by it.
        notice(folder.path(), WallMs(2000));
        assert_eq!(read(folder.path()), Some(kept));
        std::fs::write(folder.path().join(NAME), "{").unwrap();
        assert_eq!(read(folder.path()), None);
        notice(folder.path(), WallMs(3000));
        let noticed = read(folder.path()).unwrap();
        assert!(noticed.is_news(WallMs(NEWS_MS)));
        assert!(noticed.finding().says.contains("data.db does not know all"));
    }
}
