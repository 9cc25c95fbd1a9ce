//! Resolving an address against what the broker last said of the mesh: a pure decision.
//!
//! Unknown and ambiguous recipients are refused with candidates (C30); the answer says how fresh
//! the knowledge is where the broker is out of reach (C29).

use std::collections::{BTreeMap, BTreeSet};

use heddle_core::clock::WallMs;
use heddle_core::envelope::Address;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::MemberId;
use heddle_core::limits::CANDIDATES_MAX;
use heddle_core::names::{AgentName, MemberName};
use heddle_wire::broker::{Roster, RosterAgent};
use heddle_wire::problem::Problem;

/// Characters of a member's id that tell it apart from its namesake.
const TAIL_CHARS: usize = 5;

/// What is known of a mesh: the broker's roster and this home's own mailboxes.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    pub(crate) roster: &'a Roster,
    pub(crate) own_member: MemberId,
    pub(crate) own_name: &'a MemberName,
    pub(crate) own_agents: &'a BTreeSet<AgentName>,
    /// Who was a member and is none any more: nothing is addressed to them, but what they wrote is theirs.
    pub(crate) past: &'a BTreeMap<MemberId, MemberName>,
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
                let next = match self.stale {
                    None => format!(
                        "Create it with `heddle topic create {topic}`, or pick one of the candidates."
                    ),
                    // Only a broker makes a topic, and says which there are by now.
                    Some(_) => format!(
                        "Its broker cannot be reached, and only there a topic can be made: when `heddle status` shows the connection again, `heddle topic create {topic}`; or pick one of the candidates."
                    ),
                };
                Err(self.unknown(to, names.collect()).next(next))
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
            .filter(|a| member.is_none_or(|name| self.is_called(a.member, name.as_str())))
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
        let past = || self.past.get(&agent.member);
        let called = self.member_name(agent.member).or_else(past).map_or_else(
            || agent.member.to_string(),
            |name| self.called(agent.member, name),
        );
        format!("@{called}/{}", agent.agent)
    }

    /// What people call the member: by its name, with the end of its id behind it where another member
    /// has the same name. Two homes of one login are not to be taken for one.
    pub(crate) fn called(&self, member: MemberId, name: &MemberName) -> String {
        let roster = self.roster.members.iter().map(|m| (m.member, &m.name));
        let own = (self.own_member, self.own_name);
        let mut everybody = roster.filter(|(id, _)| *id != own.0).chain([own]);
        if everybody.any(|(other, called)| other != member && called == name) {
            format!("{name}.{}", tail(member))
        } else {
            name.to_string()
        }
    }

    /// Whether the member answers to this: its name, what `called` makes of it, or its id.
    pub(crate) fn is_called(&self, member: MemberId, wanted: &str) -> bool {
        let Some(name) = self.member_name(member) else {
            return member.to_string() == wanted;
        };
        name.as_str() == wanted
            || wanted.strip_prefix(name.as_str()) == Some(&format!(".{}", tail(member)))
            || member.to_string() == wanted
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

/// The end of an id, in which even ids of one moment differ.
fn tail(member: MemberId) -> String {
    let text = member.to_string().to_lowercase();
    text[text.len() - TAIL_CHARS..].to_owned()
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
            past: &BTreeMap::new(),
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
    fn what_a_member_of_the_past_wrote_is_shown_under_its_name_and_nothing_goes_to_it() {
        let mut world = world();
        let gone = world.roster.members.remove(1);
        world.roster.agents.retain(|one| one.member != gone.member);
        let past = BTreeMap::from([(gone.member, gone.name.clone())]);
        let known = Known {
            roster: &world.roster,
            own_member: world.own,
            own_name: &world.own_name,
            own_agents: &world.own_agents,
            past: &past,
            stale: None,
        };
        let agent = AgentName::parse("coder").unwrap();
        let member = gone.member;
        let shown = known.address(&RosterAgent { member, agent });
        assert_eq!(shown, format!("@{}/coder", gone.name));
        assert!(known.resolve(&Address::parse(&shown).unwrap()).is_err());
    }

    #[test]
    fn c30_namesakes_are_told_apart_by_the_end_of_their_ids() {
        let mut world = world();
        world.roster.members[1].name = world.own_name.clone();
        let bob = world.roster.members[1].member;
        let ambiguous = resolve(&world, "@alice/planner").unwrap_err();
        assert_eq!(ambiguous.code, "ambiguous_recipient");
        let candidates = ambiguous.extra["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 2);
        assert_ne!(candidates[0], candidates[1]);
        let mut found: Vec<String> = candidates
            .iter()
            .map(|candidate| resolve(&world, candidate.as_str().unwrap()).unwrap())
            .collect();
        found.sort();
        let mut both = [world.own, bob].map(|member| format!("{member}/planner"));
        both.sort();
        assert_eq!(found, both);
        let by_id = resolve(&world, &format!("@{bob}/planner")).unwrap();
        assert_eq!(by_id, format!("{bob}/planner"));
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
