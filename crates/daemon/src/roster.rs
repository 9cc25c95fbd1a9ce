//! Resolving an address against what the broker last said of the mesh: a pure decision.
//!
//! Unknown and ambiguous recipients are refused with candidates (C30); the answer says how fresh
//! the knowledge is where the broker is out of reach (C29).

use std::collections::BTreeSet;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Address;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;
use heddle_core::limits::CANDIDATES_MAX;
use heddle_core::names::{AgentName, MemberName};
use heddle_wire::broker::{Roster, RosterAgent};
use heddle_wire::problem::Problem;

/// What is known of a mesh: the broker's roster and this home's own mailboxes.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    pub(crate) roster: &'a Roster,
    pub(crate) own_member: MemberId,
    pub(crate) own_name: &'a MemberName,
    pub(crate) own_agents: &'a BTreeSet<AgentName>,
    /// Set when the broker is out of reach: since when.
    pub(crate) stale: Option<Stale>,
}

/// When the knowledge was last true. Only a refusal says it, so only a refusal renders it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stale {
    pub(crate) as_of: Option<WallMs>,
}

impl Known<'_> {
    /// The destination's reference as the broker knows it.
    pub(crate) fn resolve(&self, to: &Address) -> Result<String, Problem> {
        match to {
            Address::Topic(topic) => {
                if self.roster.topics.iter().any(|t| t.topic == *topic) {
                    return Ok(topic.to_string());
                }
                let names = self.roster.topics.iter().map(|t| format!("#{}", t.topic));
                Err(self.unknown(to, names.collect()).next(format!(
                    "Create it with `heddle topic create {topic}`, or pick one of the candidates."
                )))
            }
            Address::Dm { member, agent } => self.resolve_agent(to, member.as_ref(), agent),
            // Pushing makes a missing queue.
            Address::Queue(queue) => Ok(queue.to_string()),
        }
    }

    fn resolve_agent(
        &self,
        to: &Address,
        member: Option<&MemberName>,
        agent: &AgentName,
    ) -> Result<String, Problem> {
        let all = self.agents();
        let found: Vec<&RosterAgent> = all
            .iter()
            .filter(|a| a.agent == *agent)
            .filter(|a| member.is_none_or(|name| self.member_name(a.member) == Some(name)))
            .collect();
        match found.as_slice() {
            [one] => Ok(format!("{}/{}", one.member, one.agent)),
            [] => {
                let names = all.iter().map(|a| self.address(a)).collect();
                Err(self.unknown(to, names))
            }
            several => {
                let names: Vec<String> = several.iter().map(|a| self.address(a)).collect();
                Err(Problem::new(
                    ErrorCode::AmbiguousRecipient,
                    format!("{to} could be {}", names.join(" or ")),
                )
                .with("candidates", names))
            }
        }
    }

    /// Everybody: what the broker said, and our own mailboxes even before it heard of them.
    pub(crate) fn agents(&self) -> Vec<RosterAgent> {
        let mut all = self.roster.agents.clone();
        for agent in self.own_agents {
            let own = RosterAgent {
                member: self.own_member,
                agent: agent.clone(),
            };
            if !all.contains(&own) {
                all.push(own);
            }
        }
        all
    }

    pub(crate) fn member_name(&self, member: MemberId) -> Option<&MemberName> {
        if member == self.own_member {
            return Some(self.own_name);
        }
        let found = self.roster.members.iter().find(|m| m.member == member);
        found.map(|m| &m.name)
    }

    pub(crate) fn address(&self, agent: &RosterAgent) -> String {
        match self.member_name(agent.member) {
            Some(name) => format!("@{name}/{}", agent.agent),
            None => format!("@{}/{}", agent.member, agent.agent),
        }
    }

    fn unknown(&self, to: &Address, names: Vec<String>) -> Problem {
        let mut detail = format!("nobody and nothing here is called {to}");
        if let Some(Stale { as_of }) = self.stale {
            let since = as_of.map_or_else(|| "no time".to_owned(), WallMs::to_rfc3339);
            detail =
                format!("{detail}, as far as was known at {since} (the broker is out of reach)");
        }
        Problem::new(ErrorCode::UnknownRecipient, detail)
            .with("candidates", nearest(&to.reference(), names))
    }
}

