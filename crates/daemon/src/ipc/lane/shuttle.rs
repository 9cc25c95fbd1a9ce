//! The shuttle: one thread for the connections that send again and again.
//!
//! It reads what all of them have said, takes it through one commit, and answers all of them: a message costs
//! two calls of the kernel and no change of thread. Each connection is the same future that
//! the runtime runs for a first send (`lane::run`), so there is one way to answer a send. Who says something
//! else goes back to the runtime with every byte.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as PlainStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::socket::{Socket, Watched};
use super::{Left, Rewound, run};
use crate::ipc::Ipc;

/// The place of the bell among the kernel's signs.
const BELL: u64 = u64::MAX;
/// Signs taken at once.
const SIGNS_MAX: usize = 256;
/// How often the shuttle looks for more to take along before it commits what it has.
const LOOKS_MAX: usize = 4;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
const WATCHED: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// Where a connection goes that says something else than sends.
pub(in crate::ipc) type Leave = Box<dyn Fn(Rewound<UnixStream>, OwnedSemaphorePermit) + Send>;

/// The handle of the thread.
pub(in crate::ipc) struct Shuttle {
    yard: Arc<Yard>,
}

/// What the thread shares with others.
struct Yard {
    epoll: OwnedFd,
    /// Rung when something has changed that no watched socket tells.
    bell: OwnedFd,
    boarding: Mutex<Vec<Passenger>>,
    woken: Mutex<Vec<usize>>,
    thread: OnceLock<ThreadId>,
    /// A ring that was not heard yet stands for all that follow.
    is_rung: AtomicBool,
    /// Nobody boards any more; the thread ends with its last passenger.
    is_closing: AtomicBool,
}

/// A connection on its way to the shuttle.
struct Passenger {
    stream: Rewound<PlainStream>,
    permit: OwnedSemaphorePermit,
}

impl Shuttle {
    /// Starts the thread. It is told over when nobody can board any more and the last has left.
    pub(in crate::ipc) fn start(
        ipc: Arc<Ipc>,
        leave: Leave,
    ) -> io::Result<(Shuttle, oneshot::Receiver<()>)> {
        let yard = Arc::new(Yard {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            boarding: Mutex::default(),
            woken: Mutex::default(),
            thread: OnceLock::new(),
            is_rung: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
        });
        let data = epoll::EventData::new_u64(BELL);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&yard.epoll, &yard.bell, data, flags)?;
        let (over, is_over) = oneshot::channel();
        let runtime = Handle::current();
        let thread_yard = Arc::clone(&yard);
        thread::Builder::new()
            .name("heddle-shuttle".to_owned())
            .spawn(move || {
                // The clock of a connection's silence is the runtime's.
                let _entered = runtime.enter();
                Loom::new(ipc, thread_yard, leave).weave();
                let _ = over.send(());
            })?;
        Ok((Shuttle { yard }, is_over))
    }

    /// Hands a connection over.
    pub(in crate::ipc) fn board(&self, stream: Rewound<UnixStream>, permit: OwnedSemaphorePermit) {
        match stream.try_map(UnixStream::into_std) {
            Ok(stream) => {
                lock(&self.yard.boarding).push(Passenger { stream, permit });
                self.yard.ring();
            }
            // The kernel does not let go of it: its client sees an end between two answers, and comes again.
            Err(error) => tracing::warn!(%error, "a connection was lost between two threads"),
        }
    }

    /// Nobody boards any more.
    pub(in crate::ipc) fn close(&self) {
        self.yard.is_closing.store(true, Ordering::Release);
        self.yard.ring();
    }
}

impl Yard {
    fn ring(&self) {
        if self.is_rung.swap(true, Ordering::SeqCst) {
            return;
        }
        // A bell that cannot take one more ring is ringing.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// Wakes one place: by the list alone if the thread itself does it.
struct Call {
    place: usize,
    yard: Arc<Yard>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.yard.woken).push(self.place);
        if self.yard.thread.get() != Some(&thread::current().id()) {
            self.yard.ring();
        }
    }
}

/// A connection in its place.
struct Seat {
    journey: Pin<Box<dyn Future<Output = Left<Socket>>>>,
    watched: Rc<Watched>,
    waker: Waker,
    permit: OwnedSemaphorePermit,
}

/// The thread's own side.
struct Loom {
    ipc: Arc<Ipc>,
    yard: Arc<Yard>,
    leave: Leave,
    seats: Vec<Option<Seat>>,
    free: Vec<usize>,
}

