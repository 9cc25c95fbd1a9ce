//! The end of a connection at a broker's door: what was answered arrives, also where the request was not read to its end.
//!
//! A socket that is closed while bytes wait in it unread takes back what was written to it: the peer finds a broken
//! connection where its answer was. So this says that nothing more comes, and then reads on for a while and keeps nothing.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use heddle_core::limits::{UNREAD_BYTES_MAX, UNREAD_WAIT};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What is read at once of what nobody wants.
const PIECE_BYTES: usize = 16 << 10;

pub struct OrderlyEnd<S> {
    stream: S,
    ending: Option<Ending>,
}

struct Ending {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> OrderlyEnd<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            ending: None,
        }
    }
}

impl<S: AsyncRead + Unpin> OrderlyEnd<S> {
    /// Done when the peer has closed its side as well, and no later than the bounds say.
    fn discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(ending) = &mut self.ending else {
            return Poll::Ready(());
        };
        let mut piece = [0; PIECE_BYTES];
        while ending.until.as_mut().poll(context).is_pending() {
            let mut read = ReadBuf::new(&mut piece);
            let came = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
            let left = ending.bytes_left.checked_sub(read.filled().len());
            match (came, left) {
                (Ok(()), Some(left)) if !read.filled().is_empty() => ending.bytes_left = left,
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for OrderlyEnd<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            self.ending = Some(Ending {
                until: Box::pin(tokio::time::sleep(UNREAD_WAIT)),
                bytes_left: UNREAD_BYTES_MAX,
            });
        }
        ready!(self.discard(context));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for OrderlyEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
