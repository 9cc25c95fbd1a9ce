//! A stream with the bytes that were already read from it put back in front.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gives what was read before, then whatever the stream gives.
pub(in crate::ipc) struct Rewound<S> {
    before: Vec<u8>,
    given: usize,
    stream: S,
}

impl<S> Rewound<S> {
    /// `buffer[start..end]` has not been answered yet.
    pub(super) fn new(mut buffer: Vec<u8>, start: usize, end: usize, stream: S) -> Self {
        buffer.truncate(end);
        Self {
            before: buffer,
            given: start,
            stream,
        }
    }

    /// What was read and not given yet, and the stream.
    pub(super) fn into_parts(mut self) -> (Vec<u8>, S) {
        self.before.drain(..self.given);
        (self.before, self.stream)
    }

    /// The same bytes before another stream.
    pub(super) fn map<T>(self, change: impl FnOnce(S) -> T) -> Rewound<T> {
        Rewound {
            before: self.before,
            given: self.given,
            stream: change(self.stream),
        }
    }

    pub(super) fn try_map<T>(
        self,
        change: impl FnOnce(S) -> io::Result<T>,
    ) -> io::Result<Rewound<T>> {
        Ok(Rewound {
            before: self.before,
            given: self.given,
            stream: change(self.stream)?,
        })
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Nothing was read yet.
    pub(in crate::ipc) fn fresh(stream: S) -> Self {
        Self::new(Vec::new(), 0, 0, stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.before[self.given..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.given += count;
        if self.given == self.before.len() {
            // A stream may live for days.
            (self.before, self.given) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
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
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn bytes_come_once_and_in_order_whatever_the_readers_buffer() {
        for step in 1..8 {
            let mut stream = Rewound::new(b"xxabcde".to_vec(), 2, 6, &b"fghij"[..]);
            let (mut all, mut piece) = (Vec::new(), vec![0; step]);
            loop {
                match stream.read(&mut piece).await.unwrap() {
                    0 => break,
                    count => all.extend_from_slice(&piece[..count]),
                }
            }
            assert_eq!(all, b"abcdfghij", "{step} at a time");
        }
    }
}
