//! How a home stands with the broker of a mesh: whether it is let in, and whom its own broker has lost.

use std::collections::BTreeMap;
use std::sync::Mutex;

use heddle_core::ids::{BrokerId, MemberId};
use heddle_core::names::MemberName;
use heddle_core::retention::RetentionError;
use heddle_wire::broker::{MemberEntry, Roster};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::shared::lock;

/// Members that are missed at the same time; a mesh has fewer.
const MISSED_MAX: usize = 1_000;

/// Why a broker and this home cannot work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) why: String,
    /// A setting of this home stands in the way, not one of the broker.
    pub(crate) is_ours: bool,
}

impl Unfit {
    pub(crate) fn broker(why: String) -> Self {
        let is_ours = false;
        Self { why, is_ours }
    }
}

impl From<RetentionError> for Unfit {
    fn from(error: RetentionError) -> Self {
        Self {
            why: error.to_string(),
            is_ours: matches!(error, RetentionError::AboveWindow { .. }),
        }
    }
}

/// Why the broker does not let this home in, and what a person can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Barred {
    pub(crate) why: String,
    pub(crate) next: &'static str,
    /// The broker cannot be worked with, whoever asks.
    pub(crate) is_unfit: bool,
}

impl Barred {
    pub(crate) fn revoked(why: &str) -> Self {
        Self {
            why: format!("this home was shut out of the mesh; ask its owner ({why})"),
            next: "Nothing is sent or received there any more. Ask the owner of the mesh; to stop trying, take its [[mesh]] out of config.toml, write left = [\"NAME\"] at the top of it, and restart with `heddle down` and `heddle up`.",
            is_unfit: false,
        }
    }

    /// Close codes 4010 to 4012, and protocols that do not meet.
    pub(crate) fn unfit(unfit: &Unfit) -> Self {
        Self {
            why: format!("its broker cannot be used: {}", unfit.why),
            next: if unfit.is_ours {
                "This mesh stands still, the others go on; what was accepted for it waits. Lower max_age_hours_override in [outbox] of config.toml, or take the line out, then `heddle down` and `heddle up`."
            } else {
                "This mesh stands still, the others go on; what was accepted for it waits. Its operator has to update or reconfigure that broker (dedupe_retention_days of at least 7, say); it is tried again every minute, and at once after `heddle down` and `heddle up`."
            },
            is_unfit: true,
        }
    }

    /// What config.toml says of the way there is wrong.
    pub(crate) fn by_its_settings(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            next: crate::upkeep::SETTINGS_NEXT,
            is_unfit: false,
        }
    }

    pub(crate) fn unknown(why: &str) -> Self {
        Self {
            why: format!(
                "the broker does not take this home's key; it may have forgotten this member, or the key file is another one ({why})"
            ),
            next: JOIN_AGAIN,
            is_unfit: false,
        }
    }

    pub(crate) fn another_broker() -> Self {
        Self {
            why: "another broker answers at this address; this home keeps its name to itself"
                .to_owned(),
            next: JOIN_AGAIN,
            is_unfit: false,
        }
    }
}

const JOIN_AGAIN: &str = "The owner may have lost broker.db. Ask for a new link (`heddle mesh invite` there), then `heddle mesh join LINK` here: this home comes back as who it was, and sends what waits.";

/// A member that was seen in the mesh and is not there any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missed {
    pub(crate) member: MemberId,
    pub(crate) name: MemberName,
}

/// A roster as it is kept, with those whom it does not name any more.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Remembered {
    #[serde(flatten)]
    pub(crate) roster: Roster,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missed: Vec<Missed>,
    /// What members were called that are none any more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) past: BTreeMap<MemberId, MemberName>,
}

#[derive(Debug, Default)]
pub(crate) struct Standing {
    barred: Mutex<Option<Barred>>,
    /// The only broker that our key is shown to.
    pinned: Mutex<Option<BrokerId>>,
    missed: Mutex<Vec<Missed>>,
    /// Something has changed for the link: it need not wait any longer.
    pub(crate) again: Notify,
}

impl Standing {
    pub(crate) fn remembering(missed: Vec<Missed>) -> Self {
        Self {
            missed: Mutex::new(missed),
            ..Self::default()
        }
    }

    pub(crate) fn barred(&self) -> Option<Barred> {
        lock(&self.barred).clone()
    }

