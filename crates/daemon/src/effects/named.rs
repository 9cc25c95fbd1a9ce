//! What who speaks in this home is called in a mesh. At whoever decides, `@member/member` is the person of a home, and
//! everybody else an agent: which of the two it is, only the home knows.
//!
//! So its person goes there as its member, whatever the mailbox is called, and nobody else does: a mailbox that bears the
//! member's name and is not the person's goes as `NAME.agent`, and one of that name as `NAME.agent.agent`, so that no two
//! are one.

use heddle_core::error_code::ErrorCode;
use heddle_core::names::AgentName;
use heddle_wire::problem::Problem;

use super::Effects;
use crate::mesh::MeshState;

/// Behind the name of an agent that is called as the member is.
const AGENT: &str = ".agent";

impl Effects {
    /// As the mesh calls who speaks.
    pub(super) fn named(&self, mesh: &MeshState, agent: &AgentName) -> Result<AgentName, Problem> {
        let member = mesh.mesh.member_name.as_str();
        let person = self.speaks.person.as_str();
        let named = called_there(agent.as_str(), (member, person));
        AgentName::parse(&named).map_err(|error| {
            // Never as the member instead: that is the person.
            let detail =
                format!("{agent} is called as the member is, who is a person there: {error}");
            Problem::new(ErrorCode::ApprovalRefused, detail)
                .next("Register the agent under another name, and speak as that one.")
        })
    }
}

/// Whether it is the member's name, with `.agent` behind it or not.
fn is_like_member(name: &str, member: &str) -> bool {
    let rest = name.strip_prefix(member);
    rest.is_some_and(|rest| rest.replace(AGENT, "").is_empty())
}

fn called_there(agent: &str, (member, person): (&str, &str)) -> String {
    if agent == person {
        member.to_owned()
    } else if person != member && is_like_member(agent, member) {
        format!("{agent}{AGENT}")
    } else {
        agent.to_owned()
    }
}

/// The mailbox of this home that is called so there.
pub(super) fn called_back<'n>(name: &'n str, (member, person): (&'n str, &'n str)) -> &'n str {
    if name == member {
        person
    } else if person != member && is_like_member(name, member) {
        name.strip_suffix(AGENT).unwrap_or(name)
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_but_the_person_is_the_member_and_no_two_are_one() {
        let whose = ("alice", "me");
        for (here, there) in [
            ("me", "alice"),
            ("alice", "alice.agent"),
            ("alice.agent", "alice.agent.agent"),
            ("alice.agents", "alice.agents"),
            ("malice", "malice"),
            ("coder", "coder"),
        ] {
            assert_eq!(called_there(here, whose), there);
            assert_eq!(called_back(there, whose), here);
        }
        // Where the person bears the member's name, nobody else can.
        for name in ["alice", "alice.agent", "coder"] {
            assert_eq!(called_there(name, ("alice", "alice")), name);
            assert_eq!(called_back(name, ("alice", "alice")), name);
        }
    }
}
