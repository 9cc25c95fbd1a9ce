//! What a reader has not seen yet, by a seq watermark that survives every change of the files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::blobs;
use crate::disk::{LockGuard, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::{SEQ_MAX, WHO_BYTES_MAX, is_item_id};
use crate::journal::Journal;
use crate::page::{Mark, Page, Wanted};
use crate::stamp::{self, Stamp};

const CURSOR_BYTES_MAX: u64 = 16 << 10;
/// Marks of before that a cursor holds: the newest ones, and fewer the older they are.
const TRAIL_MAX: usize = 16;
const SLEEP_MIN: Duration = Duration::from_micros(100);
const SLEEP_MAX: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    reader: String,
    /// Of a reader that asks for one type: what it was shown of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    item_type: Option<String>,
    last_seq: u64,
    /// Who wrote that record: another one there is another journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_writer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_crc: Option<u32>,
    /// Seq, writer and checksum of records that were the last ones before, newest first: where the journal goes back behind
    /// the watermark, one of these says how far it is the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trail: Vec<(u64, String, u32)>,
    last_read: String,
    /// Which start of the machine wrote this. A reader may have been shown a record that a power cut took before it was synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

fn check_reader(reader: &str) -> Result<(), JournalError> {
    if reader.is_empty() || reader.len() > WHO_BYTES_MAX {
        return Err(JournalError::Refused(format!(
            "a reader's name has 1 to {WHO_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

impl Cursor {
    fn mark(&self) -> Mark {
        Mark {
            seq: self.last_seq,
            writer: self.last_writer.clone(),
            crc: self.last_crc,
        }
    }

    fn trail(&self) -> impl Iterator<Item = Mark> {
        self.trail.iter().map(|(seq, writer, crc)| Mark {
            seq: *seq,
            writer: Some(writer.clone()),
            crc: Some(*crc),
        })
    }

    /// What is kept of where it was, once it is at a seq.
    fn trail_to(mut self, seq: u64) -> Vec<(u64, String, u32)> {
        if let Some((writer, crc)) = self.last_writer.zip(self.last_crc) {
            self.trail.insert(0, (self.last_seq, writer, crc));
        }
        self.trail.retain(|mark| mark.0 < seq);
        if self.trail.len() > TRAIL_MAX {
            // Of the older half every second one goes, never the oldest.
            let mut at = 0;
            self.trail.retain(|_| {
                at += 1;
                at <= TRAIL_MAX / 2 || at % 2 == 1
            });
        }
        self.trail
    }
}

/// A page that a reader has not been shown yet. Its watermark moves with [`Reading::shown`], and not before: who is killed while
/// it prints, or cannot print, is shown the same again. Another process of this reader waits meanwhile.
pub struct Reading<'j> {
    journal: &'j Journal,
    page: Page,
    _guard: Box<dyn LockGuard>,
}

impl Reading<'_> {
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// All of it was shown.
    pub fn shown(self) -> Result<Page, JournalError> {
        self.journal.put_mark(&self.page, self.page.events.len())?;
        Ok(self.page)
    }
}

impl Journal {
    /// What a reader has not seen; moves its watermark unless it only peeks. A reader is an instance,
    /// never a name that several share (JN-23).
    pub fn events(&self, reader: &str, limit: usize, peek: bool) -> Result<Page, JournalError> {
        self.events_of(reader, None, limit, peek)
    }

    /// The same of one type. That has a watermark of its own: who asks for plans has not seen the rest.
    pub fn events_of(
        &self,
        reader: &str,
        item_type: Option<&str>,
        limit: usize,
        peek: bool,
    ) -> Result<Page, JournalError> {
        if peek {
            return self.unseen(reader, item_type, limit);
        }
        self.reading(reader, item_type, limit)?.shown()
    }

    /// The same for who has yet to show it.
    pub fn reading(
        &self,
        reader: &str,
        item_type: Option<&str>,
        limit: usize,
    ) -> Result<Reading<'_>, JournalError> {
        check_reader(reader)?;
        let guard = self.hold_reader(reader)?;
        Ok(Reading {
            journal: self,
            page: self.unseen(reader, item_type, limit)?,
            _guard: guard,
        })
    }

    fn unseen(
        &self,
        reader: &str,
        item_type: Option<&str>,
        limit: usize,
    ) -> Result<Page, JournalError> {
        check_reader(reader)?;
        let own = self.cursor(reader, item_type)?;
        // What was shown among everything was shown.
        let all = self.cursor(reader, None)?;
        let seen = if all.last_seq > own.last_seq {
            &all
        } else {
            &own
        };
        let marks = [own.mark(), all.mark()].into_iter();
        let mut page = self.page(Wanted {
            seen: seen.mark(),
            trail: marks.chain(own.trail()).chain(all.trail()).collect(),
            limit,
            item_type: item_type.map(str::to_owned),
            reader: Some(reader.to_owned()),
            writer: Some(self.writer.clone()),
            instance: self.who.agent_id.clone(),
        })?;
        page.began = own.mark();
        Ok(page)
    }

    /// A page that was looked at without moving anything: the first `count` of its events were shown. Whoever showed more of
    /// them meanwhile keeps that. The seq that they end with.
    pub fn events_shown(&self, page: &Page, count: usize) -> Result<u64, JournalError> {
        let Some(reader) = page.reader() else {
            return Ok(page.last_seq);
        };
        let _guard = self.hold_reader(reader)?;
        self.put_mark(page, count)?;
        let shown = page.mark_behind(count).unwrap_or(&page.began);
        Ok(shown.seq)
    }

    fn put_mark(&self, page: &Page, count: usize) -> Result<(), JournalError> {
        let Some((reader, shown)) = page.reader().zip(page.mark_behind(count)) else {
            return Ok(());
        };
        let item_type = page.item_type();
        let now = self.cursor(reader, item_type)?;
        // Back only where the journal itself went back, and nobody else has moved since the look.
        let is_moved = now.mark() != page.began;
        if now.mark() == *shown || is_moved && now.last_seq >= shown.seq {
            return Ok(());
        }
        let cursor = Cursor {
            reader: reader.to_owned(),
            item_type: item_type.map(str::to_owned),
            last_seq: shown.seq,
            last_writer: shown.writer.clone(),
            last_crc: shown.crc,
            trail: now.trail_to(shown.seq),
            last_read: self.world.clock.wall().to_rfc3339(),
            boot: self.boot(),
        };
        let path = self.cursor_path(reader, item_type);
        let bytes = stamp::stamped(&cursor)?;
        replace(self.disk(), &path, &bytes, false).at(&path)
    }

    /// One process of a reader at a time moves its watermarks; the other waits, as it would for the journal.
    fn hold_reader(&self, reader: &str) -> Result<Box<dyn LockGuard>, JournalError> {
        let folder = self.layout.cursors();
        self.disk().create_dir(&folder).at(&folder)?;
        let path = self.cursor_path(reader, None).with_extension("lock");
        let (mut waited, mut sleep) = (Duration::ZERO, SLEEP_MIN);
        loop {
            if let Some(mut guard) = self.disk().try_lock(&path).at(&path)? {
                let owner = format!("pid {} writer {}\n", std::process::id(), self.writer);
                guard.sign(&owner).at(&path)?;
                return Ok(guard);
            }
            if waited >= self.settings.lock_wait {
                return Err(JournalError::ReaderBusy {
                    reader: reader.to_owned(),
                    owner: self.owner_of(&path),
                    waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                });
            }
            std::thread::sleep(sleep);
            waited += sleep;
            sleep = (sleep * 2).min(SLEEP_MAX);
        }
    }

    fn cursor_path(&self, reader: &str, item_type: Option<&str>) -> PathBuf {
        // No item id begins so: no two readers share a file.
        let hashed = |text: &str| blobs::sha256_hex(text.as_bytes());
        let name = match item_type {
            Some(item_type) => format!("_of_{}", hashed(&format!("{item_type}\0{reader}"))),
            None if is_item_id(reader) => reader.to_owned(),
            None => format!("_{}", hashed(reader)),
        };
        self.layout.cursors().join(format!("{name}.json"))
    }

    /// The largest watermark of all readers: there was a record. Of those of this boot, and with a checksum: a flipped bit is no loss.
    pub(crate) fn readers_to(&self) -> Result<u64, JournalError> {
        let folder = self.layout.cursors();
        let (mut last, boot) = (0, self.boot());
        for entry in self.disk().list(&folder).at(&folder)? {
            if entry.name.strip_suffix(".json").is_none() || entry.name.starts_with('.') {
                continue;
            }
            let bytes = read_if_there(self.disk(), &folder.join(&entry.name), CURSOR_BYTES_MAX);
            let bytes = bytes.ok().flatten().unwrap_or_default();
            if stamp::look(&bytes) != Stamp::Sound {
                continue;
            }
            let cursor = serde_json::from_slice::<Cursor>(&bytes).ok();
            let cursor = cursor.filter(|cursor| cursor.boot.is_some() && cursor.boot == boot);
            let seq = cursor.map_or(0, |cursor| cursor.last_seq);
            last = last.max(if seq > SEQ_MAX { 0 } else { seq });
        }
        Ok(last)
    }

    /// A cursor that cannot be read begins anew: an event twice is better than one never.
    fn cursor(&self, reader: &str, item_type: Option<&str>) -> Result<Cursor, JournalError> {
        let path: &Path = &self.cursor_path(reader, item_type);
        let bytes = read_if_there(self.disk(), path, CURSOR_BYTES_MAX).at(path)?;
        let cursor = bytes.and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok());
        let is_ours =
            |cursor: &Cursor| cursor.reader == reader && cursor.item_type.as_deref() == item_type;
        Ok(cursor.filter(is_ours).unwrap_or_default())
    }
}
