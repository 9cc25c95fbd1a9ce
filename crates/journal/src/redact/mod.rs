//! Redaction: content is erased on request, everywhere in the store, and the journal says that it was (J1, C15, C44).
//!
//! A line keeps its place, length, seq, writer and revision and loses payload and summary; the entity whose
//! newest record it was is gone. The order is: job on the disk, everything around the segments, the search of all files and what it
//! found into the job, checkpoints, blobs, segments, index, note, list of what was found, job away. A crash anywhere is finished by
//! whoever takes the lock next; each step may be done twice.

mod fields;
mod holders;
mod ids;
mod inflate;
mod job;
mod left;
mod line;
mod moved;
mod needles;
mod own_words;
mod places;
mod remains;
mod scrub;
mod search;
mod short;
mod survey;
mod taken_over;
mod walk;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::JournalError;
use crate::federation::{CANDIDATE, prefix_of};
use crate::format::SUMMARY_BYTES_MAX;
use crate::journal::Journal;
use crate::lines::{Counted, Damage, Sink, scan};
use crate::notes::{MetaPayload, Note, RedactedId};
use crate::record::Record;
use crate::segments;
use crate::session::Session;

pub(crate) use line::erased as erased_line;
pub use remains::{LetBe, Remains};
pub(crate) use taken_over::Withdrawn;

use job::{Job, Search as Due};
use search::Search;
use survey::Survey;

/// Ids in one note; more make more notes, in one batch.
const NOTE_IDS_MAX: usize = 2000;
/// Names shown of those who hold the same texts.
const ALSO_IN_MAX: usize = 20;

/// What shall be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every record of an entity; without a type, of the one type that has this id.
    Item {
        item_type: Option<String>,
        item_id: String,
    },
    Seq(u64),
    /// The conflict candidates about an entity, by how their ids begin: they hold its images.
    Conflicts {
        prefix: String,
    },
}

impl Target {
    fn is(&self, record: &Record<'_>) -> bool {
        match self {
            Self::Seq(seq) => record.seq == *seq,
            Self::Item { .. } | Self::Conflicts { .. } => record
                .item_id
                .as_ref()
                .is_some_and(|id| self.is_item(record.item_type.as_str(), id.as_str())),
        }
    }

    fn is_item(&self, of_type: &str, id: &str) -> bool {
        match self {
            Self::Seq(_) => false,
            Self::Item { item_type, item_id } => {
                id == item_id && item_type.as_ref().is_none_or(|t| t == of_type)
            }
            Self::Conflicts { prefix } => of_type == CANDIDATE && id.starts_with(prefix),
        }
    }

    fn absent(&self) -> JournalError {
        let (item_type, item_id) = match self {
            Self::Seq(seq) => ("seq".to_owned(), seq.to_string()),
            Self::Conflicts { prefix } => (CANDIDATE.to_owned(), prefix.clone()),
            Self::Item { item_type, item_id } => (
                item_type.clone().unwrap_or_else(|| "item".to_owned()),
                item_id.clone(),
            ),
        };
        JournalError::NotFound { item_type, item_id }
    }
}

/// What was erased, and what a person still has to look after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Redacted {
    pub redacted: Vec<RedactedId>,
    pub segments: Vec<String>,
    pub checkpoints: Vec<String>,
    pub blobs: u64,
    /// Records of others that hold some of the same texts; these were left as they are.
    pub also_in: Vec<String>,
    #[serde(flatten)]
    pub left: Remains,
    /// False where nothing was left to search for: what was erased before is not known any more.
    pub searched: bool,
    /// Texts that were erased and are too short to be searched for in every encoding and every file.
    #[serde(skip_serializing_if = "crate::restore::is_zero")]
    pub short: u64,
    /// Texts that were erased here and that others hold as well: searched for like the short ones.
    #[serde(skip_serializing_if = "crate::restore::is_zero")]
    pub shared: u64,
    /// Blobs that were gone before they could be erased: nobody knows what they said, and nobody has searched for it.
    #[serde(skip_serializing_if = "crate::restore::is_zero")]
    pub lost: u64,
    /// Links that lead out of the store to where nobody has looked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// What no tool of ours reaches.
    pub warnings: Vec<String>,
    /// Where what a crash had left of an earlier one lies now: it was damaged, and nothing was erased by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
    /// Ids of requests that said some of the content and went with it. Nothing remembers them: they are free again.
    #[serde(skip_serializing_if = "crate::restore::is_zero")]
    pub keys: u64,
}

