//! What can be chosen about the door, and the bounds that cannot.

use std::time::Duration;

use heddle_core::limits::{
    BATCH_BYTES_MAX, DEDUPE_RETENTION_DAYS_DEFAULT, FRAME_BYTES_MAX, PING_DEADLINE, PING_INTERVAL,
    PUSH_WINDOW_MAX, REQUESTS_IN_FLIGHT_MAX, SEND_BUFFER_FRAMES_MAX,
};
use heddle_core::negotiate::ConnectionPolicy;
use heddle_core::retention::DedupeMode;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerConfig {
    /// How long ids are remembered.
    pub dedupe: DedupeMode,
    /// What happens when one identity connects twice.
    pub policy: ConnectionPolicy,
    pub ping_interval: Duration,
    /// Silence after which a peer is taken for dead.
    pub ping_deadline: Duration,
    /// Deliveries pushed and not yet acknowledged on one connection.
    pub push_window: usize,
    /// Bodies older than this go; never, if `None`.
    pub message_retention_days: Option<u32>,
    /// How often upkeep is done.
    pub upkeep_interval: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            dedupe: DedupeMode::RetentionScoped {
                days: DEDUPE_RETENTION_DAYS_DEFAULT,
            },
            policy: ConnectionPolicy::PreferNewest,
            ping_interval: PING_INTERVAL,
            ping_deadline: PING_DEADLINE,
            push_window: PUSH_WINDOW_MAX,
            message_retention_days: None,
            upkeep_interval: UPKEEP_INTERVAL,
        }
    }
}

const UPKEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Pings and pongs of one peer within a ping interval.
pub(super) const IDLE_WORDS_MAX: u32 = 500;
/// Frames read and not yet begun. Beyond them the reader waits, and so does the peer.
pub(super) const WORK_QUEUED_MAX: usize = 4;
/// Batches and acks of one connection in the store's line at once.
pub(super) const WORK_IN_FLIGHT_MAX: usize = 8;
/// Calls of one connection about effects that whoever decides has not answered: as many as a home makes at once.
pub(super) const EFFECTS_IN_FLIGHT_MAX: usize = REQUESTS_IN_FLIGHT_MAX;
/// How long a peer may take over what is written to it (C16).
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take to answer a close.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// A wake-up is a hint and may be lost; after this the pump looks by itself.
pub(super) const PUSH_POLL: Duration = Duration::from_secs(5);
/// Roster changes within this time are told as one.
pub(super) const ROSTER_PAUSE: Duration = Duration::from_millis(50);
/// Delivery frames on their way to the writer: bounds what a slow reader costs in memory.
pub(super) const DELIVER_FRAMES_UNWRITTEN_MAX: usize = 2;

/// Many connections are idle; the buffers grow to a message's size when there is one.
const SOCKET_BUFFER_BYTES: usize = 32 << 10;

const _: () = {
    assert!(DELIVER_FRAMES_UNWRITTEN_MAX < SEND_BUFFER_FRAMES_MAX);
    assert!(BATCH_BYTES_MAX < FRAME_BYTES_MAX);
    // A peer that hangs is found by the write before it is found by its silence.
    assert!(WRITE_TIMEOUT.as_secs() < PING_DEADLINE.as_secs());
};

/// The limits of a connection, for both of its ends.
pub fn ws_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX))
        .read_buffer_size(SOCKET_BUFFER_BYTES)
        .write_buffer_size(SOCKET_BUFFER_BYTES)
        .max_write_buffer_size(SOCKET_BUFFER_BYTES + 2 * FRAME_BYTES_MAX)
}
