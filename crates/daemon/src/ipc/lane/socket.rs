//! A socket as the shuttle sees it: what it may be asked for right now is known without asking the kernel.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::event::epoll::EventFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The stream, and what the kernel has said of it. It does not block.
#[derive(Debug)]
pub(super) struct Watched {
    stream: UnixStream,
    readable: Cell<bool>,
    /// The other side says no more; what it has said may still be here.
    is_closed: Cell<bool>,
    /// An answer did not fit, and somebody must watch for room.
    wants_room: Cell<bool>,
    /// What may still be read before others have their turn.
    reads_left: Cell<u32>,
}

/// Who talks without a pause is heard so often before the next one is.
const READS_A_TURN: u32 = 4;

impl Watched {
    pub(super) fn begin_turn(&self) {
        self.reads_left.set(READS_A_TURN);
    }

    /// Takes the kernel's word.
    pub(super) fn note(&self, flags: EventFlags) {
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(ends) {
            self.is_closed.set(true);
        }
        if flags.intersects(ends | EventFlags::IN) {
            self.readable.set(true);
        }
    }

    /// Whether room has been asked for since the last question.
    pub(super) fn take_wish_for_room(&self) -> bool {
        self.wants_room.take()
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A connection that only its shuttle touches. Nothing here registers a waker: the shuttle polls whoever
/// has a sign.
#[derive(Debug)]
pub(super) struct Socket {
    watched: Rc<Watched>,
}

impl Socket {
    /// What the stream holds already is read before any sign is waited for.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            watched: Rc::new(Watched {
                stream,
                readable: Cell::new(true),
                is_closed: Cell::new(false),
                wants_room: Cell::new(false),
                reads_left: Cell::new(READS_A_TURN),
            }),
        }
    }

    pub(super) fn watched(&self) -> Rc<Watched> {
        Rc::clone(&self.watched)
    }

    /// For a runtime that watches it from now on.
    pub(super) fn into_stream(self) -> io::Result<UnixStream> {
        match Rc::try_unwrap(self.watched) {
            Ok(watched) => Ok(watched.stream),
            Err(shared) => shared.stream.try_clone(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.watched.readable.get() {
            return Poll::Pending;
        }
        let Some(reads_left) = self.watched.reads_left.get().checked_sub(1) else {
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        self.watched.reads_left.set(reads_left);
        let room = buffer.remaining();
        loop {
            match (&self.watched.stream).read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    // Less than there was room for is all there is; an end that was announced is still to come.
                    if count < room && !self.watched.is_closed.get() {
                        self.watched.readable.set(false);
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.watched.readable.set(false);
                    return Poll::Pending;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match (&self.watched.stream).write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.watched.wants_room.set(true);
                    return Poll::Pending;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.watched.stream.shutdown(Shutdown::Write))
    }
}