impl Redacted {
    fn of(job: &Job, survey: Survey) -> Self {
        Self {
            redacted: job.ids(),
            segments: survey.segments.into_iter().collect(),
            checkpoints: names_of(job),
            blobs: job.blobs.len() as u64,
            also_in: survey.also_in.into_iter().take(ALSO_IN_MAX).collect(),
            searched: !survey.needles.is_empty(),
            short: survey.needles.short().len() as u64,
            shared: survey.needles.shared().len() as u64,
            lost: survey.lost,
            keys: job.keys(),
            ..Self::default()
        }
    }

    /// Nothing is left that anybody knows of, and all of it was looked at.
    pub fn is_clean(&self) -> bool {
        self.left.is_nothing()
    }
}

/// A redaction that a crash had interrupted, and that whoever came next has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What was to be erased.
    pub what: String,
    pub told: Redacted,
}

impl Journal {
    /// Erases, verifies and notes. A redaction that a crash interrupted is finished first.
    pub fn redact(&self, target: &Target, reason: &str) -> Result<Redacted, JournalError> {
        if reason.trim().is_empty() || reason.len() > SUMMARY_BYTES_MAX {
            return Err(JournalError::Refused(format!(
                "a reason has 1 to {SUMMARY_BYTES_MAX} bytes; it stays in the journal for ever"
            )));
        }
        let mut session = self.session()?;
        let by = self.who.user.as_deref().unwrap_or(&self.who.agent);
        let mut job = Job::new(session.next_seq, reason, by);
        self.find_target(target, &mut job)?;
        if let Target::Item { .. } = target {
            let (first, more) = match &job.entities[..] {
                [] => return Err(session.unfound(target)?),
                [first, more @ ..] => (first.clone(), more),
            };
            if !more.is_empty() {
                return Err(JournalError::refused(
                    "several types have an item of this id: name it as TYPE/ID",
                ));
            }
            let prefix = prefix_of(&first.0, &first.1);
            self.find_target(&Target::Conflicts { prefix }, &mut job)?;
            job.item = Some(first);
        } else if job.records.is_empty() && job.entities.is_empty() {
            // One that was erased before is here, and there is nothing to do.
            return Err(session.unfound(target)?);
        }
        // IMPORTANT: before the checkpoints, which know records by their checksums.
        self.find_telling_ids(&mut job)?;
        self.plan_checkpoints(&mut job)?;
        let survey = self.survey(&mut job)?;
        if survey.needles.matcher()?.is_in(reason.as_bytes()) {
            return Err(JournalError::refused(
                "the reason repeats what shall be erased: say it in other words",
            ));
        }
        let set_aside = session.set_job_aside()?;
        session.keep_job(&job)?;
        let told = session.carry_out(job, survey, true)?;
        Ok(Redacted { set_aside, ..told })
    }
}

