//! What a redaction leaves for a person: told by every run, and by the doctor, until it is gone or a person lets it be.

use serde::Serialize;

/// Of this redaction and of those before it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Remains {
    /// Files that still hold some of the bytes, in whatever encoding; those that an earlier redaction named included.
    pub leftovers: Vec<String>,
    /// Files and folders that could not be read, so that nobody knows; with why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Those that could not be read when they were searched, and can be now: nobody knows any more what to look for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<String>,
    /// Files in which more is deflated than anybody looks into.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsearched: Vec<String>,
    /// Files that an earlier redaction named and that are other ones now: they cannot be searched any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Files that are not the journal's own and hold some of what is short or of others, too; perhaps somebody else's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub short_in: Vec<String>,
    /// Files that a redaction found and whose own names say some of the content, or are no text: they are noted nowhere.
    #[serde(skip_serializing_if = "crate::restore::is_zero")]
    pub hidden: u64,
    /// Not all that was erased is known, so the rest was not searched for: an earlier redaction was interrupted, a blob is here and cannot be read,
    /// or the list of what was found is damaged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// A redaction has begun, and what says what it was to erase is damaged: nobody goes on with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub damaged_job: bool,
}

impl Remains {
    /// Nothing is left that anybody knows of, and all of it was looked at.
    pub fn is_nothing(&self) -> bool {
        self.count() == 0
    }

    /// How much of it keeps an erasure from being called done.
    pub fn count(&self) -> u64 {
        let files: usize = self.files().iter().map(|files| files.len()).sum();
        files as u64 + self.hidden + u64::from(self.unfinished) + u64::from(self.damaged_job)
    }

    fn files(&self) -> [&Vec<String>; 5] {
        [
            &self.leftovers,
            &self.unread,
            &self.unverified,
            &self.unsearched,
            &self.changed,
        ]
    }

    /// What another run has told. IMPORTANT: each tells of all that is left, so what both know is one.
    pub fn add(&mut self, other: &Self) {
        for (all, more) in [
            (&mut self.leftovers, &other.leftovers),
            (&mut self.unread, &other.unread),
            (&mut self.unverified, &other.unverified),
            (&mut self.unsearched, &other.unsearched),
            (&mut self.changed, &other.changed),
            (&mut self.short_in, &other.short_in),
        ] {
            all.extend(more.iter().cloned());
            all.sort();
            all.dedup();
        }
        self.hidden = self.hidden.max(other.hidden);
        self.unfinished |= other.unfinished;
        self.damaged_job |= other.damaged_job;
    }
}

/// What a person has let be, and what is told still.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LetBe {
    pub let_be: u64,
    #[serde(flatten)]
    pub left: Remains,
}

impl LetBe {
    pub(super) fn between(before: &Remains, left: Remains) -> Self {
        let all = |told: &Remains| told.count() + told.short_in.len() as u64;
        Self {
            let_be: all(before) - all(&left),
            left,
        }
    }
}
