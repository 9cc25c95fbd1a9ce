//! Who is connected now, and how to give them a hint. Nothing here is truth: it all comes back from
//! the tables when it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::limits::BLOB_ASKS_MAX;
use heddle_core::membership::Bar;
use heddle_core::names::QueueName;
use heddle_core::negotiate::ConnectionPolicy;
use heddle_wire::broker::ServerFrame;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::ending::Ending;
use super::waits::Waits;
use super::writer::{Outbox, WeakOutbox};
use crate::accept::Effects;

/// One live connection of a member. A later one has a higher generation.
pub(super) struct Session {
    pub(super) mesh: MeshId,
    pub(super) member: MemberId,
    pub(super) generation: u64,
    /// There may be new deliveries.
    pub(super) wake: Notify,
    /// The roster may have changed.
    pub(super) roster: Notify,
    /// Queues that it waits for.
    pub(super) waits: Waits,
    /// The log may have grown.
    pub(super) log: Notify,
    /// Places for parts of files that it asked for.
    pub(super) parts: Arc<Semaphore>,
    /// Where it is written to, by others too.
    outbox: OnceLock<WeakOutbox>,
    /// It has read the log, so hints about it are understood.
    reads_log: AtomicBool,
    /// Something came from the peer since somebody last asked.
    heard: AtomicBool,
    /// Pings and pongs of the peer since somebody last forgot them.
    idle_words: AtomicU32,
    /// Why the member is heard no more; then it is replaced by nobody.
    barred: OnceLock<Bar>,
    /// Set when a newer connection takes over, or the member was shut out or blocked.
    pub(super) replaced: CancellationToken,
    /// Set when nothing of this connection is at work any more.
    pub(super) ended: CancellationToken,
}