impl Loom {
    fn new(ipc: Arc<Ipc>, yard: Arc<Yard>, leave: Leave) -> Self {
        Self {
            ipc,
            yard,
            leave,
            seats: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Until the last passenger of a closed shuttle has left.
    fn weave(mut self) {
        let _ = self.yard.thread.set(thread::current().id());
        let shared = Arc::clone(&self.ipc.shared);
        let mut signs = Vec::with_capacity(SIGNS_MAX);
        let mut ready = Vec::new();
        // Looks since the last commit; nobody who was polled since then may be left without one.
        let mut looks = 0;
        loop {
            self.listen(&mut signs, &mut ready, looks > 0);
            if !ready.is_empty() {
                shared.store.gather(|| {
                    for place in ready.drain(..) {
                        self.poll(place);
                    }
                });
                looks += 1;
                if looks < LOOKS_MAX {
                    continue;
                }
            }
            if looks > 0 {
                looks = 0;
                shared.store.lead_gathered();
            } else if self.is_over() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.yard.is_closing.load(Ordering::Acquire)
            && self.free.len() == self.seats.len()
            && lock(&self.yard.boarding).is_empty()
    }

    /// Collects who has to be polled; waits for one unless something is owed.
    fn listen(&mut self, signs: &mut Vec<epoll::Event>, ready: &mut Vec<usize>, is_owed: bool) {
        ready.append(&mut lock(&self.yard.woken));
        let patience = (is_owed || !ready.is_empty()).then_some(&AT_ONCE);
        if epoll::wait(&self.yard.epoll, spare_capacity(signs), patience).is_err() {
            // Interrupted: whoever has a sign has it still.
            signs.clear();
        }
        for sign in signs.drain(..) {
            match sign.data.u64() {
                BELL => {
                    // IMPORTANT: in this order. A ring between the two would be taken for heard and silence all later
                    // ones; who rings after them is heard again, and who rang before them is in the lists.
                    let mut rings = [0; 8];
                    let _ = rustix::io::read(&self.yard.bell, &mut rings);
                    self.yard.is_rung.store(false, Ordering::SeqCst);
                    ready.append(&mut lock(&self.yard.woken));
                    self.seat_all(ready);
                }
                place => self.hear(place, sign.flags, ready),
            }
        }
    }

    fn hear(&self, place: u64, flags: epoll::EventFlags, ready: &mut Vec<usize>) {
        let Ok(place) = usize::try_from(place) else {
            return;
        };
        if let Some(Some(seat)) = self.seats.get(place) {
            seat.watched.note(flags);
            ready.push(place);
        }
    }

    fn seat_all(&mut self, ready: &mut Vec<usize>) {
        let boarding = std::mem::take(&mut *lock(&self.yard.boarding));
        for passenger in boarding {
            let place = self.free.pop().unwrap_or_else(|| {
                self.seats.push(None);
                self.seats.len() - 1
            });
            match self.seat(place, passenger) {
                Ok(seat) => {
                    self.seats[place] = Some(seat);
                    ready.push(place);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be watched");
                    self.free.push(place);
                }
            }
        }
    }

    fn seat(&self, place: usize, passenger: Passenger) -> io::Result<Seat> {
        let stream = passenger.stream.map(Socket::new);
        let watched = stream.get_ref().watched();
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&self.yard.epoll, &*watched, data, WATCHED)?;
        let ipc = Arc::clone(&self.ipc);
        let call = Call {
            place,
            yard: Arc::clone(&self.yard),
        };
        Ok(Seat {
            journey: Box::pin(async move { run(&ipc, stream, usize::MAX).await }),
            watched,
            waker: Waker::from(Arc::new(call)),
            permit: passenger.permit,
        })
    }

    /// Lets one connection go on as far as it can.
    fn poll(&mut self, place: usize) {
        let Some(Some(seat)) = self.seats.get_mut(place) else {
            return;
        };
        seat.watched.begin_turn();
        let journey = seat.journey.as_mut();
        let mut context = Context::from_waker(&seat.waker);
        // A panic outside of its answer is a bug of ours, but it takes only its own connection along.
        match catch_unwind(AssertUnwindSafe(|| journey.poll(&mut context))) {
            Ok(Poll::Pending) => {
                if seat.watched.take_wish_for_room() {
                    self.watch_for_room(place);
                }
            }
            Ok(Poll::Ready(Left::Other(stream) | Left::Regular(stream))) => {
                if let Some(permit) = self.vacate(place) {
                    self.let_go(stream, permit);
                }
            }
            Ok(Poll::Ready(Left::Ended)) | Err(_) => drop(self.vacate(place)),
        }
    }

    /// An answer did not fit. Watched only then: otherwise every answer that a client reads would be a sign.
    fn watch_for_room(&self, place: usize) {
        let Some(Some(seat)) = self.seats.get(place) else {
            return;
        };
        let data = epoll::EventData::new_u64(place as u64);
        let flags = WATCHED | epoll::EventFlags::OUT;
        if let Err(error) = epoll::modify(&self.yard.epoll, &*seat.watched, data, flags) {
            tracing::warn!(%error, "a connection cannot be watched for room");
        }
    }

    /// All of a seat but its permit ends here.
    fn vacate(&mut self, place: usize) -> Option<OwnedSemaphorePermit> {
        let seat = self.seats.get_mut(place)?.take()?;
        self.free.push(place);
        Some(seat.permit)
    }

    /// Back to the runtime.
    fn let_go(&self, stream: Rewound<Socket>, permit: OwnedSemaphorePermit) {
        let socket = stream.try_map(|socket| {
            epoll::delete(&self.yard.epoll, &*socket.watched())?;
            UnixStream::from_std(socket.into_stream()?)
        });
        match socket {
            Ok(stream) => (self.leave)(stream, permit),
            Err(error) => tracing::warn!(%error, "a connection was lost between two threads"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
