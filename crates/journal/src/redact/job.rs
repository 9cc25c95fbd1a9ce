//! What a redaction set out to do, on the disk before anything is erased. Holds none of the erased bytes.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::notes::{CheckpointRef, RedactedId};
use crate::record::Record;
use crate::session::Session;
use crate::stamp::{self, Stamp};

use super::left::Found;

const JOB_BYTES_MAX: u64 = 64 << 20;
/// With a checksum. One without is obeyed by nobody: a flipped bit in it would erase somebody else.
const JOB_VERSION: u8 = 2;

/// A record of the job: how its line was known before and is known after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Erased {
    pub(crate) seq: u64,
    pub(crate) writer: String,
    pub(crate) crc: u32,
    pub(crate) new_crc: u32,
    /// The id of its request says some of the content, and goes with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) drops_id: bool,
}

impl Erased {
    pub(crate) fn is_of(&self, record: &Record<'_>) -> bool {
        self.seq == record.seq && self.writer == record.writer.as_str()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    v: u8,
    pub(crate) records: Vec<Erased>,
    /// Records that lose the id of their request and nothing else: it says some of the content, and they have none of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unnamed: Vec<Erased>,
    /// Type and id, where the whole item goes.
    pub(crate) item: Option<(String, String)>,
    /// Every entity that a record of the job belongs to.
    pub(crate) entities: Vec<(String, String)>,
    pub(crate) blobs: Vec<String>,
    /// Checkpoints that are written anew, by the SHA-256 that they had.
    pub(crate) checkpoints: BTreeMap<String, CheckpointRef>,
    /// The note comes at this seq or later.
    pub(crate) next_seq: u64,
    pub(crate) reason: String,
    pub(crate) by: String,
    #[serde(default)]
    pub(crate) search: Search,
}

/// How far the look for what is not the journal's own has come. IMPORTANT: it is done, and on the disk, before the last of what is
/// known of the content goes. Afterwards nobody can look again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Search {
    /// Begun by a build that erased first.
    #[default]
    Unknown,
    /// Nothing of what is known is erased yet.
    Due,
    Done(Found),
}

impl Job {
    pub(crate) fn new(next_seq: u64, reason: &str, by: &str) -> Self {
        Self {
            v: JOB_VERSION,
            records: Vec::new(),
            unnamed: Vec::new(),
            item: None,
            entities: Vec::new(),
            blobs: Vec::new(),
            checkpoints: BTreeMap::new(),
            next_seq,
            reason: reason.to_owned(),
            by: by.to_owned(),
            search: Search::Due,
        }
    }

    pub(crate) fn names(&self, record: &Record<'_>) -> bool {
        self.find(record).is_some()
    }

    pub(crate) fn find(&self, record: &Record<'_>) -> Option<&Erased> {
        self.records.iter().find(|erased| erased.is_of(record))
    }

    /// How many ids of requests go.
    pub(crate) fn keys(&self) -> u64 {
        let all = self.records.iter().chain(&self.unnamed);
        all.filter(|erased| erased.drops_id).count() as u64
    }

    /// Whether it loses the id of its request, and nothing else.
    pub(crate) fn unnames(&self, record: &Record<'_>) -> bool {
        self.unnamed.iter().any(|erased| erased.is_of(record))
    }

    /// The checksum of a record that only lost the id of its request.
    pub(crate) fn crc_unnamed(&self, seq: u64, crc: u32) -> Option<u32> {
        let known = self.unnamed.iter().find(|e| e.seq == seq && e.crc == crc);
        known.map(|erased| erased.new_crc)
    }

    /// Whether a line of a checkpoint holds content of the job; with its checksum afterwards.
    pub(crate) fn crc_after(
        &self,
        item_type: &str,
        item_id: &str,
        seq: u64,
        crc: u32,
    ) -> Option<u32> {
        let known = self.records.iter().find(|e| e.seq == seq && e.crc == crc);
        let is_item = self
            .item
            .as_ref()
            .is_some_and(|(t, id)| (t.as_str(), id.as_str()) == (item_type, item_id));
        known.map(|e| e.new_crc).or(is_item.then_some(crc))
    }

    /// As a person would name it.
    pub(crate) fn what(&self) -> String {
        let seq = self
            .records
            .first()
            .map(|erased| format!("seq {}", erased.seq));
        let item = self.item.as_ref().map(|(t, id)| format!("{t}/{id}"));
        item.or(seq).unwrap_or_else(|| "an item".to_owned())
    }

