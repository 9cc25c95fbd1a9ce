//! Standard input and output for the SDK, with an answer to what it drops: a line that is no JSON gets −32700.
//!
//! The SDK's own transport reads, parses and answers messages; it passes over lines that it cannot parse, so that
//! a client with a bug would wait for ever. Lines are looked at here first, and only JSON goes on.

use std::future::Future;
use std::io;

use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::{StdioReader, StdioWriter, stdio_pipes};
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::sync::mpsc;

/// The longest line; a message of an agent has at most a few megabytes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Bytes that wait between the look and the SDK.
const PIPE_BYTES: usize = 64 << 10;
/// Refusals that wait to be said: a client that does not read stops being read.
const REFUSALS_MAX: usize = 16;

/// Why a line goes nowhere.
type Refusal = &'static str;

pub(super) struct Stdio {
    messages: AsyncRwTransport<RoleServer, DuplexStream, StdioWriter>,
    refusals: mpsc::Receiver<Refusal>,
}

impl Stdio {
    /// Reads from now on. Called in the runtime, once.
    pub(super) fn open() -> Self {
        let (input, output) = stdio_pipes();
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (refuse, refusals) = mpsc::channel(REFUSALS_MAX);
        // Ends with the input, or when nobody takes its lines any more.
        tokio::spawn(look(BufReader::new(input), ours, refuse));
        Self {
            messages: AsyncRwTransport::new_server(theirs, output),
            refusals,
        }
    }

    async fn refuse(&mut self, why: Refusal) {
        // No id: it could not be read.
        let answer = TxJsonRpcMessage::<RoleServer>::error(ErrorData::parse_error(why, None), None);
        // A client that is gone is noticed by the next read.
        let _ = self.messages.send(answer).await;
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.messages.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // Both may be given up in the middle and lose nothing.
            tokio::select! {
                biased;
                Some(why) = self.refusals.recv() => self.refuse(why).await,
                message = self.messages.receive() => {
                    if message.is_none() {
                        // The last words of a client that is gone: it may still read.
                        while let Ok(why) = self.refusals.try_recv() {
                            self.refuse(why).await;
                        }
                    }
                    return message;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.messages.close().await
    }
}

/// Passes on what is JSON, line by line, and refuses the rest.
async fn look(
    mut input: BufReader<StdioReader>,
    mut on: DuplexStream,
    refuse: mpsc::Sender<Refusal>,
) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .await;
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        let is_whole = line.ends_with(b"\n");
        let why = if !is_whole && line.len() as u64 == LINE_BYTES_MAX {
            if skip_line(&mut input).await.is_err() {
                return;
            }
            Some("a line may have at most 16 MB")
        } else {
            (!is_json(&line)).then_some("the line is not JSON; one message a line")
        };
        let passed = match why {
            Some(why) => refuse.send(why).await.is_ok(),
            None => {
                if !is_whole {
                    // The end of the input ends its last line as well.
                    line.push(b'\n');
                }
                on.write_all(&line).await.is_ok()
            }
        };
        if !passed {
            return;
        }
    }
}

/// To the end of a line that is too long, a part at a time.
async fn skip_line(input: &mut BufReader<StdioReader>) -> io::Result<()> {
    loop {
        let part = input.fill_buf().await?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let (length, is_over) = (part.len(), part.is_empty() || end.is_some());
        input.consume(end.map_or(length, |end| end + 1));
        if is_over {
            return Ok(());
        }
    }
}

/// By the parser that the SDK asks, with its limits: what passes here is answered there. An empty line is nothing.
fn is_json(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = line.trim_ascii();
    line.is_empty() || serde_json::from_slice::<Value>(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_is_json_goes_on() {
        for line in [
            "{}",
            "[1]",
            " {\"a\": 1}\r\n",
            "\n",
            "",
            "\u{feff}{}\n",
            "3\n",
        ] {
            assert!(is_json(line.as_bytes()), "{line:?}");
        }
        for line in [
            "{",
            "hello\n",
            "{}{}\n",
            "{\"a\":}\n",
            "Content-Length: 12\r\n",
        ] {
            assert!(!is_json(line.as_bytes()), "{line:?}");
        }
        // As deep as nobody reads.
        assert!(!is_json("[".repeat(5_000).as_bytes()));
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        assert!(!is_json(deep.as_bytes()));
        assert!(!is_json(b"\xff\n"));
        assert!(!is_json(b"\"\xff\"\n"));
    }
}
