//! The typed client over the daemon's Unix socket: plain blocking I/O, no runtime.
//!
//! A process that sends one message should cost little more than the message (P20), so this
//! speaks HTTP/1.1 itself on top of `httparse`. Every door uses it: the CLI and MCP.

mod body;
mod effects;
mod error;
mod events;
mod files;
mod transport;
mod verbs;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_core::limits::ANSWER_TIMEOUT;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::ClientError;
pub use events::{Event, EventStream};
pub use files::Download;
use transport::{Head, Reply};

const HASTY_TIMEOUT: Duration = Duration::from_secs(4);
/// A busy daemon is asked again this often before the caller hears of it.
const BUSY_TRIES_MAX: u32 = 8;
/// The first wait after "busy"; it doubles.
const BUSY_WAIT_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
    /// The `Idempotency-Key` of the one call that this client is for.
    key: Option<String>,
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            patience: ANSWER_TIMEOUT,
            key: None,
        }
    }

    /// The same, for one call under an `Idempotency-Key`: again it gets the first answer.
    #[must_use]
    pub fn under(mut self, key: Option<String>) -> Self {
        self.key = key;
        self
    }

    /// The same, for a question whose answer is ready at once or not at all.
    #[must_use]
    pub fn hasty(mut self) -> Self {
        self.patience = HASTY_TIMEOUT;
        self
    }

    /// The same, for a question that the daemon answers within this time, whoever else it asks meanwhile.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.patience = time + HASTY_TIMEOUT;
        self
    }

    /// The same, for a question that the daemon itself takes this much longer to answer.
    #[must_use]
    fn waiting(mut self, longer: Duration) -> Self {
        self.patience += longer;
        self
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ClientError> {
        let target = target(path, query);
        self.call(&Head::get(&target), &[])
    }

    pub fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        idempotency_key: Option<&str>,
        body: &B,
    ) -> Result<T, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|e| ClientError::Protocol(e.to_string()))?;
        let key = idempotency_key.or(self.key.as_deref());
        self.call(&Head::post(path, key), &bytes)
    }

    /// Opens the event stream. It has no end of its own; reading blocks.
    pub fn events(
        &self,
        query: &[(&str, &str)],
        last_event_id: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let target = target("/v1/events", query);
        let head = Head::get(&target).last_event_id(last_event_id);
        let reply = transport::exchange(&self.socket, &head, &[], self.patience)?;
        if reply.status == 200 {
            Ok(EventStream::new(reply))
        } else {
            Err(problem(reply))
        }
    }

    /// One request and its answer. Only "busy" is tried again here: it promises that nothing happened.
    fn call<T: DeserializeOwned>(&self, head: &Head<'_>, body: &[u8]) -> Result<T, ClientError> {
        let mut wait = BUSY_WAIT_MIN;
        for _ in 1..BUSY_TRIES_MAX {
            match self.call_once(head, body) {
                Err(ClientError::Problem(problem))
                    if problem.known_code() == Some(ErrorCode::DaemonBusy) =>
                {
                    thread::sleep(wait);
                    wait *= 2;
                }
                other => return other,
            }
        }
        self.call_once(head, body)
    }

    fn call_once<T: DeserializeOwned>(
        &self,
        head: &Head<'_>,
        body: &[u8],
    ) -> Result<T, ClientError> {
        let mut reply = transport::exchange(&self.socket, head, body, self.patience)?;
        if !(200..300).contains(&reply.status) {
            return Err(problem(reply));
        }
        let bytes = reply.read_all()?;
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Protocol(e.to_string()))
    }
}

fn problem(mut reply: Reply) -> ClientError {
    let status = reply.status;
    match reply.read_all() {
        Err(error) => error,
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => ClientError::Protocol(format!("status {status} without a problem document")),
        },
    }
}

/// Path and query, with everything that is not unreserved percent-encoded.
fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (index, (name, value)) in query.iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        target.push_str(&percent_encode(value));
    }
    target
}

/// One path segment or query value.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&heddle_core::fingerprint::hex(&[byte]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        assert_eq!(
            target(
                "/v1/inbox",
                &[("from", "@a/b"), ("since", "2026-01-01T00:00:00+01:00")]
            ),
            "/v1/inbox?from=%40a%2fb&since=2026-01-01T00%3a00%3a00%2b01%3a00"
        );
        assert_eq!(percent_encode("é\n"), "%c3%a9%0a");
    }
}
