//! Messages whose kept bytes cannot be read any more, or are not what was accepted: marked where they are shown, counted
//! where the home is judged.
//!
//! They are met when somebody reads them, and looked for when the daemon starts and once a day.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, HistoryId};
use heddle_store::StoreError;
use heddle_wire::broker::{Delivery, Envelope};

use crate::shared::{Shared, lock};

const EVERY: Duration = Duration::from_hours(24);
/// Between two looks: others want to read, too.
const BREATH: Duration = Duration::from_millis(20);
/// Ids that a sentence names.
const NAMED_MAX: usize = 5;
/// Ids that are kept; behind that many nobody counts.
const KEPT_MAX: usize = 10_000;

/// The message, where what is kept of it is one (C30), and is still the one that was accepted where that is known: a
/// letter that a disk has changed is not shown as what somebody has written.
pub(crate) fn readable(envelope: &[u8], accepted: Option<Fingerprint>) -> Option<Envelope> {
    let envelope: Envelope = serde_json::from_slice(envelope).ok()?;
    let is_it = |print| {
        envelope
            .wire_fingerprint()
            .is_ok_and(|found| found == print)
    };
    accepted.is_none_or(is_it).then_some(envelope)
}

/// The same as a question, for whoever looks through all of them.
pub(crate) fn is_readable(envelope: &[u8], accepted: Option<Fingerprint>) -> bool {
    readable(envelope, accepted).is_some()
}

/// A message came that is not what its broker says was accepted: the broker's disk has changed it, or the way has.
pub(crate) fn count(history_id: HistoryId, client_message_id: &ClientMessageId) {
    metrics::counter!("heddle_inbox_differs_total").increment(1);
    tracing::error!(%history_id, %client_message_id,
        "a message is not what was accepted; it is kept apart: ask its sender, and run `heddle broker orphan-check` where its broker lies");
}

/// Whether a delivery still is what its broker accepted, as far as the broker says what that was.
pub(crate) fn is_as_accepted(delivery: &Delivery, envelope: &Envelope) -> bool {
    let print = delivery.wire_fingerprint.as_deref();
    let accepted = print.and_then(Fingerprint::parse_hex);
    accepted.is_none_or(|accepted| envelope.wire_fingerprint().ok() == Some(accepted))
}

/// What is known of it in this process.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    arrivals: Mutex<BTreeSet<i64>>,
    /// Work that is not what was pushed, by mesh, queue and place. Its lease ends, and it comes up again.
    work: Mutex<BTreeSet<String>>,
}

impl Damage {
    /// Somebody met one. One that was acknowledged is nobody's trouble any more.
    pub(crate) fn note(&self, arrival: i64, is_acked: bool) {
        let mut arrivals = lock(&self.arrivals);
        if is_acked {
            arrivals.remove(&arrival);
        } else if arrivals.len() < KEPT_MAX {
            arrivals.insert(arrival);
        }
    }

    /// Work of a queue that was met and not given out.
    pub(crate) fn note_work(&self, place: String) {
        let mut work = lock(&self.work);
        if work.len() < KEPT_MAX {
            work.insert(place);
        }
    }

    /// A sentence about such work, where there is some.
    pub(crate) fn degraded_work(&self) -> Option<String> {
        let work = lock(&self.work);
        let named: Vec<&str> = work.iter().take(NAMED_MAX).map(String::as_str).collect();
        (!work.is_empty()).then(|| {
            format!(
                "{} messages of queues are not what was pushed and are not given out ({}); the others go on. `heddle broker \
                 orphan-check` names them where the broker lies; whoever pushed them can push them again",
                work.len(),
                named.join(", ")
            )
        })
    }

    /// Those that are known to be damaged, and the others.
    pub(crate) fn split(&self, arrivals: &[i64]) -> (Vec<i64>, Vec<i64>) {
        let damaged = lock(&self.arrivals);
        arrivals
            .iter()
            .partition(|arrival| damaged.contains(*arrival))
    }

    pub(crate) fn forget(&self, acked: &[i64]) {
        let mut arrivals = lock(&self.arrivals);
        for arrival in acked {
            arrivals.remove(arrival);
        }
    }

    fn replace(&self, found: BTreeSet<i64>) {
        *lock(&self.arrivals) = found;
    }

    /// A sentence for the status, where there is something to say.
    pub(crate) fn degraded(&self) -> Option<String> {
        let arrivals: Vec<i64> = lock(&self.arrivals).iter().copied().collect();
        let says = in_words(&arrivals)?;
        Some(format!(
            "{says}; `heddle inbox --all` marks them, and acknowledging them takes them off this list"
        ))
    }
}

/// How many there are and which; `None` where there are none.
pub(crate) fn in_words(arrivals: &[i64]) -> Option<String> {
    let named = arrivals.iter().take(NAMED_MAX).map(i64::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match arrivals.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match arrivals.len() {
        0 => None,
        1 => Some(format!(
            "1 message in the inbox is damaged, its text cannot be read any more or is not what was sent (id {named}); the others are not affected"
        )),
        count => Some(format!(
            "{count} messages in the inbox are damaged, their text cannot be read any more or is not what was sent (ids {named}{more}); the others are not affected"
        )),
    }
}

/// Looks at once and then once a day, until the daemon stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.shutdown.is_cancelled() {
        match look(&shared).await {
            Ok(found) => {
                if let Some(says) = in_words(&found.iter().copied().collect::<Vec<_>>()) {
                    tracing::warn!(says, "the inbox was looked through");
                }
                shared.damage.replace(found);
            }
            Err(error) => tracing::warn!(%error, "the inbox could not be looked through"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = shared.shutdown.cancelled() => {}
        }
    }
}

async fn look(shared: &Shared) -> Result<BTreeSet<i64>, StoreError> {
    let mut found = BTreeSet::new();
    let mut after = 0;
    loop {
        let look = shared
            .store
            .inbox_look_for_damage(after, is_readable)
            .await?;
        found.extend(look.damaged);
        match look.next {
            Some(next) if !shared.shutdown.is_cancelled() && found.len() < KEPT_MAX => after = next,
            _ => return Ok(found),
        }
        tokio::time::sleep(BREATH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_a_few_and_counts_all() {
        assert_eq!(in_words(&[]), None);
        let damage = Damage::default();
        assert_eq!(damage.degraded(), None);
        for arrival in 1..=7 {
            damage.note(arrival, false);
        }
        let says = damage.degraded().unwrap();
        assert!(
            says.starts_with("7 messages in the inbox are damaged"),
            "{says}"
        );
        assert!(says.contains("(ids 1, 2, 3, 4, 5 and 2 more)"), "{says}");
        damage.forget(&[1, 2, 3, 4, 5]);
        damage.note(6, true);
        let says = damage.degraded().unwrap();
        assert!(says.contains("1 message in the inbox is damaged"), "{says}");
        assert!(says.contains("(id 7)"), "{says}");
    }
}
