//! A minimal HTTP/1.1 client over a Unix socket: cheap enough not to be what is measured.

use std::path::Path;

use serde_json::Value;
use tokio::net::UnixStream;

use crate::buffered::Buffered;
use crate::error::{BenchError, Outcome, While as _};

/// One kept connection.
#[derive(Debug)]
pub struct Http {
    wire: Buffered<UnixStream>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
}

/// A whole request, rendered once and sent many times.
pub fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

impl Http {
    pub async fn connect(socket: &Path) -> Outcome<Self> {
        let stream = UnixStream::connect(socket)
            .await
            .or_fail(&format!("connecting to {}", socket.display()))?;
        Ok(Self {
            wire: Buffered::new(stream),
        })
    }

    pub async fn ask(&mut self, request: &[u8]) -> Outcome<Reply> {
        self.wire.write(request).await?;
        let (status, length) = self.head().await?;
        let body = self.wire.take(length.unwrap_or(0)).await?;
        Ok(Reply { status, body })
    }

    /// The hot path: only the status counts, and it must be the expected one.
    pub async fn ask_for(&mut self, request: &[u8], expected: u16) -> Outcome<()> {
        self.wire.write(request).await?;
        let (status, length) = self.head().await?;
        let length = length.unwrap_or(0);
        if status == expected {
            return self.wire.skip(length).await;
        }
        let body = self.wire.take(length).await?;
        Err(unexpected(status, &body))
    }

    /// Asks for a stream of events; the head is read, the events are not.
    pub async fn open_events(&mut self, request: &[u8]) -> Outcome<()> {
        self.wire.write(request).await?;
        match self.head().await? {
            (200, _) => Ok(()),
            (status, _) => Err(unexpected(status, b"")),
        }
    }

    /// Waits for the next event whose data holds `text`. The server writes whole events into each
    /// chunk, so the lines between them are chunk sizes, and skipped like any other.
    pub async fn event_with(&mut self, text: &[u8]) -> Outcome<()> {
        loop {
            let line = self.wire.line().await?;
            if line.starts_with(b"data:") && line.windows(text.len()).any(|part| part == text) {
                return Ok(());
            }
        }
    }

    async fn head(&mut self) -> Outcome<(u16, Option<usize>)> {
        let status = status_of(self.wire.line().await?)?;
        let mut length = None;
        loop {
            let line = self.wire.line().await?;
            if line.is_empty() {
                return Ok((status, length));
            }
            length = content_length(line)?.or(length);
        }
    }
}

/// How long the answer is that the bytes begin with, once it is whole. It must have the expected status.
pub fn whole(bytes: &[u8], expected: u16) -> Outcome<Option<usize>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(at) = bytes.windows(END.len()).position(|part| part == END) else {
        return Ok(None);
    };
    let (mut status, mut length) = (None, 0);
    for line in bytes[..at].split(|byte| *byte == b'\n') {
        if status.is_none() {
            status = Some(status_of(line)?);
        } else if let Some(value) = content_length(line.trim_ascii_end())? {
            length = value;
        }
    }
    let end = at + END.len() + length;
    match status {
        _ if bytes.len() < end => Ok(None),
        Some(status) if status != expected => Err(unexpected(status, &bytes[at + END.len()..end])),
        _ => Ok(Some(end)),
    }
}

fn status_of(line: &[u8]) -> Outcome<u16> {
    line.get(9..12)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| BenchError::new("not an HTTP answer"))
}

/// The value, if it is that header.
fn content_length(line: &[u8]) -> Outcome<Option<usize>> {
    match line.split_at_checked(15) {
        Some((name, value)) if name.eq_ignore_ascii_case(b"content-length:") => {
            let value = std::str::from_utf8(value).unwrap_or_default().trim();
            Ok(Some(value.parse().or_fail("content-length")?))
        }
        _ => Ok(None),
    }
}

impl Reply {
    /// The document of a 2xx.
    pub fn json(self) -> Outcome<Value> {
        if (200..300).contains(&self.status) {
            Ok(serde_json::from_slice(&self.body)?)
        } else {
            Err(unexpected(self.status, &self.body))
        }
    }
}

fn unexpected(status: u16, body: &[u8]) -> BenchError {
    BenchError::new(format!(
        "answer {status}: {}",
        String::from_utf8_lossy(body)
    ))
}