    pub(crate) fn is_unfit(&self) -> bool {
        self.barred().is_some_and(|barred| barred.is_unfit)
    }

    pub(crate) fn bar(&self, barred: Option<Barred>) {
        *lock(&self.barred) = barred;
    }

    pub(crate) fn pinned(&self) -> Option<BrokerId> {
        *lock(&self.pinned)
    }

    pub(crate) fn pin(&self, broker: Option<BrokerId>) {
        *lock(&self.pinned) = broker;
    }

    pub(crate) fn missed(&self) -> Vec<Missed> {
        lock(&self.missed).clone()
    }

    /// The roster of our own broker is another one now.
    pub(crate) fn compare(&self, before: &Roster, now: &Roster) {
        let mut missed = lock(&self.missed);
        *missed = missed_after(before, &missed, now);
    }

    /// Whoever the broker knows, in whatever standing, is not lost. True if that changed anything.
    pub(crate) fn found(&self, entries: &[MemberEntry]) -> bool {
        self.forget(|missed| entries.iter().any(|entry| entry.member == missed.member))
    }

    /// True if anybody was missed of whom this holds.
    pub(crate) fn forget(&self, is_it: impl Fn(&Missed) -> bool) -> bool {
        let mut missed = lock(&self.missed);
        let count = missed.len();
        missed.retain(|one| !is_it(one));
        missed.len() < count
    }
}

/// Who is missed: whoever was there, or was missed before, and has not come back as itself or by its name.
fn missed_after(before: &Roster, missed: &[Missed], now: &Roster) -> Vec<Missed> {
    let is_there = |one: &Missed| {
        let mut members = now.members.iter();
        members.any(|member| member.member == one.member || member.name == one.name)
    };
    let seen = before.members.iter().map(|member| Missed {
        member: member.member,
        name: member.name.clone(),
    });
    let mut all: Vec<Missed> = Vec::new();
    for one in missed.iter().cloned().chain(seen) {
        if !is_there(&one) && !all.contains(&one) && all.len() < MISSED_MAX {
            all.push(one);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use heddle_wire::broker::RosterMember;
    use ulid::Ulid;

    use super::*;

    fn roster(members: &[(u128, &str)]) -> Roster {
        let member = |(id, name): &(u128, &str)| RosterMember {
            member: MemberId(Ulid(*id)),
            name: MemberName::parse(name).unwrap(),
            online: false,
            since: None,
            as_of: 0,
        };
        Roster {
            members: members.iter().map(member).collect(),
            ..Roster::default()
        }
    }

    #[test]
    fn whoever_is_gone_is_missed_until_it_or_its_name_is_back() {
        let all = roster(&[(1, "alice"), (2, "bob"), (3, "carol")]);
        let alone = roster(&[(1, "alice")]);
        let names = |missed: &[Missed]| -> Vec<String> {
            missed.iter().map(|one| one.name.to_string()).collect()
        };
        assert!(missed_after(&Roster::default(), &[], &all).is_empty());
        let missed = missed_after(&all, &[], &alone);
        assert_eq!(names(&missed), ["bob", "carol"]);
        // Told again, nothing changes.
        assert_eq!(missed_after(&alone, &missed, &alone), missed);
        let back = roster(&[(1, "alice"), (2, "bob")]);
        assert_eq!(names(&missed_after(&alone, &missed, &back)), ["carol"]);
        let another = roster(&[(1, "alice"), (9, "carol")]);
        assert_eq!(names(&missed_after(&alone, &missed, &another)), ["bob"]);
    }

    #[test]
    fn what_is_remembered_reads_back_and_an_older_roster_misses_nobody() {
        let missed = missed_after(&roster(&[(2, "bob")]), &[], &Roster::default());
        let kept = Remembered {
            past: BTreeMap::new(),
            roster: roster(&[(1, "alice")]),
            missed: missed.clone(),
        };
        let text = serde_json::to_string(&kept).unwrap();
        let read: Remembered = serde_json::from_str(&text).unwrap();
        assert_eq!((read.roster, read.missed), (kept.roster.clone(), missed));
        let older = serde_json::to_string(&kept.roster).unwrap();
        let read: Remembered = serde_json::from_str(&older).unwrap();
        assert!(read.missed.is_empty() && read.roster == kept.roster);
    }
}
