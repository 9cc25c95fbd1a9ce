//! Where everything lies below `.heddle/`.

use std::path::{Path, PathBuf};

use crate::format::{checkpoint_name, segment_name};

#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// `root` is the `.heddle` folder itself.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    pub fn segment(&self, first_seq: u64) -> PathBuf {
        self.events().join(segment_name(first_seq))
    }

    pub fn meta(&self) -> PathBuf {
        self.events().join("meta.json")
    }

    pub fn lock(&self) -> PathBuf {
        self.events().join("lock")
    }

    /// The revision index beside the projections: a cache, rebuilt from the journal (C43).
    pub fn revisions(&self) -> PathBuf {
        self.events().join("revisions.idx")
    }

    /// Which record answered a request of an id: a cache, rebuilt from the segments.
    pub fn requests(&self) -> PathBuf {
        self.events().join("requests.idx")
    }

    /// Left by a failed sync: from where on the bytes may not be on the disk.
    pub fn unsynced(&self) -> PathBuf {
        self.events().join("unsynced.json")
    }

    /// A clone that has begun to take its files in, and not ended.
    pub fn adoption(&self) -> PathBuf {
        self.events().join("adopt.json")
    }

    /// A rollback that has begun to park the journal, and not ended.
    pub fn parking(&self) -> PathBuf {
        self.events().join("parking.json")
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.events().join("checkpoints")
    }

    pub fn checkpoint(&self, head_seq: u64) -> PathBuf {
        self.checkpoints().join(checkpoint_name(head_seq))
    }

    pub fn blobs(&self) -> PathBuf {
        self.events().join("blobs")
    }

    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.blobs().join(&sha256[..2]).join(sha256)
    }

    pub fn archive(&self) -> PathBuf {
        self.events().join("archive")
    }

    pub fn archived_segment(&self, first_seq: u64) -> PathBuf {
        self.archive().join(segment_name(first_seq))
    }

    pub fn archived_checkpoints(&self) -> PathBuf {
        self.archive().join("checkpoints")
    }

    pub fn archived_blobs(&self) -> PathBuf {
        self.archive().join("blobs")
    }

    pub fn quarantine(&self) -> PathBuf {
        self.events().join("quarantine")
    }

    /// Which store this is among those that exchange slices.
    pub fn origin(&self) -> PathBuf {
        self.events().join("origin.json")
    }

    /// A redaction that has begun and not ended.
    pub fn redact_job(&self) -> PathBuf {
        self.events().join("redact.json")
    }

    /// Which records of sealed segments were erased: a cache of the notes.
    pub fn erased(&self) -> PathBuf {
        self.events().join("erased.json")
    }

    /// The log of a store that was migrated, as it was.
    pub fn parked_log(&self) -> PathBuf {
        self.archive().join("events.v1.jsonl")
    }

    /// Whole copies of the store, one for every change of its mode.
    pub fn backups(&self) -> PathBuf {
        self.root.join("backups")
    }

    /// Ids of the reservations that hold: a cache, so that no checkout of files takes one away.
    pub fn leftovers(&self) -> PathBuf {
        self.events().join("leftovers.json")
    }

    pub fn reserved(&self) -> PathBuf {
        self.events().join("reserved.json")
    }

    pub fn cursors(&self) -> PathBuf {
        self.events().join("cursors")
    }

    /// Requests of processes that wait for the lock: whoever holds it commits them along.
    pub fn queue(&self) -> PathBuf {
        self.events().join("queue")
    }

    pub fn entities(&self) -> PathBuf {
        self.root.join("entities")
    }

    pub fn family(&self, item_type: &str) -> PathBuf {
        self.entities().join(item_type)
    }

    pub fn entity(&self, item_type: &str, item_id: &str) -> PathBuf {
        self.family(item_type).join(format!("{item_id}.json"))
    }

    pub fn schemas(&self) -> PathBuf {
        self.root.join("schemas")
    }
}
