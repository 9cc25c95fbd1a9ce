//! `meta.json`: what the next seq is and how far the projections are. A cache, never the truth.

use serde::{Deserialize, Serialize};

use crate::action::Mode;
use crate::disk::{Disk, read_if_there, replace};
use crate::error::{At, JournalError};
use crate::format::SEQ_MAX;
use crate::layout::Layout;
use crate::loss::Lost;
use crate::phases::Phases;
use crate::stamp::{self, Stamp};

const META_BYTES_MAX: u64 = 64 << 10;
/// With a checksum: without one such a cache is not believed. A build that knows nothing of it believes none of them, and
/// compares everything.
const META_VERSION: u8 = 3;
/// The index is level with the journal, the files were not compared yet.
const META_UNPROVEN_VERSION: u8 = 4;
/// The same two of builds that wrote no checksum.
const BARE_VERSION: u8 = 1;
const BARE_UNPROVEN_VERSION: u8 = 2;

/// A place in the journal: a segment by its first seq, and a byte in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub segment: u64,
    pub byte: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub v: u8,
    pub next_seq: u64,
    /// Everything before it is in the projections.
    pub applied: Position,
    /// The length of that segment, blank room included; None: written by a build that made none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<u64>,
    #[serde(default)]
    pub mode: Mode,
    /// Which start of the machine wrote this (C43).
    pub boot: Option<String>,
    /// Projections, index and this file were synced after the last change.
    pub clean: bool,
    /// Changes that no verb had announced (JN-30).
    #[serde(default)]
    pub unannotated: u64,
    /// Where the time of mutations went, for doctor.
    #[serde(default)]
    pub phases: Box<Phases>,
    /// Records that are lost; none, as a rule.
    #[serde(default, skip_serializing_if = "Lost::is_nothing")]
    pub lost: Box<Lost>,
    /// The newest record that the revision index knew: one that knows less is an older copy, and not believed.
    #[serde(default)]
    pub indexed_to: u64,
    /// Which index that was: one of the same newest record that was made before is an older copy as well.
    #[serde(default)]
    pub index_made: u64,
    /// The seq of the list of reservations when it was written last: the same of it.
    #[serde(default)]
    pub reserved_to: u64,
}

/// What a start finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaFound {
    Absent,
    Damaged,
    Good(Meta),
}

impl MetaFound {
    pub fn good(&self) -> Option<&Meta> {
        match self {
            Self::Good(meta) => Some(meta),
            Self::Absent | Self::Damaged => None,
        }
    }
}

impl Meta {
    pub fn new(next_seq: u64, applied: Position, mode: Mode, boot: Option<String>) -> Self {
        Self {
            v: META_VERSION,
            next_seq,
            applied,
            reach: None,
            mode,
            boot,
            clean: false,
            unannotated: 0,
            phases: Box::default(),
            lost: Box::default(),
            indexed_to: 0,
            index_made: 0,
            reserved_to: 0,
        }
    }

    /// Whether the files behind the index were not compared since it was made.
    pub fn is_unproven(&self) -> bool {
        matches!(self.v, META_UNPROVEN_VERSION | BARE_UNPROVEN_VERSION)
    }

    pub fn set_unproven(&mut self, is_unproven: bool) {
        self.v = if is_unproven {
            META_UNPROVEN_VERSION
        } else {
            META_VERSION
        };
    }

    /// After a power cut the cache may be newer or older than what it speaks of.
    pub fn survives(&self, boot: Option<&str>) -> bool {
        self.clean || self.boot.as_deref() == boot
    }
}

pub fn read(disk: &dyn Disk, layout: &Layout) -> Result<MetaFound, JournalError> {
    let path = layout.meta();
    let bytes = match read_if_there(disk, &path, META_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(MetaFound::Absent),
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            return Ok(MetaFound::Damaged);
        }
        Err(error) => return Err(error).at(&path),
    };
    // IMPORTANT: a flipped bit is no witness. What is believed here can say that records are lost (JN-13).
    let stamp = stamp::look(&bytes);
    Ok(match serde_json::from_slice::<Meta>(&bytes) {
        Ok(meta)
            if is_of_version(meta.v, stamp)
                && (1..=SEQ_MAX + 1).contains(&meta.next_seq)
                && meta.lost.is_sane() =>
        {
            MetaFound::Good(meta)
        }
        _ => MetaFound::Damaged,
    })
}

fn is_of_version(v: u8, stamp: Stamp) -> bool {
    match stamp {
        Stamp::Sound => (BARE_VERSION..=META_UNPROVEN_VERSION).contains(&v),
        Stamp::Absent => (BARE_VERSION..=BARE_UNPROVEN_VERSION).contains(&v),
        Stamp::Wrong => false,
    }
}

/// Whole, by rename; synced only where it says that all is clean.
pub fn write(disk: &dyn Disk, layout: &Layout, meta: &Meta) -> Result<(), JournalError> {
    put(disk, layout, meta, meta.clean)
}

/// Before anything is written after a clean end: a power cut must not find the flag still there.
pub fn soil(
    disk: &dyn Disk,
    layout: &Layout,
    meta: &Meta,
    boot: Option<String>,
) -> Result<(), JournalError> {
    let mut soiled = Meta {
        clean: false,
        boot,
        ..meta.clone()
    };
    // As this build writes it, whoever wrote it before.
    soiled.set_unproven(meta.is_unproven());
    put(disk, layout, &soiled, true)
}

fn put(
    disk: &dyn Disk,
    layout: &Layout,
    meta: &Meta,
    must_survive: bool,
) -> Result<(), JournalError> {
    let path = layout.meta();
    let bytes = stamp::stamped(meta)?;
    replace(disk, &path, &bytes, must_survive).at(&path)
}
