//! The words of a warning about a claim or a step of a task that was lost: to whom, and one thing to do.

use heddle_store::LossKind;

/// Who holds a task by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// The agent that is told. It is never told to stop.
    You,
    Other(String),
    Nobody,
}

/// In the place of who made the other one, where that was the loser itself.
pub(super) const OWN_NAME: &str = "another one in your own name, which this home did not know of";

const STOP: &str = "Stop working on it; `heddle task ready` shows what else can be begun.";
const LOOK: &str = "Look at the result with `heddle task show ID`; nothing is left to do on it.";
const GO_ON: &str = "You hold it, by the claim that stands: go on. `heddle task show ID` says its number, which completes or releases it.";

/// `by` is who the other side is, or [`OWN_NAME`]. In `next` the task is called ID.
pub(super) fn words(
    kind: LossKind,
    title: &str,
    by: &str,
    holder: &Holder,
) -> (String, &'static str) {
    let title = format!("{title:?}");
    let (message, next) = if by == OWN_NAME {
        to_oneself(kind, &title, holder)
    } else {
        to_another(kind, &title, by, holder)
    };
    match holder {
        Holder::You => (message, GO_ON),
        _ => (message, next),
    }
}

/// This home was put back from an older copy: what it lost to is its own.
fn to_oneself(kind: LossKind, title: &str, holder: &Holder) -> (String, &'static str) {
    match kind {
        LossKind::ClaimSuperseded => (
            format!(
                "your claim of {title} lost to {OWN_NAME}, which stands first in the order of the mesh"
            ),
            match holder {
                Holder::Nobody => {
                    "Nobody holds it: claim it again with `heddle task claim ID` before you go on."
                }
                _ => STOP,
            },
        ),
        LossKind::CompletionSuperseded => (
            format!(
                "your completion of {title} did not count: you had claimed it before, which this home did not know of"
            ),
            "The task is not done by it; `heddle task show ID` says how it stands.",
        ),
        LossKind::FinishedElsewhere => (
            format!(
                "{title} was finished in your own name, which this home did not know of, before your step counted"
            ),
            LOOK,
        ),
        _ => to_another(kind, title, "you, which this home did not know of", holder),
    }
}

fn to_another(kind: LossKind, title: &str, by: &str, holder: &Holder) -> (String, &'static str) {
    match kind {
        LossKind::ClaimSuperseded => (
            format!(
                "your claim of {title} lost to the one of {by}, which stands first in the order of the mesh"
            ),
            "Stop working on it; what you said of it since has not counted. `heddle task show ID` says how it stands, `heddle task ready` what else can be begun.",
        ),
        LossKind::CompletionSuperseded => (
            format!("your completion of {title} did not count: {by} had claimed it before"),
            "The task is not done by it. Tell that agent what you did; `heddle task show ID` says how it stands.",
        ),
        LossKind::FinishedElsewhere => (
            format!("{title} was finished by {by} before your step counted"),
            LOOK,
        ),
        LossKind::LeaseExpired => {
            let ended = format!("your lease of {title} ran out and was ended by {by}");
            match holder {
                Holder::Other(holder) => (format!("{ended}; {holder} holds it now"), STOP),
                _ => (
                    ended,
                    "Claim it again with `heddle task claim ID` before you go on, with a longer --lease.",
                ),
            }
        }
        // Of a task there is nothing else.
        LossKind::Cancelled | LossKind::StateSuperseded | LossKind::MemorySuperseded => (
            format!("{title}, which you held, was cancelled by {by}"),
            STOP,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: [LossKind; 5] = [
        LossKind::ClaimSuperseded,
        LossKind::CompletionSuperseded,
        LossKind::FinishedElsewhere,
        LossKind::LeaseExpired,
        LossKind::Cancelled,
    ];

    #[test]
    fn who_holds_a_task_is_never_told_to_stop() {
        for kind in TASKS {
            for by in ["@bob/me", OWN_NAME] {
                let (message, next) = words(kind, "t", by, &Holder::You);
                assert!(!next.contains("Stop"), "{message}: {next}");
            }
        }
        let other = Holder::Other("@bob/me".to_owned());
        let (_, next) = words(LossKind::ClaimSuperseded, "t", "@bob/me", &other);
        assert!(next.starts_with("Stop working on it"), "{next}");
    }

    #[test]
    fn a_claim_that_lost_to_one_in_its_own_name_says_so() {
        let (message, next) = words(LossKind::ClaimSuperseded, "t", OWN_NAME, &Holder::You);
        assert_eq!(
            message,
            "your claim of \"t\" lost to another one in your own name, which this home did not know of, which stands first in the order of the mesh"
        );
        assert!(next.starts_with("You hold it"), "{next}");
        for kind in TASKS {
            let (message, _) = words(kind, "t", OWN_NAME, &Holder::Nobody);
            assert!(message.contains("this home did not know of"), "{message}");
        }
    }
}