impl Session {
    pub(super) fn new(mesh: MeshId, member: MemberId, generation: u64) -> Self {
        Self {
            mesh,
            member,
            generation,
            wake: Notify::new(),
            roster: Notify::new(),
            waits: Waits::default(),
            log: Notify::new(),
            parts: Arc::new(Semaphore::new(BLOB_ASKS_MAX)),
            outbox: OnceLock::new(),
            reads_log: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            idle_words: AtomicU32::new(0),
            barred: OnceLock::new(),
            replaced: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Why this connection was told to end.
    pub(super) fn replaced_by(&self) -> Ending {
        match self.barred.get() {
            Some(bar) => Ending::Denied((*bar).into()),
            None => Ending::Replaced,
        }
    }

    /// Ends it because its member is heard no more.
    pub(super) fn cut(&self, bar: Bar) {
        let _ = self.barred.set(bar);
        self.replaced.cancel();
    }

    /// From now on others can write to it.
    pub(super) fn write_to(&self, outbox: &Outbox) {
        let _ = self.outbox.set(outbox.weak());
    }

    /// Says something to it if that can be said at once.
    pub(super) fn offer(&self, frame: &ServerFrame) -> bool {
        let outbox = self.outbox.get();
        outbox.is_some_and(|outbox| outbox.offer(frame, None))
    }

    /// The peer lives.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// One more ping or pong; how many of late. Each costs us an answer and brings nothing: more of them than any peer
    /// needs are an attack (T-25).
    pub(super) fn idle_word(&self) -> u32 {
        self.idle_words.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn forget_idle_words(&self) {
        self.idle_words.store(0, Ordering::Relaxed);
    }

    /// From now on it hears when the log grows.
    pub(super) fn follow_log(&self) {
        self.reads_log.store(true, Ordering::Relaxed);
    }

    /// Whether it has shown life since the last time that this was asked.
    pub(super) fn was_heard(&self) -> bool {
        self.heard.swap(false, Ordering::Relaxed)
    }
}

/// The live connections of one mesh, by member and generation.
type Room = BTreeMap<(MemberId, u64), Arc<Session>>;

#[derive(Default)]
pub(super) struct Hub {
    rooms: Mutex<BTreeMap<MeshId, Room>>,
}

impl Hub {
    /// Lets a connection in as the policy says. Returns those that it replaces; they are told.
    pub(super) fn enter(
        &self,
        session: &Arc<Session>,
        policy: ConnectionPolicy,
    ) -> Result<Vec<Arc<Session>>, Ending> {
        let mut rooms = self.lock();
        let room = rooms.entry(session.mesh).or_default();
        let mine: Vec<_> = of_member(room, session.member).cloned().collect();
        let replaced = match policy {
            ConnectionPolicy::AllowConcurrent => Vec::new(),
            ConnectionPolicy::PreferOldest if mine.is_empty() => Vec::new(),
            ConnectionPolicy::PreferOldest => return Err(Ending::RefusedForOlder),
            // A newer one overtook this one on its way in.
            ConnectionPolicy::PreferNewest
                if mine
                    .iter()
                    .any(|other| other.generation > session.generation) =>
            {
                return Err(Ending::Replaced);
            }
            ConnectionPolicy::PreferNewest => mine,
        };
        for older in &replaced {
            older.replaced.cancel();
        }
        room.insert((session.member, session.generation), Arc::clone(session));
        metrics::gauge!("heddle_broker_connections").increment(1.0);
        Ok(replaced)
    }

    /// Takes out this very connection; a newer one of the same member stays (its generation differs).
    pub(super) fn leave(&self, session: &Session) {
        let mut rooms = self.lock();
        if let Some(room) = rooms.get_mut(&session.mesh) {
            if room.remove(&(session.member, session.generation)).is_some() {
                metrics::gauge!("heddle_broker_connections").decrement(1.0);
            }
            if room.is_empty() {
                rooms.remove(&session.mesh);
            }
        }
        session.ended.cancel();
    }

    /// Ends every connection of a member that was shut out or blocked; the table says so already (T-30).
    pub(super) fn cut(&self, mesh: MeshId, member: MemberId, bar: Bar) {
        let rooms = self.lock();
        for session in rooms
            .get(&mesh)
            .into_iter()
            .flat_map(|r| of_member(r, member))
        {
            session.cut(bar);
        }
    }

    /// The newest connection of a member, if there is one here.
    pub(super) fn newest(&self, mesh: MeshId, member: MemberId) -> Option<Arc<Session>> {
        let rooms = self.lock();
        of_member(rooms.get(&mesh)?, member).next_back().cloned()
    }

    pub(super) fn online(&self, mesh: MeshId) -> BTreeSet<MemberId> {
        let rooms = self.lock();
        let room = rooms.get(&mesh);
        room.into_iter()
            .flat_map(|room| room.keys().map(|(member, _)| *member))
            .collect()
    }

    /// Runs what follows from a commit.
    pub(super) fn run(&self, effects: &Effects) {
        if effects.roster {
            self.roster_changed(effects.mesh, None);
        }
        for queue in &effects.work {
            self.work_came(effects.mesh, queue);
        }
        if effects.wake.is_empty() && !effects.log {
            return;
        }
        let rooms = self.lock();
        let Some(room) = rooms.get(&effects.mesh) else {
            return;
        };
        for session in room.values().filter(|_| effects.log) {
            if session.reads_log.load(Ordering::Relaxed) {
                session.log.notify_one();
            }
        }
        for member in &effects.wake {
            for session in of_member(room, *member) {
                session.wake.notify_one();
            }
        }
    }

    /// Tells whoever reads the log that there is more of it.
    pub(super) fn log_grew(&self, mesh: MeshId) {
        let rooms = self.lock();
        for session in rooms.get(&mesh).into_iter().flat_map(BTreeMap::values) {
            if session.reads_log.load(Ordering::Relaxed) {
                session.log.notify_one();
            }
        }
    }

    /// Tells every connection that waits for work of this queue.
    pub(super) fn work_came(&self, mesh: MeshId, queue: &QueueName) {
        let rooms = self.lock();
        for session in rooms.get(&mesh).into_iter().flat_map(BTreeMap::values) {
            session.waits.came(queue);
        }
    }

    /// Tells every connection of the mesh to look at the roster, but the one that knows already.
    pub(super) fn roster_changed(&self, mesh: MeshId, except: Option<&Session>) {
        let rooms = self.lock();
        for session in rooms.get(&mesh).into_iter().flat_map(BTreeMap::values) {
            let knows = except.is_some_and(|known| std::ptr::eq(known, session.as_ref()));
            if !knows {
                session.roster.notify_one();
            }
        }
    }

    /// Ends the connections of a member that are older than one that began elsewhere.
    pub(super) fn replace_older(&self, mesh: MeshId, member: MemberId, generation: u64) {
        let rooms = self.lock();
        let room = rooms.get(&mesh).into_iter();
        for session in room.flat_map(|room| of_member(room, member)) {
            if session.generation < generation {
                session.replaced.cancel();
            }
        }
    }

    /// Everything may have changed, in this mesh or in all of them.
    pub(super) fn look_at_everything(&self, mesh: Option<MeshId>) {
        let rooms = self.lock();
        let meant = rooms
            .iter()
            .filter(|(room, _)| mesh.is_none_or(|mesh| mesh == **room));
        for session in meant.flat_map(|(_, room)| room.values()) {
            session.wake.notify_one();
            session.roster.notify_one();
            session.waits.all_came();
            if session.reads_log.load(Ordering::Relaxed) {
                session.log.notify_one();
            }
        }
    }

    /// The meshes that somebody is connected to.
    pub(super) fn meshes(&self) -> Vec<MeshId> {
        self.lock().keys().copied().collect()
    }

    /// Nothing that can panic half way runs under this lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MeshId, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_member(room: &Room, member: MemberId) -> impl DoubleEndedIterator<Item = &Arc<Session>> {
    room.range((member, 0)..=(member, u64::MAX))
        .map(|(_, session)| session)
}
