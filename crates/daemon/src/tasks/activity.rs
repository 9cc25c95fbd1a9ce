//! Who was active: a note in memory for agents that hold a claim, and next to nothing for all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use heddle_core::clock::{Clock, WallMs};
use heddle_core::names::AgentName;
use heddle_core::task::lease::Moment;
use tokio::sync::Notify;

use crate::shared::{read, write};

pub(crate) struct Activity {
    /// Stands for the machine's start where the clock does not know it.
    process: u128,
    /// Whether anybody here holds anything: the one thing that every call looks at.
    is_watched: AtomicBool,
    /// The agents of this home that hold a claim, and when each was last active, in milliseconds.
    holders: RwLock<BTreeMap<AgentName, AtomicU64>>,
    /// What the clock on the wall said when this machine's own began, in milliseconds; `i64::MIN` before it is asked.
    begun: AtomicI64,
    /// A lease may end earlier than the watch thinks.
    pub(crate) wake: Notify,
}

/// By how much the clock on the wall is moved before a moment is told by it anew.
const SET_BY_MS: u64 = 50;

impl Activity {
    pub(crate) fn new(process: u128) -> Self {
        Self {
            process,
            is_watched: AtomicBool::new(false),
            holders: RwLock::default(),
            begun: AtomicI64::new(i64::MIN),
            wake: Notify::new(),
        }
    }

    pub(crate) fn now(&self, clock: &dyn Clock) -> Moment {
        Moment::now(clock, self.process)
    }

    /// A moment of this boot on the clock on the wall: the same time whenever it is told, until somebody sets that clock.
    /// The two are never read at once, so the difference of two readings is told in one millisecond or the next.
    pub(crate) fn wall_of(&self, clock: &dyn Clock, moment: Moment) -> WallMs {
        let signed = |at: Duration| i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        let found = clock.wall().0.saturating_sub(signed(self.now(clock).since));
        let kept = self.begun.load(Ordering::Relaxed);
        let begun = if kept.abs_diff(found) <= SET_BY_MS {
            kept
        } else {
            self.begun.store(found, Ordering::Relaxed);
            found
        };
        WallMs(begun.saturating_add(signed(moment.since)))
    }

    /// A call of this agent.
    pub(crate) fn note(&self, clock: &dyn Clock, agent: &AgentName) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        if let Some(last) = read(&self.holders).get(agent) {
            last.store(ms(self.now(clock).since), Ordering::Relaxed);
        }
    }

    /// Whether the agent was active after that moment.
    pub(crate) fn is_active_since(&self, agent: &AgentName, then: Moment) -> bool {
        let holders = read(&self.holders);
        let last = holders.get(agent).map(|last| last.load(Ordering::Relaxed));
        last.is_some_and(|last| last > ms(then.since))
    }

    /// This agent has just claimed something.
    pub(crate) fn holds(&self, agent: &AgentName) {
        write(&self.holders).entry(agent.clone()).or_default();
        self.is_watched.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// These, and no others, hold claims.
    pub(crate) fn set_holders(&self, now: &BTreeSet<AgentName>) {
        let mut holders = write(&self.holders);
        holders.retain(|agent, _| now.contains(agent));
        for agent in now {
            holders.entry(agent.clone()).or_default();
        }
        self.is_watched
            .store(!holders.is_empty(), Ordering::Relaxed);
    }
}

fn ms(since: Duration) -> u64 {
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::{ManualClock, WallMs};

    use super::*;

    fn agent(name: &str) -> AgentName {
        AgentName::parse(name).unwrap()
    }

    #[test]
    fn only_holders_are_noted_and_only_after_the_moment_that_is_asked_for() {
        let clock = ManualClock::at(WallMs(0));
        let activity = Activity::new(1);
        clock.advance(Duration::from_secs(5));
        let claimed = activity.now(&clock);
        activity.note(&clock, &agent("bob"));
        activity.holds(&agent("ann"));
        activity.note(&clock, &agent("ann"));
        assert!(
            !activity.is_active_since(&agent("ann"), claimed),
            "the claim itself"
        );
        clock.advance(Duration::from_secs(1));
        activity.note(&clock, &agent("ann"));
        activity.note(&clock, &agent("bob"));
        assert!(activity.is_active_since(&agent("ann"), claimed));
        assert!(!activity.is_active_since(&agent("bob"), claimed));
        // What is known of a holder survives a look; who holds nothing is forgotten.
        activity.set_holders(&BTreeSet::from([agent("ann")]));
        assert!(activity.is_active_since(&agent("ann"), claimed));
        activity.set_holders(&BTreeSet::new());
        assert!(!activity.is_active_since(&agent("ann"), claimed));
        assert!(!activity.is_watched.load(Ordering::Relaxed));
    }
}
