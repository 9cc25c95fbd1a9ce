//! Commands that can be run as they are printed: with the home, mesh and agent that this command line named.

use super::{CliError, Context};

/// What a command in our words begins with.
const NAME: &str = "heddle";
/// Verbs for which mesh and agent say nothing.
const WITHOUT_SCOPE: [&str; 9] = [
    "up",
    "down",
    "status",
    "logs",
    "doctor",
    "completions",
    "broker",
    "journal",
    "advanced",
];

/// What somebody else is to say: a person, and not the agent that is told of it.
const ANOTHERS: [&str; 2] = ["heddle effect approve", "heddle effect deny"];

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Context {
    /// The command with what was named on this command line; what the environment names needs no word.
    pub fn spelled(&self, command: &str) -> String {
        let mut spelled = command.to_owned();
        let verb = command.split_whitespace().nth(1).unwrap_or_default();
        let has_scope = !WITHOUT_SCOPE.contains(&verb);
        let is_anothers = ANOTHERS.iter().any(|verb| command.starts_with(verb));
        let environment = &self.environment;
        let mesh = self.mesh.as_ref().filter(|_| self.mesh != environment.mesh);
        let agent = self.agent.as_ref();
        let agent = agent.filter(|_| self.agent != environment.agent);
        let home = Some(&self.home).filter(|home| Some(*home) != environment.home.as_ref());
        let named = [
            (
                "--agent",
                agent.filter(|_| has_scope && !is_anothers).cloned(),
            ),
            ("--mesh", mesh.filter(|_| has_scope).cloned()),
            ("--home", home.map(|home| home.display().to_string())),
        ];
        for (option, value) in named {
            let is_there = command.split_whitespace().any(|word| word == option);
            if let Some(value) = value.filter(|_| !is_there) {
                spelled.push_str(&format!(" {option} {}", quoted(&value)));
            }
        }
        spelled
    }

    /// Our words, with every command in them spelled: those in backticks, or a text that is one.
    pub fn spelled_in(&self, text: &str) -> String {
        let begins = format!("{NAME} ");
        if text.starts_with(&begins) && !text.contains('`') {
            return self.spelled(text);
        }
        let parts = text.split('`').enumerate().map(|(place, part)| {
            if place % 2 == 1 && part.starts_with(&begins) {
                self.spelled(part)
            } else {
                part.to_owned()
            }
        });
        parts.collect::<Vec<_>>().join("`")
    }

    /// Where a list goes on: the whole command.
    pub fn there_is_more(
        &self,
        verb: &str,
        words: &[&str],
        options: &[(&str, Option<&str>)],
    ) -> String {
        let mut command = vec![NAME.to_owned(), verb.to_owned()];
        command.extend(words.iter().map(|word| quoted(word)));
        for (option, value) in options {
            if let Some(value) = value {
                command.push(format!("--{option} {}", quoted(value)));
            }
        }
        format!("there is more: {}\n", self.spelled(&command.join(" ")))
    }
}

impl CliError {
    /// The same, with a next step that can be run.
    #[must_use]
    pub fn spelled(mut self, context: &Context) -> Self {
        self.next = self.next.map(|next| context.spelled_in(&next));
        if let Some(problem) = &mut self.problem {
            problem.next = context.spelled_in(&problem.next);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Environment;

    fn context(agent: Option<&str>, mesh: Option<&str>) -> Context {
        let environment = Environment {
            home: Some("/h".into()),
            agent: Some("inherited".to_owned()),
            ..Environment::default()
        };
        let text = |name: Option<&str>| name.map(str::to_owned);
        Context::new(environment, false, None, text(agent), text(mesh)).unwrap()
    }

    #[test]
    fn a_command_names_what_the_caller_named_and_nothing_else() {
        let plain = context(None, None);
        assert_eq!(plain.spelled("heddle task ready"), "heddle task ready");
        let named = context(Some("it's"), Some("team"));
        for (command, expected) in [
            (
                "heddle task ready",
                r"heddle task ready --agent 'it'\''s' --mesh team",
            ),
            ("heddle status", "heddle status"),
            (
                "heddle effect approve env_1",
                "heddle effect approve env_1 --mesh team",
            ),
            (
                "heddle peers --mesh other",
                r"heddle peers --mesh other --agent 'it'\''s'",
            ),
        ] {
            assert_eq!(named.spelled(command), expected);
        }
        let elsewhere = Context {
            home: "/a b".into(),
            ..context(None, None)
        };
        assert_eq!(elsewhere.spelled("heddle up"), "heddle up --home '/a b'");
    }

    #[test]
    fn only_our_commands_are_spelled() {
        let named = context(None, Some("team"));
        assert_eq!(
            named.spelled_in("See `heddle peers`, or `kill -9`, then heddle waits."),
            "See `heddle peers --mesh team`, or `kill -9`, then heddle waits."
        );
        assert_eq!(named.spelled_in("heddle peers"), "heddle peers --mesh team");
        assert_eq!(
            named.there_is_more(
                "state list",
                &["a b"],
                &[("cursor", Some("k")), ("x", None)]
            ),
            "there is more: heddle state list 'a b' --cursor k --mesh team\n"
        );
    }
}