/// The candidates that look most like what was asked for, best first.
fn nearest(wanted: &str, names: Vec<String>) -> Vec<String> {
    let last = |text: &str| {
        text.rsplit(['/', '@', '#'])
            .next()
            .unwrap_or(text)
            .to_lowercase()
    };
    let wanted = last(wanted);
    let mut ranked: Vec<(usize, String)> = names
        .into_iter()
        .map(|name| (distance(&wanted, &last(&name)), name))
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.truncate(CANDIDATES_MAX);
    ranked.into_iter().map(|(_, name)| name).collect()
}

/// Levenshtein distance over characters. Names are short, so the plain table will do.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use heddle_core::clock::{Ids, ManualIds};
    use heddle_core::names::TopicName;
    use heddle_wire::broker::{RosterMember, RosterTopic};

    use super::*;

    struct World {
        roster: Roster,
        own: MemberId,
        own_name: MemberName,
        own_agents: BTreeSet<AgentName>,
    }

    fn agent(name: &str) -> AgentName {
        AgentName::parse(name).unwrap()
    }

    fn world() -> World {
        let ids = ManualIds::seeded(4);
        let (own, bob) = (MemberId(ids.ulid()), MemberId(ids.ulid()));
        let name = |n: &str| MemberName::parse(n).unwrap();
        World {
            own,
            own_name: name("alice"),
            own_agents: BTreeSet::from([agent("planner"), agent("fresh")]),
            roster: Roster {
                members: vec![
                    RosterMember {
                        member: own,
                        name: name("alice"),
                        online: true,
                        since: None,
                        as_of: 0,
                    },
                    RosterMember {
                        member: bob,
                        name: name("bob"),
                        online: false,
                        since: None,
                        as_of: 0,
                    },
                ],
                agents: vec![
                    RosterAgent {
                        member: own,
                        agent: agent("planner"),
                    },
                    RosterAgent {
                        member: bob,
                        agent: agent("planner"),
                    },
                    RosterAgent {
                        member: bob,
                        agent: agent("coder"),
                    },
                ],
                topics: vec![RosterTopic {
                    topic: TopicName::parse("ops").unwrap(),
                    subscribers: vec![],
                }],
                queues: vec![],
            },
        }
    }

    fn resolve(world: &World, to: &str) -> Result<String, Problem> {
        Known {
            roster: &world.roster,
            own_member: world.own,
            own_name: &world.own_name,
            own_agents: &world.own_agents,
            stale: None,
        }
        .resolve(&Address::parse(to).unwrap())
    }

    #[test]
    fn names_resolve_where_they_are_unambiguous() {
        let world = world();
        assert_eq!(resolve(&world, "#ops").unwrap(), "ops");
        assert!(resolve(&world, "@coder").unwrap().ends_with("/coder"));
        assert_eq!(
            resolve(&world, "@alice/planner").unwrap(),
            format!("{}/planner", world.own)
        );
        assert!(
            resolve(&world, "@fresh").is_ok(),
            "own agent unknown to the broker"
        );
    }

    #[test]
    fn c30_ambiguous_and_unknown_are_refused_with_candidates() {
        let world = world();
        let ambiguous = resolve(&world, "@planner").unwrap_err();
        assert_eq!(ambiguous.code, "ambiguous_recipient");
        assert_eq!(ambiguous.extra["candidates"].as_array().unwrap().len(), 2);
        let unknown = resolve(&world, "@codr").unwrap_err();
        assert_eq!(unknown.status, 404);
        assert_eq!(unknown.extra["candidates"][0], "@bob/coder");
        let topic = resolve(&world, "#opps").unwrap_err();
        assert_eq!(topic.extra["candidates"][0], "#ops");
    }
}
