//! What happens in the daemon beside the messages: a small bus that the event streams listen to.
//!
//! These events are told to whoever listens now. They have no id and are in no table, so they never
//! move the place from which a reader resumes; messages come from the inbox table and are never lost.

use heddle_core::limits::EVENTS_WAITING_MAX;
use heddle_wire::ipc::{
    EVENT_FILE_SHARED, EVENT_OUTBOX_PRESSURE_EASED, EVENT_OUTBOX_PRESSURE_HIGH, FileSharedEvent,
    PressureEvent,
};
use serde::Serialize;
use tokio::sync::broadcast;

/// One event; its fields are the event's data. To add a kind, add it here and publish it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Event {
    /// A mesh's broker welcomed us.
    Connected { mesh: String, broker: String },
    /// The link to a mesh's broker is gone; it is being made again.
    Disconnected { mesh: String, why: String },
    /// The outbox fills its disk budget: 80, 95 or 100 % of it.
    OutboxPressureHigh(PressureEvent),
    /// It is below one of those again.
    OutboxPressureEased(PressureEvent),
    /// A file was shared, here or by an op from elsewhere.
    FileShared(FileSharedEvent),
}

impl Event {
    /// The `event:` of the stream.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Connected { .. } => "connected",
            Self::Disconnected { .. } => "disconnected",
            Self::OutboxPressureHigh(_) => EVENT_OUTBOX_PRESSURE_HIGH,
            Self::OutboxPressureEased(_) => EVENT_OUTBOX_PRESSURE_EASED,
            Self::FileShared(_) => EVENT_FILE_SHARED,
        }
    }
}

/// Bounded: a reader that is too slow is told how many events it missed.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(EVENTS_WAITING_MAX),
        }
    }
}

impl Events {
    /// Nobody may be listening, and that is fine.
    pub(crate) fn publish(&self, event: Event) {
        let _ = self.sender.send(event);
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_a_flat_object_and_names_are_stable() {
        let event = Event::Disconnected {
            mesh: "home".to_owned(),
            why: "gone".to_owned(),
        };
        assert_eq!(event.name(), "disconnected");
        let data = serde_json::to_string(&event).unwrap();
        assert_eq!(data, r#"{"mesh":"home","why":"gone"}"#);
    }

    #[test]
    fn c16_a_listener_that_is_too_slow_hears_how_many_it_missed_and_goes_on() {
        let events = Events::default();
        let mut slow = events.subscribe();
        let event = |n: usize| Event::Connected {
            mesh: n.to_string(),
            broker: String::new(),
        };
        for n in 0..EVENTS_WAITING_MAX + 10 {
            events.publish(event(n));
        }
        assert_eq!(
            slow.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(10))
        );
        assert_eq!(slow.try_recv(), Ok(event(10)));
    }
}
