//! The way to a Redis, which is found again after whatever it was that closed it.
//!
//! The library connects anew after an error of the network, and keeps any other answer to its first words for ever: one refusal,
//! for a password that was being changed, for one client too many or while the server was loading, and nobody would ever be
//! let in again. So a way that was refused is thrown away, and the next question goes another one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, RedisResult};

/// How long the server may take; the gate itself gives up a little later.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
const CONNECT_WAIT: Duration = Duration::from_millis(500);

pub(super) struct Link {
    client: Client,
    now: Mutex<ConnectionManager>,
}

impl Link {
    /// Connects when it is first asked. Needs a runtime.
    pub(super) fn new(client: Client) -> RedisResult<Self> {
        let now = Mutex::new(connect(&client)?);
        Ok(Self { client, now })
    }

    pub(super) fn now(&self) -> ConnectionManager {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    /// To be told of every error. One about the question alone (a server that is full) leaves the way as it is: then the
    /// server still answers who asks no more than whether it is there.
    pub(super) async fn met(&self, error: &RedisError) {
        if error.is_io_error() {
            return;
        }
        let asked: RedisResult<String> = redis::cmd("PING").query_async(&mut self.now()).await;
        let is_refused = asked.is_err_and(|error| !error.is_io_error());
        if is_refused && let Ok(anew) = connect(&self.client) {
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = anew;
        }
    }
}

fn connect(client: &Client) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_response_timeout(Some(ANSWER_WAIT))
        .set_connection_timeout(Some(CONNECT_WAIT));
    client.get_connection_manager_lazy(config)
}