impl Session<'_> {
    /// Why a target is not found: it never was here, or what was said of it is lost and may be elsewhere.
    fn unfound(&self, target: &Target) -> Result<JournalError, JournalError> {
        let journal = self.journal;
        let mut missing: BTreeSet<[u64; 2]> = journal.open_gaps()?.into_iter().collect();
        missing.extend(self.lost.seqs.iter().chain(&self.lost.accepted));
        if let Target::Seq(seq) = target {
            missing.retain(|[first, last]| (*first..=*last).contains(seq));
        }
        let seqs: Vec<[u64; 2]> = missing.into_iter().collect();
        let entities = journal.entity_files()?.into_iter();
        let files = entities.filter(|(item_type, id)| target.is_item(item_type, id));
        let files = files.map(|(item_type, id)| journal.layout.entity(&item_type, &id));
        let files: Vec<_> = files.collect();
        let absent = target.absent();
        Ok(match absent {
            JournalError::NotFound { item_type, item_id }
                if !seqs.is_empty() || !files.is_empty() =>
            {
                JournalError::Unerased {
                    what: format!("{item_type} {item_id}"),
                    seqs,
                    files,
                }
            }
            absent => absent,
        })
    }

    /// What a crash interrupted goes on here, before anybody writes anything else.
    pub(crate) fn resume_redaction(&mut self) -> Result<(), JournalError> {
        if let Some(mut job) = self.journal.redact_job()? {
            // Asked before the survey, which takes from the job what is not to be erased.
            let knows_all = job.search != Due::Unknown || self.journal.knows_all(&job)?;
            let survey = self.journal.survey(&mut job)?;
            let what = job.what();
            // Nobody asked for it just now: what it finds is in the list, and named by every one that follows.
            let told = self.carry_out(job, survey, knows_all)?;
            self.journal.tell_ended(&Ended { what, told });
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        mut job: Job,
        survey: Survey,
        knows_all: bool,
    ) -> Result<Redacted, JournalError> {
        let journal = self.journal;
        let matcher = survey.needles.matcher()?;
        let layouts = journal.layouts()?;
        let before = job.clone();
        let mut search = Search::new(journal, &layouts, &before, &survey.needles, &matcher)?;
        let is_searched = match &job.search {
            Due::Done(found) => {
                search.found = found.clone();
                true
            }
            // What somebody has changed by hand goes to the quarantine now, and not behind the search.
            Due::Unknown | Due::Due => {
                self.level_if_can()?;
                false
            }
        };
        for layout in &layouts {
            journal.scrub_around(layout, &job, &matcher)?;
        }
        if !is_searched {
            search.all()?;
            search.found.unfinished = !knows_all || survey.is_blind;
            job.search = Due::Done(search.found.clone());
            // IMPORTANT: on the disk before anything goes that somebody could still learn the content from.
            self.keep_job(&job)?;
        }
        for layout in &layouts {
            journal.scrub_checkpoints(layout, &job, &matcher)?;
        }
        // IMPORTANT: the blobs and then the segments last: from these a second run learns what the first was after.
        for layout in &layouts {
            journal.erase_blobs(layout, &job)?;
        }
        for layout in &layouts {
            journal.scrub_segments(layout, &job, &matcher)?;
        }
        journal.forget_keys(&job)?;
        self.level_if_can()?;
        if !is_searched {
            search.again()?;
        }
        let mut told = Redacted::of(&job, survey);
        let is_news = !(job.records.is_empty() && job.checkpoints.is_empty());
        if is_news && !self.is_noted(&job)? {
            self.note(&job, &told)?;
        }
        told.links = search.links;
        if is_searched {
            // Erased by the run that was interrupted, which had searched for what they said.
            told.lost = 0;
        }
        told.left = journal.all_left(search.found, &search.hidden)?;
        // IMPORTANT: behind the list. Until then the job is all that says what was found.
        self.drop_job()?;
        Ok(told)
    }

    /// A file that cannot be read or written keeps nobody from erasing: it is compared by a later writer.
    fn level_if_can(&mut self) -> Result<(), JournalError> {
        match self.reconcile_full() {
            Err(JournalError::Io { .. }) => self.reconcile_index(),
            other => other,
        }
    }

    fn note(&mut self, job: &Job, told: &Redacted) -> Result<(), JournalError> {
        let ids = job.ids();
        let none: &[RedactedId] = &[];
        let mut chunks: Vec<&[RedactedId]> = ids.chunks(NOTE_IDS_MAX).collect();
        if chunks.is_empty() {
            chunks.push(none);
        }
        let mut drafts = Vec::new();
        for chunk in chunks {
            let note = Note::Redaction {
                segments: told.segments.clone(),
                checkpoints: told.checkpoints.clone(),
                redacted: chunk.to_vec(),
                reason: job.reason.clone(),
                by: job.by.clone(),
            };
            drafts.push(self.meta_draft(&MetaPayload::Note(note))?);
        }
        self.write(&drafts)?;
        self.write_meta(false)
    }

    /// Whether the run that a crash ended had come as far as its note: one redaction, one note (RD-04).
    fn is_noted(&self, job: &Job) -> Result<bool, JournalError> {
        let journal = self.journal;
        let mut notes = Notes {
            since: job.next_seq,
            found: BTreeSet::new(),
            any: false,
        };
        let live = segments::live(journal.disk(), &journal.layout)?;
        let begin = segments::holding(&live, job.next_seq);
        for first in &live[begin.min(live.len())..] {
            let bytes = segments::read(journal.disk(), &journal.layout, *first)?;
            scan(&bytes, 0, &mut notes);
        }
        let all: BTreeSet<(u64, String)> = job
            .ids()
            .into_iter()
            .map(|id| (id.seq, id.writer))
            .collect();
        Ok(notes.any && notes.found.is_superset(&all))
    }
}

struct Notes {
    since: u64,
    found: BTreeSet<(u64, String)>,
    any: bool,
}

impl<'a> Sink<'a> for Notes {
    fn batch(&mut self, batch: &[Counted<'a>]) {
        for record in batch.iter().map(|counted| &counted.record) {
            let payload = record.payload.map(serde_json::value::RawValue::get);
            if record.seq >= self.since
                && let Some(MetaPayload::Note(Note::Redaction { redacted, .. })) =
                    payload.and_then(|text| MetaPayload::parse(record.action, text))
            {
                self.any = true;
                let ids = redacted.into_iter().map(|id| (id.seq, id.writer));
                self.found.extend(ids);
            }
        }
    }

    fn damage(&mut self, _: Damage) {}
}

fn names_of(job: &Job) -> Vec<String> {
    let names: BTreeSet<&String> = job.checkpoints.values().map(|r| &r.file).collect();
    names.into_iter().cloned().collect()
}
