//! How long a caller stays with a question. A broker that is connected and slow is no broker that is away: what it was
//! asked and has not answered in time is asked again, within a bound, and the key decides however often that is.

use std::sync::Once;
use std::time::Duration;

use heddle_core::error_code::ErrorCode;
use heddle_wire::client::ClientError;
use serde_json::json;

use crate::cli::ui;

/// A question is asked this often. The daemon waits ten seconds for each answer, so this is about a minute at a broker
/// that hangs, and eight seconds where the connection was lost and does not come back.
pub(super) const ASKS_MAX: u32 = 6;
const PAUSE: Duration = Duration::from_millis(250);

/// Whether it reached a broker, or may have, and nobody knows what came of it. A broker that could not even be asked is away,
/// and nothing is waited for.
pub(super) fn is_unanswered(error: &ClientError) -> bool {
    match error {
        ClientError::Broken(_) | ClientError::Silent => true,
        ClientError::Problem(problem) => match problem.known_code() {
            Some(ErrorCode::NotConnected) => problem.extra.get("asked") == Some(&json!(true)),
            Some(ErrorCode::DaemonBusy) => true,
            _ => false,
        },
        _ => false,
    }
}

/// Whether nobody could be asked, or nobody answered: what stands is not known here.
pub(super) fn is_out_of_reach(error: &ClientError) -> bool {
    match error {
        ClientError::NotRunning { .. } => true,
        ClientError::Problem(problem) => {
            let code = problem.known_code();
            is_unanswered(error)
                || matches!(
                    code,
                    Some(ErrorCode::NotConnected | ErrorCode::StorageUnavailable)
                )
        }
        _ => is_unanswered(error),
    }
}

/// Once for all that this process asks.
pub(super) fn say(error: &ClientError) {
    static SAID: Once = Once::new();
    SAID.call_once(|| ui::note(&format!("note: {error}; asking again, for about a minute")));
}

/// Asks until there is an answer, a refusal too, or the bound is reached. For questions that may be asked again.
pub(super) fn until_heard<T>(ask: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    asked_while(is_unanswered, ask, std::thread::sleep)
}

/// The same after an answer was lost: a connection that was cut comes back, and until it does nobody could even be asked.
pub(super) fn until_back<T>(ask: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    asked_while(is_out_of_reach, ask, std::thread::sleep)
}

/// Before each further try: five of them, each twice as long as the one before.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    (0..ASKS_MAX - 1).map(|nth| PAUSE * 2_u32.pow(nth))
}

fn asked_while<T>(
    is_passing: impl Fn(&ClientError) -> bool,
    ask: impl Fn() -> Result<T, ClientError>,
    sleep: impl Fn(Duration),
) -> Result<T, ClientError> {
    for pause in pauses() {
        match ask() {
            Err(error) if is_passing(&error) => {
                say(&error);
            }
            answer => return answer,
        }
        sleep(pause);
    }
    ask()
}

const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(2);

/// Looks at what somebody else is at: at first often, then more and more rarely, so that many who wait for one do not
/// hold up the one they wait for.
#[derive(Debug)]
pub(super) struct Pace {
    left: Duration,
    /// How long whose it is may take to begin what they have just registered, before somebody else is refused.
    grace: Duration,
    pause: Duration,
}

/// How much longer somebody waits who is not the one to begin it.
const GRACE: Duration = Duration::from_secs(5);

impl Pace {
    pub(super) fn new(seconds: u64) -> Self {
        let left = Duration::from_secs(seconds);
        Self {
            left,
            grace: left.min(GRACE),
            pause: POLL_MIN,
        }
    }

    pub(super) fn has_grace(&self) -> bool {
        !self.grace.is_zero()
    }

    /// The next pause; none where the time is over.
    pub(super) fn next(&mut self) -> Option<Duration> {
        if self.left.is_zero() {
            return None;
        }
        let pause = self.pause.min(self.left);
        self.left -= pause;
        self.grace = self.grace.saturating_sub(pause);
        self.pause = (pause * 5 / 4).min(POLL_MAX);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use heddle_wire::problem::Problem;

    use super::*;

    fn problem(code: ErrorCode, asked: bool) -> ClientError {
        let problem = Problem::new(code, "no answer");
        let problem = if asked {
            problem.with("asked", true)
        } else {
            problem
        };
        ClientError::Problem(Box::new(problem))
    }

    #[test]
    fn what_was_asked_and_not_answered_is_asked_again_within_a_bound() {
        let (asked, slept) = (Cell::new(0), RefCell::new(Vec::new()));
        let answer = asked_while(
            is_unanswered,
            || {
                asked.set(asked.get() + 1);
                match asked.get() {
                    3 => Ok("the winner's"),
                    _ => Err(problem(ErrorCode::NotConnected, true)),
                }
            },
            |pause| slept.borrow_mut().push(pause.as_millis()),
        );
        assert_eq!((answer.ok(), asked.get()), (Some("the winner's"), 3));
        assert_eq!(slept.take(), [250, 500]);
        asked.set(0);
        let never = asked_while::<()>(
            is_unanswered,
            || {
                asked.set(asked.get() + 1);
                Err(ClientError::Silent)
            },
            |_| {},
        );
        assert!(never.is_err());
        assert_eq!(asked.get(), ASKS_MAX);
    }

    #[test]
    fn who_is_away_or_says_no_is_not_asked_again() {
        for (code, asked) in [
            (ErrorCode::NotConnected, false),
            (ErrorCode::ReplayBindingMismatch, false),
            (ErrorCode::StorageUnavailable, true),
        ] {
            let count = Cell::new(0);
            let refused = asked_while::<()>(
                is_unanswered,
                || {
                    count.set(count.get() + 1);
                    Err(problem(code, asked))
                },
                |_| panic!("nothing is waited for"),
            );
            assert!(refused.is_err());
            assert_eq!(count.get(), 1, "{code:?}");
        }
    }

    #[test]
    fn after_a_lost_answer_a_broker_that_is_away_is_waited_for_and_a_refusal_is_not() {
        for (code, count) in [
            (ErrorCode::NotConnected, ASKS_MAX),
            (ErrorCode::StorageUnavailable, ASKS_MAX),
            (ErrorCode::EffectNotFound, 1),
        ] {
            let asked = Cell::new(0);
            let answer = asked_while::<()>(
                is_out_of_reach,
                || {
                    asked.set(asked.get() + 1);
                    Err(problem(code, false))
                },
                |_| {},
            );
            assert!(answer.is_err());
            assert_eq!(asked.get(), count, "{code:?}");
        }
    }

    #[test]
    fn a_pace_slows_down_and_ends_when_its_time_is_over() {
        let mut pace = Pace::new(60);
        let (mut all, mut looks) = (Duration::ZERO, 0);
        while let Some(pause) = pace.next() {
            assert!(pause <= POLL_MAX);
            assert_eq!(pace.has_grace(), all + pause < GRACE);
            (all, looks) = (all + pause, looks + 1);
        }
        assert_eq!(all, Duration::from_secs(60));
        assert!(looks < 60, "{looks}");
        assert_eq!(Pace::new(0).next(), None);
        assert!(!Pace::new(0).has_grace());
    }
}
