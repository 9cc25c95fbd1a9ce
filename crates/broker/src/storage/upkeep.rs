//! What keeps a store healthy over years: expiry, retention, checks, counts. And its promises.
//!
//! Every job is idempotent, runs in short transactions so that accepts go on between them, and may be
//! cut off anywhere. A claim on a job is a courtesy that keeps N brokers from doing the same work; two
//! that run at once do no harm.

use std::future::Future;
use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use heddle_core::names::MeshName;

use super::contract::Answer;
use super::rows::Orphan;

/// A job that one of N brokers does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// Expiry, retention and counts.
    Sweep,
    OrphanCheck,
}

impl Job {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::OrphanCheck => "orphan_check",
        }
    }
}

/// A claim that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobClaim {
    pub mesh: MeshId,
    pub job: Job,
    pub holder: String,
    pub now: WallMs,
    pub until: WallMs,
}

/// What a check looked at, and what it found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rows of the accept's effects.
    pub row_count: u64,
    pub orphans: Vec<Orphan>,
}

pub trait Upkeep: Send + Sync + 'static {
    /// The meshes of this store, sorted.
    fn meshes(&self) -> impl Future<Output = Answer<Vec<(MeshId, MeshName)>>> + Send;

    /// Claims a job until a time. `None`: it is ours. Otherwise who has it, and until when. A claim of
    /// the same holder is renewed; one that ended, or that reaches absurdly far, counts for nothing.
    fn claim_job(
        &self,
        wanted: JobClaim,
    ) -> impl Future<Output = Answer<Option<(String, WallMs)>>> + Send;

    /// Gives a claim of this holder back.
    fn release_job(
        &self,
        mesh: MeshId,
        job: Job,
        holder: &str,
    ) -> impl Future<Output = Answer<()>> + Send;

    /// How old the mesh was when somebody last kept it, in time that certainly passed; `None` before the first.
    fn age(&self, mesh: MeshId) -> impl Future<Output = Answer<Option<AgeMark>>> + Send;

    /// Keeps how old the mesh is, which never falls, and notes that everything up to its newest place existed by
    /// then. Of the notes from before `births_from` only the newest stays: whatever it stood for looks younger then.
    /// Returns the age that is kept, which another process may have brought further.
    fn keep_age(
        &self,
        mesh: MeshId,
        mark: AgeMark,
        births_from: Duration,
    ) -> impl Future<Output = Answer<Duration>> + Send;

    /// Forgets ids that were kept for longer than they were promised to be, in time that certainly passed (XC-05): a
    /// dedupe row is there until this deletes it (C36), and its place in history is marked in the same transaction.
    /// Returns how many.
    fn sweep_expired(
        &self,
        mesh: MeshId,
        age: Duration,
    ) -> impl Future<Output = Answer<usize>> + Send;

    /// Deletes bodies that existed when the mesh was so old, and says so at their ids in the same transaction
    /// (BR-13). What still waits for somebody stays. Returns how many.
    fn prune_messages(
        &self,
        mesh: MeshId,
        born: Duration,
    ) -> impl Future<Output = Answer<usize>> + Send;

    /// Adds what was accepted since the last time to the counters; returns how many messages that were.
    /// Nothing ever decides by these counters (RL-10).
    fn count_traffic(&self, mesh: MeshId) -> impl Future<Output = Answer<u64>> + Send;

    /// Messages accepted, by the hour in which that was.
    fn traffic(&self, mesh: MeshId) -> impl Future<Output = Answer<Vec<(WallMs, u64)>>> + Send;

    /// Every row of the effects that lacks one of the others, and every hole in the sequence; sorted.
    /// Empty at every quiet point (BR-14).
    fn orphan_check(&self, mesh: MeshId) -> impl Future<Output = Answer<Vec<Orphan>>> + Send;

    /// How many rows an orphan check looks at.
    fn effect_rows(&self, mesh: MeshId) -> impl Future<Output = Answer<u64>> + Send;
}

/// A claim that reaches further than any claim is made was set under another clock.
const CLAIM_MS_MAX: i64 = 60 * 60 * 1000;

/// Whether somebody's claim until `until` still counts. The wall clock may jump: a claim is then lost or
/// kept for at most an hour, and neither does harm.
pub(super) fn is_claimed(until: WallMs, now: WallMs) -> bool {
    until > now && until.0.saturating_sub(now.0) <= CLAIM_MS_MAX
}

const HOUR_MS: i64 = 60 * 60 * 1000;

/// The hour in which a time lies.
pub(super) fn traffic_hour(at: WallMs) -> WallMs {
    WallMs(at.0.div_euclid(HOUR_MS).saturating_mul(HOUR_MS))
}
