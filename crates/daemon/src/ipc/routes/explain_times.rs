//! When a message was tried and when it was committed, in the order in which that must have been: a try begins, the
//! broker gets the message, commits it and says so; and nobody has it before.
//!
//! Two clocks may take part, the home's and the broker's: what the broker says of itself bounds what is told.

use heddle_wire::ipc::{AttemptView, ExplainView};

/// Sets the times of a story whose parts are all there.
pub(super) fn set(view: &mut ExplainView) {
    let answered = view.outbox.delivered_at.clone();
    let Some(broker) = &mut view.broker else {
        return;
    };
    let seen = broker.first_seen_at.as_deref();
    if let (Some(tried), Some(seen)) = (view.attempts.last_mut(), seen)
        && is_unnoted(tried, answered.as_deref())
    {
        let begun = within(seen, Some(&view.outbox.enqueued_at), answered.as_deref());
        begun.clone_into(&mut tried.at);
    }
    let taken = broker
        .queue
        .as_ref()
        .and_then(|queue| queue.taken_at.as_deref());
    let delivered = view.deliveries.iter();
    let held = delivered.filter_map(|one| one.delivered_at.as_deref());
    let held = held.chain(taken).min();
    let is_of_last = is_of_last(&view.attempts, seen);
    let at = committed(answered.as_deref(), is_of_last, seen, held);
    broker.committed_at = at.map(str::to_owned);
}

/// A try that succeeded at once left only the time of its answer. It had begun when the broker got the message.
fn is_unnoted(tried: &AttemptView, answered: Option<&str>) -> bool {
    tried.number == 1 && Some(tried.at.as_str()) == answered
}

/// Whether the last try is the one that was committed, and not one before it whose answer was lost.
fn is_of_last(attempts: &[AttemptView], seen: Option<&str>) -> bool {
    let began_before = |last: &AttemptView| seen.is_none_or(|seen| last.at.as_str() <= seen);
    attempts.len() == 1 || attempts.last().is_some_and(began_before)
}

/// With the answer this home had the broker's word for it; where that word was of a commit before, or did not come, the
/// broker's own time of getting it is the nearest.
fn committed<'a>(
    answered: Option<&'a str>,
    is_of_last: bool,
    seen: Option<&'a str>,
    held: Option<&'a str>,
) -> Option<&'a str> {
    let at = if is_of_last {
        answered.or(seen)
    } else {
        seen.or(answered)
    };
    Some(within(at?, seen, held))
}

/// Where the two bounds contradict each other, the lower one counts.
fn within<'a>(at: &'a str, from: Option<&'a str>, to: Option<&'a str>) -> &'a str {
    let at = to.map_or(at, |to| at.min(to));
    from.map_or(at, |from| at.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(number: u32, at: &str) -> AttemptView {
        AttemptView {
            number,
            at: at.to_owned(),
            outcome: String::new(),
            detail: String::new(),
        }
    }

    /// Tries, as they began; the answer; when the broker got it; when the first had it; the commit.
    type Case = (&'static [&'static str], At, At, At, At);
    type At = Option<&'static str>;

    #[test]
    fn a_commit_lies_between_its_try_and_its_answer_and_before_anybody_had_it() {
        let table: &[Case] = &[
            (&["1"], Some("3"), Some("2"), None, Some("3")),
            (&["1"], Some("3"), Some("2"), Some("4"), Some("3")),
            // The recipient was faster than the answer.
            (&["1"], Some("5"), Some("2"), Some("4"), Some("4")),
            // The broker cannot be asked.
            (&["1"], Some("3"), None, None, Some("3")),
            // It has it, and nobody heard so.
            (&[], None, Some("2"), None, Some("2")),
            (&["1"], None, Some("2"), None, Some("2")),
            // The first answer was lost: the second try found it there.
            (&["1", "6"], Some("7"), Some("2"), None, Some("2")),
            // The first was refused, the second committed.
            (&["1", "6"], Some("8"), Some("7"), None, Some("8")),
            // The broker's clock is far ahead, or far behind.
            (&["1"], Some("3"), Some("7"), Some("8"), Some("7")),
            (&["4"], Some("6"), Some("1"), Some("2"), Some("2")),
            (&[], None, None, None, None),
        ];
        for (tries, answered, seen, held, expected) in table {
            let tries: Vec<AttemptView> = (1..).zip(*tries).map(|(n, at)| tried(n, at)).collect();
            let told = committed(*answered, is_of_last(&tries, *seen), *seen, *held);
            assert_eq!(told, *expected, "{tries:?} {answered:?} {seen:?} {held:?}");
        }
    }
}