    pub(crate) fn ids(&self) -> Vec<RedactedId> {
        let id = |e: &Erased| RedactedId {
            seq: e.seq,
            writer: e.writer.clone(),
        };
        self.records.iter().map(id).collect()
    }
}

/// What stands in the place of a job.
enum Stored {
    Nothing,
    Sound(Box<Job>),
    /// Why nobody obeys it.
    Damaged(String),
}

impl Journal {
    fn stored_job(&self) -> Result<Stored, JournalError> {
        let path = self.layout.redact_job();
        let bytes = match read_if_there(self.disk(), &path, JOB_BYTES_MAX) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Stored::Nothing),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                return Ok(Stored::Damaged(error.to_string()));
            }
            Err(error) => return Err(error).at(&path),
        };
        let stamp = stamp::look(&bytes);
        Ok(match serde_json::from_slice::<Job>(&bytes) {
            Err(error) => Stored::Damaged(error.to_string()),
            Ok(_) if stamp == Stamp::Absent => Stored::Damaged("it has no checksum".to_owned()),
            Ok(_) if stamp == Stamp::Wrong => {
                Stored::Damaged("its checksum is another one".to_owned())
            }
            Ok(job) if job.v != JOB_VERSION => {
                Stored::Damaged(format!("version {} is unknown", job.v))
            }
            Ok(job) => Stored::Sound(Box::new(job)),
        })
    }

    /// The one that has begun and not ended. IMPORTANT: what is damaged is none; nothing is erased by it.
    pub(crate) fn redact_job(&self) -> Result<Option<Job>, JournalError> {
        // A length costs less than a read, and this is asked at every start.
        if matches!(self.disk().len(&self.layout.redact_job()), Ok(None)) {
            return Ok(None);
        }
        Ok(match self.stored_job()? {
            Stored::Sound(job) => Some(*job),
            Stored::Nothing | Stored::Damaged(_) => None,
        })
    }

    /// Why nobody knows what a redaction that has begun was to erase; None where none has, or it is known.
    pub fn damaged_redaction(&self) -> Option<String> {
        match self.stored_job() {
            Ok(Stored::Damaged(why)) => Some(why),
            Ok(_) | Err(_) => None,
        }
    }

    /// Whether one has begun and not ended: whoever takes the lock next goes on with it, where it is sound.
    pub fn is_redacting(&self) -> bool {
        !matches!(self.disk().len(&self.layout.redact_job()), Ok(None))
    }

    /// Whether a checkpoint differs from its reference only because a redaction is under way.
    pub(crate) fn is_scrubbed(&self, before: &str, after: &str) -> bool {
        let job = self.redact_job().ok().flatten();
        let new = job.as_ref().and_then(|job| job.checkpoints.get(before));
        new.is_some_and(|reference| reference.sha256 == after)
    }
}

impl Session<'_> {
    pub(crate) fn keep_job(&self, job: &Job) -> Result<(), JournalError> {
        let path = self.journal.layout.redact_job();
        let bytes = stamp::stamped(job)?;
        replace(self.journal.disk(), &path, &bytes, true).at(&path)
    }

    /// The way out of a damaged one, for a person who erases again. Under which name it lies then; what it had found is not known any more.
    pub(crate) fn set_job_aside(&self) -> Result<Option<String>, JournalError> {
        let journal = self.journal;
        if journal.damaged_redaction().is_none() {
            return Ok(None);
        }
        // IMPORTANT: first. Without it this would be the last that says that something was begun.
        journal.all_left(Found::lost(), &[])?;
        let (folder, events) = (journal.layout.quarantine(), journal.layout.events());
        journal.disk().create_dir(&folder).at(&folder)?;
        let path = journal.layout.redact_job();
        let to = folder.join(format!("redact.json.{}", journal.world.ids.ulid()));
        journal.disk().rename(&path, &to).at(&path)?;
        for folder in [&folder, &events] {
            journal.disk().sync_dir(folder).at(folder)?;
        }
        Ok(Some(to.display().to_string()))
    }

    pub(crate) fn drop_job(&self) -> Result<(), JournalError> {
        self.journal.erase_file(&self.journal.layout.redact_job())
    }
}
