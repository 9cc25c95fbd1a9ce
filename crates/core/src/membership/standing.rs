//! What an owner may change about a member: one table, with a loop that proves it complete.

use super::Role;

/// Why a member may not speak though it has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bar {
    /// For ever.
    Revoked,
    /// Until an owner grants it a role again.
    Blocked,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is heard no more for now; what is its own stays, and mail waits for it.
    Block,
    /// It has this role from now on, and is blocked no more.
    Grant(Role),
}

/// How a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub role: Role,
    pub bar: Option<Bar>,
    /// It came with the mesh, by no invitation: the home that hosts it, or that published it there.
    pub is_founder: bool,
}

impl Facts {
    /// An owner whose word counts.
    pub fn is_owner(self) -> bool {
        self.role == Role::Owner && self.bar.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeVerdict {
    Changed,
    /// It was so already; nothing was written.
    Already,
    UnknownMember,
    /// Only an owner may.
    NotOwner,
    /// An owner is not blocked: it is made a member first.
    IsOwner,
    /// Revoked is for ever.
    IsRevoked,
    /// The mesh would be left without an owner, or its founder without its mesh.
    LastOwner,
}

/// `others` says how many owners there are beside the member that is changed.
pub fn decide_change(
    by: Option<Facts>,
    member: Option<Facts>,
    others: usize,
    change: Change,
) -> ChangeVerdict {
    if !by.is_some_and(Facts::is_owner) {
        return ChangeVerdict::NotOwner;
    }
    let Some(member) = member else {
        return ChangeVerdict::UnknownMember;
    };
    match (change, member.role, member.bar) {
        (_, _, Some(Bar::Revoked)) => ChangeVerdict::IsRevoked,
        (Change::Block, Role::Owner, None) => ChangeVerdict::IsOwner,
        (Change::Block, _, Some(Bar::Blocked)) => ChangeVerdict::Already,
        (Change::Grant(role), has, None) if role == has => ChangeVerdict::Already,
        (Change::Grant(Role::Member), Role::Owner, None) if member.is_founder || others == 0 => {
            ChangeVerdict::LastOwner
        }
        (Change::Block, Role::Member, None) | (Change::Grant(_), _, _) => ChangeVerdict::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for role in [Role::Owner, Role::Member] {
            for bar in [None, Some(Bar::Revoked), Some(Bar::Blocked)] {
                for is_founder in [false, true] {
                    all.push(Facts {
                        role,
                        bar,
                        is_founder,
                    });
                }
            }
        }
        all
    }

    const CHANGES: [Change; 3] = [
        Change::Block,
        Change::Grant(Role::Owner),
        Change::Grant(Role::Member),
    ];

    /// What the member is after a change that was made.
    fn after(member: Facts, change: Change) -> Facts {
        match change {
            Change::Block => Facts {
                bar: Some(Bar::Blocked),
                ..member
            },
            Change::Grant(role) => Facts {
                role,
                bar: None,
                ..member
            },
        }
    }

    #[test]
    fn nobody_but_an_owner_that_is_heard_changes_anything() {
        let owner = Facts {
            role: Role::Owner,
            bar: None,
            is_founder: false,
        };
        for by in all().into_iter().map(Some).chain([None]) {
            for member in all() {
                for change in CHANGES {
                    let verdict = decide_change(by, Some(member), 1, change);
                    let is_owner = by.is_some_and(|by| (by.role, by.bar) == (Role::Owner, None));
                    assert_eq!(verdict == ChangeVerdict::NotOwner, !is_owner);
                }
            }
        }
        for change in CHANGES {
            let nobody = decide_change(Some(owner), None, 1, change);
            assert_eq!(nobody, ChangeVerdict::UnknownMember);
        }
    }

    #[test]
    fn a_change_is_made_once_and_the_revoked_stay_revoked() {
        let owner = all()[0];
        for member in all() {
            for others in [0, 1] {
                for change in CHANGES {
                    let case = format!("{member:?} {others} {change:?}");
                    match decide_change(Some(owner), Some(member), others, change) {
                        ChangeVerdict::Changed => {
                            let then = after(member, change);
                            assert_ne!(then, member, "{case}");
                            let again = decide_change(Some(owner), Some(then), others, change);
                            assert_eq!(again, ChangeVerdict::Already, "{case}");
                            // Somebody is left to undo it.
                            let was = member.is_owner();
                            assert!(!was || then.is_owner() || others > 0, "{case}");
                            assert_ne!(member.bar, Some(Bar::Revoked), "{case}");
                            assert!(!member.is_founder || !was || then.is_owner(), "{case}");
                        }
                        ChangeVerdict::Already => assert_eq!(after(member, change), member),
                        ChangeVerdict::IsRevoked => assert_eq!(member.bar, Some(Bar::Revoked)),
                        ChangeVerdict::IsOwner => assert!(member.is_owner(), "{case}"),
                        ChangeVerdict::LastOwner => {
                            assert!(member.is_owner() && (member.is_founder || others == 0));
                        }
                        other => panic!("{case}: {other:?}"),
                    }
                }
            }
        }
    }
}
