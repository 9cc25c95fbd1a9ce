//! What a member lets another one send it: capabilities, and the one rule that decides at accept.
//!
//! Whoever was never spoken of has all of them. A member speaks for its own mailboxes only; what an owner says of a
//! member of the mesh is another matter ([`super::standing`]).

use std::fmt;

use crate::envelope::DestinationKind;

/// What a message needs of each of its recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// To write to a mailbox of mine.
    Dm,
    /// To be heard by me where I have subscribed.
    Topic,
}

impl Capability {
    pub const ALL: [Self; 2] = [Self::Dm, Self::Topic];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Topic => "topic",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }

    /// What a message to such a destination needs. Work and ops have no recipient who could be asked.
    pub fn needed_for(kind: DestinationKind) -> Option<Self> {
        match kind {
            DestinationKind::Dm => Some(Self::Dm),
            DestinationKind::Topic => Some(Self::Topic),
            DestinationKind::Queue | DestinationKind::Log => None,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capabilities {
    pub dm: bool,
    pub topic: bool,
}

impl Capabilities {
    /// What everybody has who was never spoken of.
    pub const ALL: Self = Self {
        dm: true,
        topic: true,
    };
    pub const NONE: Self = Self {
        dm: false,
        topic: false,
    };

    pub fn has(self, one: Capability) -> bool {
        match one {
            Capability::Dm => self.dm,
            Capability::Topic => self.topic,
        }
    }

    pub fn list(self) -> impl Iterator<Item = Capability> {
        Capability::ALL
            .into_iter()
            .filter(move |one| self.has(*one))
    }

    /// Whether a message to such a destination reaches whoever has granted these to its sender.
    pub fn allow(self, kind: DestinationKind) -> bool {
        Capability::needed_for(kind).is_none_or(|needed| self.has(needed))
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(some: I) -> Self {
        some.into_iter().fold(Self::NONE, |before, one| Self {
            dm: before.dm || one == Capability::Dm,
            topic: before.topic || one == Capability::Topic,
        })
    }
}

/// What a member says of another one. A block takes back all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantChange {
    Grant(Capabilities),
    Revoke(Capabilities),
}

impl GrantChange {
    /// What is granted afterwards.
    pub fn apply(self, before: Capabilities) -> Capabilities {
        match self {
            Self::Grant(more) => Capabilities {
                dm: before.dm || more.dm,
                topic: before.topic || more.topic,
            },
            Self::Revoke(less) => Capabilities {
                dm: before.dm && !less.dm,
                topic: before.topic && !less.topic,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Capabilities> {
        let some = |bits: u8| Capabilities {
            dm: bits & 1 != 0,
            topic: bits & 2 != 0,
        };
        (0..4).map(some).collect()
    }

    #[test]
    fn each_capability_is_granted_and_taken_back_alone_and_a_second_time_changes_nothing() {
        for before in every() {
            for some in every() {
                let granted = GrantChange::Grant(some).apply(before);
                let revoked = GrantChange::Revoke(some).apply(before);
                for one in Capability::ALL {
                    assert_eq!(granted.has(one), before.has(one) || some.has(one));
                    assert_eq!(revoked.has(one), before.has(one) && !some.has(one));
                }
                assert_eq!(GrantChange::Grant(some).apply(granted), granted);
                assert_eq!(GrantChange::Revoke(some).apply(revoked), revoked);
                assert_eq!(some.list().collect::<Capabilities>(), some);
            }
        }
        for one in Capability::ALL {
            assert_eq!(Capability::parse(one.as_str()), Some(one));
        }
        assert_eq!(Capability::parse("DM"), None);
    }

    #[test]
    fn what_has_no_recipient_needs_no_grant_and_the_rest_needs_its_own() {
        for granted in every() {
            assert!(granted.allow(DestinationKind::Queue) && granted.allow(DestinationKind::Log));
            assert_eq!(granted.allow(DestinationKind::Dm), granted.dm);
            assert_eq!(granted.allow(DestinationKind::Topic), granted.topic);
        }
    }
}
