//! Refusals that hyper writes by itself, said in our own words.
//!
//! A request that is no HTTP, or has too long a head or target, never reaches a route: hyper answers
//! it with a bare status. This stands between hyper and the socket and puts a problem document in
//! the place of such an answer; everything else passes untouched. Ours are told apart by their head:
//! no answer of our own has an error status and an empty body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use heddle_core::error_code::ErrorCode;
use heddle_wire::problem::{PROBLEM_JSON, Problem};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) struct OwnWords<S> {
    stream: S,
    /// What is being written in place of hyper's answer, and how far it got.
    instead: Option<(Vec<u8>, usize)>,
}

impl<S> OwnWords<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            instead: None,
        }
    }
}

/// Our answer in place of this one, if it is hyper's own.
fn in_place_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.1 4")?.get(..2)?;
    let head = std::str::from_utf8(bytes).ok()?;
    if !head.ends_with("\r\n\r\n") || !head.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    let (label, problem) = match status {
        b"14" => (
            "414",
            Problem::new(ErrorCode::UriTooLong, "the request target is too long"),
        ),
        b"31" => (
            "431",
            Problem::new(ErrorCode::HeadersTooLarge, "the request head is too long"),
        ),
        b"00" => (
            "400",
            Problem::new(ErrorCode::InvalidRequest, "this is not an HTTP/1.1 request")
                .next("Speak HTTP/1.1; GET /v1/openapi.json describes the routes."),
        ),
        _ => return None,
    };
    metrics::counter!("heddle_ipc_refused_unread_total", "status" => label).increment(1);
    let body = serde_json::to_string(&problem).ok()?;
    let line = head.lines().next()?;
    Some(
        format!(
            "{line}\r\ncontent-type: {PROBLEM_JSON}\r\ncache-control: no-store\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    )
}

impl<S: AsyncWrite + Unpin> OwnWords<S> {
    /// Writes on what stands in place of `whole` bytes; done when all of it is written.
    fn write_instead(
        &mut self,
        context: &mut Context<'_>,
        whole: usize,
    ) -> Poll<io::Result<usize>> {
        while let Some((bytes, done)) = &mut self.instead {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &bytes[*done..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *done += written;
            if *done == bytes.len() {
                self.instead = None;
            }
        }
        Poll::Ready(Ok(whole))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OwnWords<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            let Some(instead) = in_place_of(bytes) else {
                return Pin::new(&mut self.stream).poll_write(context, bytes);
            };
            self.instead = Some((instead, 0));
        }
        self.write_instead(context, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A bare head is one slice; an answer with a body has more, or one that is no bare head.
        match slices {
            [only] => self.poll_write(context, only),
            _ => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        }
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

impl<S: AsyncRead + Unpin> AsyncRead for OwnWords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_refusal_of_hyper_is_replaced() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let ours = String::from_utf8(in_place_of(bare.as_bytes()).unwrap()).unwrap();
        assert!(
            ours.starts_with("HTTP/1.1 431 ") && ours.contains("\"next\""),
            "{ours}"
        );
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "{\"a\":1}",
            "",
        ] {
            assert_eq!(in_place_of(other.as_bytes()), None, "{other}");
        }
    }
}
