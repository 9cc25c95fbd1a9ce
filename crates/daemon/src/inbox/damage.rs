//! Messages whose kept bytes cannot be read any more: marked where they are shown, counted where the home is judged.
//!
//! They are met when somebody reads them, and looked for when the daemon starts and once a day.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heddle_store::StoreError;
use heddle_wire::broker::Envelope;

use crate::shared::{Shared, lock};

const EVERY: Duration = Duration::from_hours(24);
/// Between two looks: others want to read, too.
const BREATH: Duration = Duration::from_millis(20);
/// Ids that a sentence names.
const NAMED_MAX: usize = 5;
/// Ids that are kept; behind that many nobody counts.
const KEPT_MAX: usize = 10_000;

/// The message, where what is kept of it is one (C30).
pub(crate) fn readable(envelope: &[u8]) -> Option<Envelope> {
    serde_json::from_slice(envelope).ok()
}

/// The same as a question, for whoever looks through all of them.
pub(crate) fn is_readable(envelope: &[u8]) -> bool {
    readable(envelope).is_some()
}

/// What is known of it in this process.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    arrivals: Mutex<BTreeSet<i64>>,
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
            "1 message in the inbox is damaged, its text cannot be read any more (id {named}); the others are not affected"
        )),
        count => Some(format!(
            "{count} messages in the inbox are damaged, their text cannot be read any more (ids {named}{more}); the others are not affected"
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
