//! What a reader has not seen yet, by a seq watermark that survives every change of the files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::action::ActionClass;
use crate::blobs;
use crate::checkpoint;
use crate::disk::{read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::{WHO_BYTES_MAX, is_item_id};
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::record::Record;
use crate::seen::{Again, Seen};
use crate::segments;

const CURSOR_BYTES_MAX: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    reader: String,
    last_seq: u64,
    last_read: String,
}

/// What stands where history was moved away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub head_seq: u64,
    pub entities: u64,
    /// The first seq that is still here.
    pub oldest_seq: u64,
}

#[derive(Debug, Serialize)]
pub struct Page {
    /// The records, as they stand in the journal.
    pub events: Vec<Box<RawValue>>,
    /// There were events that are archived now.
    pub gap: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    pub last_seq: u64,
    /// The limit was reached; ask again.
    pub more: bool,
}

/// Which records are wanted.
#[derive(Debug, Clone, Default)]
struct Wanted {
    after: u64,
    limit: usize,
    /// Neither this instance's own records, nor the journal's.
    reader: Option<String>,
    writer: Option<String>,
    /// The name that this instance records under, where that is not the reader's.
    instance: Option<String>,
}

impl Journal {
    /// The records after a seq, as they stand in the journal.
    pub fn log(&self, after: u64, limit: usize) -> Result<Vec<Box<RawValue>>, JournalError> {
        let wanted = Wanted {
            after,
            limit,
            ..Wanted::default()
        };
        Ok(self.collect(wanted)?.events)
    }

    /// Where the log begins, if older records than that were asked for; and whether they are in the archive.
    pub fn begins_at(&self, after: u64) -> Result<Option<(u64, bool)>, JournalError> {
        let live = segments::live(self.disk(), &self.layout)?;
        let Some(oldest) = live.first().copied().filter(|oldest| after + 1 < *oldest) else {
            return Ok(None);
        };
        let is_archived = !segments::archived(self.disk(), &self.layout)?.is_empty();
        Ok(Some((oldest, is_archived)))
    }

    /// What a reader has not seen; moves its watermark unless it only peeks. A reader is an instance,
    /// never a name that several share (JN-23).
    pub fn events(&self, reader: &str, limit: usize, peek: bool) -> Result<Page, JournalError> {
        if reader.is_empty() || reader.len() > WHO_BYTES_MAX {
            return Err(JournalError::Refused(format!(
                "a reader's name has 1 to {WHO_BYTES_MAX} bytes"
            )));
        }
        let path = self.cursor_path(reader);
        let guard = if peek {
            None
        } else {
            let folder = self.layout.cursors();
            self.disk().create_dir(&folder).at(&folder)?;
            let lock = path.with_extension("lock");
            let guard = self.disk().try_lock(&lock).at(&lock)?;
            let busy = || self.busy(std::time::Duration::ZERO);
            Some(guard.ok_or_else(busy)?)
        };
        let after = self.watermark(reader, &path)?;
        let oldest = segments::live(self.disk(), &self.layout)?
            .first()
            .copied()
            .unwrap_or(1);
        let gap = after + 1 < oldest;
        let mut page = self.collect(Wanted {
            after,
            limit,
            reader: Some(reader.to_owned()),
            writer: Some(self.writer.clone()),
            instance: self.who.agent_id.clone(),
        })?;
        page.gap = gap;
        if gap {
            page.summary = self.summary(oldest)?;
        }
        if guard.is_some() && page.last_seq != after {
            let cursor = Cursor {
                reader: reader.to_owned(),
                last_seq: page.last_seq,
                last_read: self.world.clock.wall().to_rfc3339(),
            };
            let bytes = serde_json::to_vec(&cursor).map_err(JournalError::refused)?;
            replace(self.disk(), &path, &bytes, false).at(&path)?;
        }
        Ok(page)
    }

    fn cursor_path(&self, reader: &str) -> PathBuf {
        let name = if is_item_id(reader) {
            reader.to_owned()
        } else {
            // No item id begins so: no two readers share a file.
            format!("_{}", blobs::sha256_hex(reader.as_bytes()))
        };
        self.layout.cursors().join(format!("{name}.json"))
    }

    /// A cursor that cannot be read begins anew: an event twice is better than one never.
    fn watermark(&self, reader: &str, path: &std::path::Path) -> Result<u64, JournalError> {
        let bytes = read_if_there(self.disk(), path, CURSOR_BYTES_MAX).at(path)?;
        let cursor = bytes.and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok());
        Ok(cursor
            .filter(|cursor| cursor.reader == reader)
            .map_or(0, |cursor| cursor.last_seq))
    }

    fn summary(&self, oldest_seq: u64) -> Result<Option<Summary>, JournalError> {
        for head_seq in checkpoint::listed(self.disk(), &self.layout)?
            .into_iter()
            .rev()
        {
            if let checkpoint::Reference::Found(reference) = self.reference(head_seq)? {
                return Ok(Some(Summary {
                    head_seq,
                    entities: reference.entities,
                    oldest_seq,
                }));
            }
        }
        Ok(None)
    }

    fn collect(&self, wanted: Wanted) -> Result<Page, JournalError> {
        let live = segments::live(self.disk(), &self.layout)?;
        let begin = segments::holding(&live, wanted.after + 1);
        let mut collector = Collector {
            mode: self.mode,
            page: Page {
                events: Vec::new(),
                gap: false,
                summary: None,
                last_seq: wanted.after,
                more: false,
            },
            seen: Seen::default(),
            wanted,
        };
        for first in &live[begin.min(live.len())..] {
            let bytes = segments::read(self.disk(), &self.layout, *first)?;
            scan(
                &bytes,
                0,
                &mut Lines {
                    bytes: &bytes,
                    into: &mut collector,
                },
            );
            if collector.page.more {
                break;
            }
        }
        Ok(collector.page)
    }
}

struct Collector {
    mode: crate::action::Mode,
    wanted: Wanted,
    page: Page,
    seen: Seen,
}

impl Collector {
    fn wants(&self, record: &Record<'_>) -> bool {
        let Some(reader) = &self.wanted.reader else {
            return true;
        };
        let is_ours = |id: &str| id == reader || Some(id) == self.wanted.instance.as_deref();
        let is_own = record
            .agent_id
            .as_ref()
            .is_some_and(|id| is_ours(id.as_str()))
            || self.wanted.writer.as_deref() == Some(record.writer.as_str());
        !is_own && record.action.class(self.mode) != ActionClass::JournalMeta
    }
}

struct Lines<'b, 'c> {
    bytes: &'b [u8],
    into: &'c mut Collector,
}

impl<'a> Sink<'a> for Lines<'_, '_> {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for counted in batch {
            let record = &counted.record;
            let again = self
                .into
                .seen
                .note(record.seq, record.writer.as_str(), counted.crc);
            if record.seq <= self.into.wanted.after
                || again == Again::Identical
                || self.into.page.more
            {
                continue;
            }
            let wants = self.into.wants(record);
            if wants && self.into.page.events.len() >= self.into.wanted.limit {
                self.into.page.more = true;
                continue;
            }
            self.into.page.last_seq = self.into.page.last_seq.max(record.seq);
            let at = |byte: u64| usize::try_from(byte).unwrap_or(0);
            let line = &self.bytes[at(counted.place.start)..at(counted.place.end)];
            let line = std::str::from_utf8(line).ok().map(str::to_owned);
            let line = line.and_then(|line| RawValue::from_string(line).ok());
            self.into.page.events.extend(line.filter(|_| wants));
        }
    }

    fn damage(&mut self, _: Damage) {}
}
