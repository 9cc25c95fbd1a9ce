//! Getting the bytes of large files that other members shared: part by part from a member that is
//! connected, gathered beside the blobs, and made a blob only when the whole has the hash of its op.
//!
//! One loop for each mesh, apart from its sync: ops never wait for bytes. What has come survives a crash
//! and a change of the giver. Nothing here trusts a giver: a whole with another hash is thrown away, and
//! whoever gave all of it is not asked for it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::backoff::backoff;
use heddle_core::file::ContentHash;
use heddle_core::ids::{MemberId, OpId};
use heddle_core::limits::{
    BLOB_PART_BYTES_MAX, BLOB_PART_TIMEOUT, BLOBS_WANTED_MAX, FILE_BYTES_MAX, SYNC_IDLE_TICK,
};
use heddle_store::{BlobError, Landed, MissingBlob, Partial, Store, StoreError};
use heddle_wire::broker::{BlobPlace, ReplyResult, Request};
use tokio::sync::{Notify, watch};

use crate::link::Live;
use crate::mesh::MeshState;
use crate::shared::{Shared, lock};

/// The broker answers after a giver's time at the latest; a little for the way.
const ANSWER_WAIT: Duration = Duration::from_secs(BLOB_PART_TIMEOUT.as_secs() + 5);
/// When too much is on its way already: how long, and how often, to wait for a place.
const BUSY_WAIT: Duration = Duration::from_millis(200);
const BUSY_TRIES_MAX: u32 = 25;
/// Members that are asked for one blob in one round.
const GIVERS_MAX: usize = 8;

/// What the rest of the daemon knows of a mesh's fetching.
#[derive(Debug)]
pub(crate) struct Fetch {
    wake: Notify,
    /// Rises with each blob that has arrived.
    arrived: watch::Sender<u64>,
    /// Which blob is on its way, and how much of it is here.
    under_way: Mutex<Option<(ContentHash, u64)>>,
}

impl Default for Fetch {
    fn default() -> Self {
        Self {
            wake: Notify::new(),
            arrived: watch::Sender::new(0),
            under_way: Mutex::default(),
        }
    }
}

impl Fetch {
    /// Something may be missing, or somebody may have it now. A hint: the table is the truth.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrived.subscribe()
    }

    /// How many bytes of this blob are here, if it is the one that is on its way.
    pub(crate) fn have(&self, hash: ContentHash) -> Option<u64> {
        let under_way = *lock(&self.under_way);
        under_way.and_then(|(which, have)| (which == hash).then_some(have))
    }

    fn is_at(&self, hash: ContentHash, have: u64) {
        *lock(&self.under_way) = Some((hash, have));
    }
}

