//! What a hook's token may do: scopes, and the decision about one send (IN-07). No I/O.

use heddle_core::envelope::Address;
use heddle_core::names::{AgentName, MeshName, TopicName};
use serde::Deserialize;

/// `reply:event`, `dm:send:<sender>`, `topic:<name>:post`. Written with the angle brackets they mean the
/// sender and the topic of the event; with a name, that one only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Scope {
    /// An answer to the event's message, to its sender.
    ReplyEvent,
    /// Any message to the sender of the event.
    DmSender,
    /// The same, but only where that sender is `@member/agent`.
    DmNamed(String),
    /// A post to the topic of the event.
    TopicOfEvent,
    TopicNamed(TopicName),
}

impl TryFrom<String> for Scope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let unknown = || {
            format!(
                "scope {text:?} is none of reply:event, dm:send:<sender>, dm:send:@member/agent, topic:<name>:post"
            )
        };
        if text == "reply:event" {
            return Ok(Self::ReplyEvent);
        }
        if let Some(sender) = text.strip_prefix("dm:send:") {
            if sender == "<sender>" {
                return Ok(Self::DmSender);
            }
            return match Address::parse(sender) {
                Ok(Address::Dm {
                    member: Some(member),
                    agent,
                }) => Ok(Self::DmNamed(format!("@{member}/{agent}"))),
                _ => Err(unknown()),
            };
        }
        let topic = text.strip_prefix("topic:");
        match topic.and_then(|topic| topic.strip_suffix(":post")) {
            Some("<name>") => Ok(Self::TopicOfEvent),
            Some(name) => TopicName::parse(name)
                .map(Self::TopicNamed)
                .map_err(|_| unknown()),
            None => Err(unknown()),
        }
    }
}

/// What a token was minted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) hook: String,
    pub(crate) scopes: Vec<Scope>,
    /// The mesh of the event, where it has one.
    pub(crate) mesh: Option<MeshName>,
    /// The message, where the event is one.
    pub(crate) message: Option<GrantedMessage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GrantedMessage {
    /// The mailbox it lies in: the only one that the hook speaks for.
    pub(crate) agent: AgentName,
    /// The sender as a resolved reference, and as `@member/agent`.
    pub(crate) sender: String,
    pub(crate) sender_name: String,
    pub(crate) topic: Option<TopicName>,
    /// The ids by which an answer may name it.
    pub(crate) ids: [String; 2],
}

/// A send as the token's bearer asks for it, with its names resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) mesh: &'a MeshName,
    /// The agent that it names; none for the one that the event belongs to.
    pub(crate) agent: Option<&'a AgentName>,
    pub(crate) to: &'a Address,
    /// `to` as a resolved reference.
    pub(crate) recipient: &'a str,
    pub(crate) mentions: &'a [String],
    pub(crate) reply_to: &'a str,
}

impl Grant {
    /// Why it is not allowed; `Ok` when a scope covers it.
    pub(crate) fn decide(&self, asked: &Asked<'_>) -> Result<(), String> {
        if self.mesh.as_ref().is_some_and(|mesh| mesh != asked.mesh) {
            return Err("the token is for the mesh of its event only".to_owned());
        }
        let own = self.message.as_ref().map(|message| &message.agent);
        if asked.agent.is_some() && asked.agent != own {
            return Err("the token speaks only for the mailbox in which its event lies".to_owned());
        }
        if self.scopes.iter().any(|scope| self.covers(scope, asked)) {
            return Ok(());
        }
        Err(format!(
            "no scope of {} covers this send; it has [{}]",
            self.hook,
            self.scopes
                .iter()
                .map(Scope::shown)
                .collect::<Vec<_>>()
                .join(", ")
        ))
    }

    fn covers(&self, scope: &Scope, asked: &Asked<'_>) -> bool {
        let message = self.message.as_ref();
        let topic = match asked.to {
            Address::Topic(topic) => Some(topic),
            _ => None,
        };
        match scope {
            Scope::TopicNamed(name) => topic == Some(name),
            Scope::TopicOfEvent => {
                topic.is_some() && topic == message.and_then(|message| message.topic.as_ref())
            }
            Scope::ReplyEvent => message.is_some_and(|message| {
                message.is_to_sender(asked) && message.ids.iter().any(|id| id == asked.reply_to)
            }),
            Scope::DmSender => message.is_some_and(|message| message.is_to_sender(asked)),
            Scope::DmNamed(name) => message
                .is_some_and(|message| message.sender_name == *name && message.is_to_sender(asked)),
        }
    }
}

