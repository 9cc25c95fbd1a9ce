//! Server-sent events, read one at a time.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use super::body::Body;
use super::error::ClientError;
use super::transport::Reply;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Hand it back as `Last-Event-ID` to go on behind it.
    pub id: Option<String>,
    pub name: String,
    pub data: String,
}

/// An open stream. The daemon sends a comment every few seconds, so silence means that it is gone.
#[derive(Debug)]
pub struct EventStream {
    reader: BufReader<Body<BufReader<std::os::unix::net::UnixStream>>>,
}

/// Longer than the pause between two keep-alive comments.
const SILENCE_MAX: Duration = Duration::from_secs(45);

impl EventStream {
    pub(super) fn new(reply: Reply) -> Self {
        // Best effort: with the old time-out the stream would merely end a little earlier.
        let _ = reply
            .body
            .inner()
            .get_ref()
            .set_read_timeout(Some(SILENCE_MAX));
        Self {
            reader: BufReader::new(reply.body),
        }
    }

    /// The next event; `None` when the daemon ended the stream.
    pub fn next_event(&mut self) -> Result<Option<Event>, ClientError> {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                if event.data.is_empty() && event.name.is_empty() {
                    continue;
                }
                return Ok(Some(event));
            }
            take_field(&mut event, line);
        }
    }
}

fn take_field(event: &mut Event, line: &str) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match name {
        "id" => event.id = Some(value.to_owned()),
        "event" => value.clone_into(&mut event.name),
        "data" => {
            if !event.data.is_empty() {
                event.data.push('\n');
            }
            event.data.push_str(value);
        }
        // A comment (the keep-alive) or a field of a later version.
        _ => {}
    }
}
