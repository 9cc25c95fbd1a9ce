//! Ids of requests that say what is erased. A caller chooses its ids freely, so the id of one record may say what another one holds.
//!
//! Records of the job lose such an id with their content. So do records that have no content of their own to lose (erased before, a
//! tombstone, a note that a request changed nothing): nobody could name them to a redaction. Others keep theirs, and are named.

use crate::error::{At, JournalError};
use crate::journal::Journal;
use crate::notes::{MetaPayload, Note};
use crate::record::{Record, line_crc};

use super::job::{Erased, Job};
use super::line;

impl Journal {
    /// Marks the records of the job whose id says some of what all of them hold, and finds those that lose nothing but the id.
    pub(crate) fn find_telling_ids(&self, job: &mut Job) -> Result<(), JournalError> {
        // Of the job as it is by now: what its records say, and what of that others say as well.
        let needles = self.survey(&mut job.clone())?.needles;
        let (unshared, shared) = (needles.matcher()?, needles.shared_matcher()?);
        let mut telling = Vec::new();
        self.each_record(|_, record, old| {
            let Some(request) = &record.request else {
                return;
            };
            let id = request.id.as_str().as_bytes();
            let is_near = job.names(record) || is_of(job, record);
            // What others say too, or a short word, proves something of an id only where it stands beside the content.
            let is_told = unshared.is_in(id)
                || is_near && (shared.is_in(id) || line::tells_short(&needles, id));
            if is_told && (job.names(record) || is_bare(record)) {
                telling.push((record.seq, record.writer.as_str().to_owned(), old.to_vec()));
            }
        })?;
        for (seq, writer, old) in telling {
            let known = job.records.iter_mut();
            let mut known = known.filter(|e| e.seq == seq && e.writer == writer);
            if let Some(erased) = known.next() {
                erased.drops_id = true;
                erased.new_crc = line_crc(&line::erased_with(&old, true)?)?;
                continue;
            }
            job.unnamed.push(Erased {
                seq,
                writer,
                crc: line_crc(&old)?,
                new_crc: line_crc(&line::unnamed(&old)?)?,
                drops_id: true,
            });
        }
        job.unnamed.sort_by_key(|erased| erased.seq);
        job.unnamed.dedup();
        Ok(())
    }
}

impl Journal {
    /// The table of requests knows ids by a digest, from which a short one can be guessed. It is made anew from what the segments have left.
    pub(crate) fn forget_keys(&self, job: &Job) -> Result<(), JournalError> {
        let path = self.layout.requests();
        if job.keys() > 0 && self.disk().len(&path).at(&path)?.is_some() {
            self.disk().remove(&path).at(&path)?;
            let events = self.layout.events();
            self.disk().sync_dir(&events).at(&events)?;
        }
        Ok(())
    }
}

/// Of the item that goes as a whole, by its own record or by a note about it.
fn is_of(job: &Job, record: &Record<'_>) -> bool {
    let Some((item_type, item_id)) = &job.item else {
        return false;
    };
    let of_record = record.item_id.as_ref().map(crate::record::Text::as_str);
    let is_own = record.item_type.as_str() == item_type && of_record == Some(item_id);
    is_own || unchanged(record).is_some_and(|(t, id)| (&t, &id) == (item_type, item_id))
}

/// Without anything of its own that a redaction could be asked for.
pub(super) fn is_bare(record: &Record<'_>) -> bool {
    !line::has_content(record) || unchanged(record).is_some()
}

/// The item of a request that had nothing to record.
fn unchanged(record: &Record<'_>) -> Option<(String, String)> {
    let payload = record.payload.map(serde_json::value::RawValue::get)?;
    match MetaPayload::parse(record.action, payload) {
        Some(MetaPayload::Note(Note::Unchanged { item_type, item_id })) => {
            Some((item_type, item_id))
        }
        _ => None,
    }
}