/// Runs until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>, mesh: Arc<MeshState>) {
    let mut fetching = Fetching::default();
    while !shared.shutdown.is_cancelled() {
        match fetching.round(&shared, &mesh).await {
            Ok(()) => {}
            Err(StoreError::Stopped | StoreError::Poisoned(_)) => return,
            Err(error) => {
                tracing::warn!(%error, mesh = %mesh.mesh.name, "files of others cannot be fetched");
            }
        }
        tokio::select! {
            () = mesh.fetch.wake.notified() => {}
            () = tokio::time::sleep(SYNC_IDLE_TICK) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}

/// How one blob went.
#[derive(Debug, PartialEq, Eq)]
enum Went {
    Arrived,
    /// Nobody who is connected has it.
    Absent,
    /// What came was not it; from this member, if all of it came from one.
    Damaged(Option<MemberId>),
    NoRoom,
    Failed,
    /// The connection or the daemon ends; or another mesh fetches it just now.
    Interrupted,
}

impl Went {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Arrived => "arrived",
            Self::Absent => "absent",
            Self::Damaged(_) => "damaged",
            Self::NoRoom => "no_room",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What a loop remembers between two rounds, of blobs that are missing still.
#[derive(Default)]
struct Fetching {
    tried: BTreeMap<ContentHash, Tried>,
}

#[derive(Default)]
struct Tried {
    failures: u32,
    not_before: Duration,
    liars: BTreeSet<MemberId>,
    /// The ops that had shared it then.
    shared: BTreeSet<OpId>,
}

impl Fetching {
    /// Every blob that is missing and due, once.
    async fn round(&mut self, shared: &Arc<Shared>, mesh: &MeshState) -> Result<(), StoreError> {
        let mut after = None;
        let mut seen = BTreeSet::new();
        loop {
            let Some(live) = mesh.live().filter(|live| live.offers().blobs) else {
                return Ok(());
            };
            let page = shared
                .store
                .missing_blobs(mesh.mesh.mesh, after, BLOBS_WANTED_MAX)
                .await?;
            let Some(last) = page.last() else {
                self.tried.retain(|hash, _| seen.contains(hash));
                return Ok(());
            };
            after = Some(last.hash);
            for missing in page {
                seen.insert(missing.hash);
                self.forgive(&missing);
                if !self.is_due(&missing, shared.clock.mono()) {
                    continue;
                }
                let went = self.one(shared, mesh, &live, &missing).await?;
                metrics::counter!("heddle_blob_fetches_total", "outcome" => went.as_str())
                    .increment(1);
                *lock(&mesh.fetch.under_way) = None;
                if went == Went::Interrupted {
                    return Ok(());
                }
                self.note(shared, mesh, &missing, went);
            }
        }
    }

    /// Whoever shared it again has put good bytes there: nothing that was tried before counts.
    fn forgive(&mut self, missing: &MissingBlob) {
        if let Some(tried) = self.tried.get_mut(&missing.hash)
            && tried.shared.insert(missing.shared)
        {
            tried.failures = 0;
            tried.not_before = Duration::ZERO;
            tried.liars.clear();
        }
    }

    fn is_due(&self, missing: &MissingBlob, now: Duration) -> bool {
        let tried = self.tried.get(&missing.hash);
        tried.is_none_or(|tried| tried.not_before <= now) && missing.size <= FILE_BYTES_MAX
    }

    fn note(&mut self, shared: &Shared, mesh: &MeshState, missing: &MissingBlob, went: Went) {
        let hash = missing.hash;
        if went == Went::Arrived {
            self.tried.remove(&hash);
            mesh.fetch.arrived.send_modify(|count| *count += 1);
            tracing::debug!(%hash, size = missing.size, "a file of another home is here");
            return;
        }
        let tried = self.tried.entry(hash).or_default();
        tried.shared.insert(missing.shared);
        let wait = backoff(tried.failures, shared.ids.below(u64::MAX));
        tried.failures = tried.failures.saturating_add(1);
        tried.not_before = shared.clock.mono().saturating_add(wait);
        match went {
            Went::Damaged(giver) => {
                tried.liars.extend(giver);
                tracing::warn!(%hash, ?giver, mesh = %mesh.mesh.name, "what a member gave as a shared file is not that file; it was thrown away");
            }
            Went::NoRoom => {
                tracing::warn!(%hash, size = missing.size, "a shared file is not fetched: the disk is too full");
            }
            _ => {}
        }
    }

    async fn one(
        &self,
        shared: &Arc<Shared>,
        mesh: &MeshState,
        live: &Live,
        missing: &MissingBlob,
    ) -> Result<Went, StoreError> {
        let MissingBlob { hash, size, .. } = *missing;
        let blobs = shared.blobs.clone();
        let found = blocking(move || Store::found_blob(&blobs, hash, size)).await?;
        if let Some(landed) = found {
            return arrive(shared, landed).await;
        }
        if !shared.disk.has_room_for(size) {
            return Ok(Went::NoRoom);
        }
        let blobs = shared.blobs.clone();
        let partial = match blocking(move || blobs.partial(hash)).await? {
            Ok(Some(partial)) => partial,
            Ok(None) => return Ok(Went::Interrupted),
            Err(error) => return Ok(failed(&error)),
        };
        let none = BTreeSet::new();
        let liars = self.tried.get(&hash).map_or(&none, |tried| &tried.liars);
        let mut gathering = Gathering {
            shared,
            mesh,
            live,
            missing,
            partial,
            giver: None,
        };
        let mut went = Went::Absent;
        for member in givers(mesh, missing, liars) {
            match gathering.from(member).await? {
                Gathered::Whole => return gathering.finish().await,
                Gathered::Absent => {}
                Gathered::Stop(why) => {
                    went = why;
                    break;
                }
            }
        }
        Ok(went)
    }
}

/// Who may have it: its owner first, then whoever else is here.
fn givers(mesh: &MeshState, missing: &MissingBlob, liars: &BTreeSet<MemberId>) -> Vec<MemberId> {
    let owner = missing.owner.as_str().split('/').next();
    let owner: Option<MemberId> = owner.and_then(|text| text.parse().ok());
    let mut online: Vec<MemberId> = mesh.with_known(|known| {
        let members = known.roster.members.iter();
        members
            .filter(|member| member.online && member.member != known.own_member)
            .map(|member| member.member)
            .collect()
    });
    online.retain(|member| !liars.contains(member));
    online.sort_by_key(|member| Some(*member) != owner);
    online.truncate(GIVERS_MAX);
    online
}

/// What one member had.
enum Gathered {
    Whole,
    Absent,
    Stop(Went),
}

/// A blob that grows.
struct Gathering<'a> {
    shared: &'a Arc<Shared>,
    mesh: &'a MeshState,
    live: &'a Live,
    missing: &'a MissingBlob,
    partial: Partial,
    /// Who gave every byte of it, if that was one.
    giver: Option<MemberId>,
}

impl Gathering<'_> {
    async fn from(&mut self, member: MemberId) -> Result<Gathered, StoreError> {
        let MissingBlob { hash, size, .. } = *self.missing;
        if self.partial.have() > size
            && let Err(error) = self.partial.restart()
        {
            return Ok(Gathered::Stop(failed(&error)));
        }
        self.giver = (self.partial.have() == 0).then_some(member);
        let mut busy = 0;
        loop {
            let offset = self.partial.have();
            self.mesh.fetch.is_at(hash, offset);
            let left = size.saturating_sub(offset);
            if left == 0 {
                return Ok(Gathered::Whole);
            }
            if self.shared.shutdown.is_cancelled() {
                return Ok(Gathered::Stop(Went::Interrupted));
            }
            if !self.shared.disk.has_room_for(left) {
                return Ok(Gathered::Stop(Went::NoRoom));
            }
            let length = u32::try_from(left)
                .unwrap_or(u32::MAX)
                .min(BLOB_PART_BYTES_MAX);
            let part = BlobPlace {
                sha256: hash,
                offset,
                length,
            };
            let ask = Request::BlobRead { member, part };
            match self.live.request_within(ask, ANSWER_WAIT).await {
                Some(ReplyResult::BlobPart { data })
                    if !data.0.is_empty() && data.0.len() <= length as usize =>
                {
                    if let Err(error) = self.partial.append(&data.0) {
                        return Ok(Gathered::Stop(failed(&error)));
                    }
                    let bytes = data.0.len() as u64;
                    metrics::counter!("heddle_blob_bytes_fetched_total").increment(bytes);
                    busy = 0;
                }
                Some(ReplyResult::Refused(_)) if busy < BUSY_TRIES_MAX => {
                    busy += 1;
                    tokio::time::sleep(BUSY_WAIT).await;
                }
                Some(_) => return Ok(Gathered::Absent),
                None if self.mesh.is_connected() => return Ok(Gathered::Absent),
                None => return Ok(Gathered::Stop(Went::Interrupted)),
            }
        }
    }

    /// The whole is looked at before anybody can see it.
    async fn finish(self) -> Result<Went, StoreError> {
        let (partial, size, giver) = (self.partial, self.missing.size, self.giver);
        match blocking(move || partial.finish(size)).await? {
            Ok(landed) => arrive(self.shared, landed).await,
            Err(BlobError::Damaged { .. }) => Ok(Went::Damaged(giver)),
            Err(error) => Ok(failed(&error)),
        }
    }
}

async fn arrive(shared: &Shared, landed: Landed) -> Result<Went, StoreError> {
    // Nobody may name it any more: then the sweep takes it away, and it is not missing either.
    shared.store.blob_arrived(landed).await?;
    Ok(Went::Arrived)
}

fn failed(error: &BlobError) -> Went {
    tracing::warn!(%error, "a shared file of another home cannot be kept");
    match error {
        BlobError::Full => Went::NoRoom,
        _ => Went::Failed,
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| StoreError::Unavailable(error.to_string()))
}