impl GrantedMessage {
    /// To the sender, and drawing nobody else in.
    fn is_to_sender(&self, asked: &Asked<'_>) -> bool {
        matches!(asked.to, Address::Dm { .. })
            && asked.recipient == self.sender
            && asked.mentions.iter().all(|mention| *mention == self.sender)
    }
}

impl Scope {
    fn shown(&self) -> String {
        match self {
            Self::ReplyEvent => "reply:event".to_owned(),
            Self::DmSender => "dm:send:<sender>".to_owned(),
            Self::DmNamed(name) => format!("dm:send:{name}"),
            Self::TopicOfEvent => "topic:<name>:post".to_owned(),
            Self::TopicNamed(name) => format!("topic:{name}:post"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(scopes: &[&str]) -> Grant {
        let scope = |text: &&str| Scope::try_from((*text).to_owned()).unwrap();
        Grant {
            hook: "on-message".to_owned(),
            scopes: scopes.iter().map(scope).collect(),
            mesh: Some(MeshName::parse("home").unwrap()),
            message: Some(GrantedMessage {
                agent: AgentName::parse("coder").unwrap(),
                sender: "M1/planner".to_owned(),
                sender_name: "@ann/planner".to_owned(),
                topic: TopicName::parse("ops").ok(),
                ids: ["c1".to_owned(), "b1".to_owned()],
            }),
        }
    }

    /// `to recipient reply_to mesh agent`, `-` for nothing.
    fn may(grant: &Grant, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let word = |n: usize| if words[n] == "-" { "" } else { words[n] };
        grant
            .decide(&Asked {
                mesh: &MeshName::parse(word(3)).unwrap(),
                agent: AgentName::parse(word(4)).ok().as_ref(),
                to: &Address::parse(word(0)).unwrap(),
                recipient: word(1),
                mentions: &[],
                reply_to: word(2),
            })
            .is_ok()
    }

    #[test]
    fn in_07_a_scope_covers_its_event_topic_or_sender_and_nothing_else() {
        let sends = [
            "@planner M1/planner c1 home -",
            "@planner M1/planner b1 home coder",
            "@planner M1/planner - home -",
            "@planner M1/planner c2 home -",
            "@planner M2/planner c1 home -",
            "@planner M1/planner c1 other -",
            "@planner M1/planner c1 home tester",
            "#ops T/ops - home -",
            "#dev T/dev - home -",
            "queue:ops Q/ops c1 home -",
        ];
        for (scopes, allowed) in [
            (&[][..], ".........."),
            (&["reply:event"], "yy........"),
            (&["dm:send:<sender>"], "yyyy......"),
            (&["dm:send:@ann/planner"], "yyyy......"),
            (&["dm:send:@bob/planner"], ".........."),
            (&["topic:<name>:post"], ".......y.."),
            (&["topic:dev:post"], "........y."),
            (&["reply:event", "topic:ops:post"], "yy.....y.."),
        ] {
            let grant = grant(scopes);
            let got: String = sends
                .iter()
                .map(|line| if may(&grant, line) { 'y' } else { '.' })
                .collect();
            assert_eq!(got, allowed, "{scopes:?}");
        }
    }

    #[test]
    fn in_07_a_mention_draws_nobody_else_in_and_an_event_without_message_has_no_sender() {
        let mut grant = grant(&["dm:send:<sender>", "reply:event", "topic:ops:post"]);
        let mesh = MeshName::parse("home").unwrap();
        let to = Address::parse("@planner").unwrap();
        let mentions = ["M1/planner".to_owned(), "M3/eve".to_owned()];
        let asked = |mentions| Asked {
            mesh: &mesh,
            agent: None,
            to: &to,
            recipient: "M1/planner",
            mentions,
            reply_to: "c1",
        };
        assert!(grant.decide(&asked(&mentions[..1])).is_ok());
        assert!(grant.decide(&asked(&mentions)).is_err());
        grant.message = None;
        assert!(grant.decide(&asked(&[])).is_err());
    }

    #[test]
    fn a_scope_that_is_not_known_is_refused() {
        for text in [
            "",
            "all",
            "reply",
            "dm:send:",
            "dm:send:@planner",
            "dm:send:#ops",
            "topic:ops",
            "topic::post",
            "topic:a/b:post",
        ] {
            assert!(Scope::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
