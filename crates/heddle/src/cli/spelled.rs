//! Commands that can be run as they are printed: with the home, mesh and agent that this command line named.

pub use heddle_core::shell::quoted;

use heddle_core::approvers::{self, PERSON};
use heddle_wire::ipc::OutboxRow;
use serde_json::Value;

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

/// Names an agent itself, and acts for none.
const REGISTER: &str = "heddle agent register";

/// The mesh that is meant where none is named.
const HOME_MESH: &str = "home";

/// What somebody else is to say: a person, and not the agent that is told of it.
const ANOTHERS: [&str; 2] = ["heddle effect approve", "heddle effect deny"];

/// Of the daemon's verbs, only those of the outbox are about a mesh.
fn is_of_the_home(command: &str) -> bool {
    let mut words = command.split_whitespace().skip(1);
    words.next() == Some("daemon") && words.next() != Some("outbox")
}

impl Context {
    /// The command with what was named on this command line; what the environment names needs no word.
    /// One that is a person's says so itself: nobody else is put in the open place.
    pub fn spelled(&self, command: &str) -> String {
        let open = format!(" --agent {PERSON}");
        let is_anothers =
            command.contains(&open) || ANOTHERS.iter().any(|verb| command.starts_with(verb));
        let whole = command.replacen(&open, "", 1);
        let command = whole.as_str();
        // What stands behind -- is another command's.
        let (command, rest) = match command.split_once(" -- ") {
            Some((command, rest)) => (command, format!(" -- {rest}")),
            None => (command, String::new()),
        };
        let mut spelled = command.to_owned();
        let verb = command.split_whitespace().nth(1).unwrap_or_default();
        let has_scope = !WITHOUT_SCOPE.contains(&verb) && !is_of_the_home(command);
        let environment = &self.environment;
        let mesh = self.mesh.as_ref().filter(|_| self.mesh != environment.mesh);
        let agent = self.agent.as_ref();
        let agent = agent.filter(|_| self.agent != environment.agent);
        // What is run in another home knows nothing of this one.
        let is_elsewhere = approvers::is_run_there(command);
        let home = Some(&self.home).filter(|home| Some(*home) != environment.home.as_ref());
        let home = home.filter(|_| !is_elsewhere);
        let named = [
            (
                "--agent",
                agent
                    .filter(|_| has_scope && !is_anothers && !command.starts_with(REGISTER))
                    .cloned(),
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
        spelled + &rest
    }

    /// Our words, with every command in them spelled: those in backticks, or a text that is one.
    pub fn spelled_in(&self, text: &str) -> String {
        each_command(text, |command| self.spelled(command))
    }

    /// Our words about a row of the outbox: every command in them names its sender and its mesh, unless a command that
    /// names none means just those.
    pub fn spelled_of(&self, text: &str, row: &OutboxRow) -> String {
        let agent = self.acting_agent();
        let is_acting = agent.as_deref() == Some(row.agent.as_str());
        let is_in_mesh = self.mesh.as_deref().unwrap_or(HOME_MESH) == row.mesh;
        each_command(text, |command| {
            let mut whose = command.to_owned();
            if !is_acting {
                whose.push_str(&format!(" --agent {}", quoted(&row.agent)));
            }
            if !is_in_mesh {
                whose.push_str(&format!(" --mesh {}", quoted(&row.mesh)));
            }
            self.spelled(&whose)
        })
    }

    /// Whom a command that names no agent acts for; `None` where that cannot be asked now.
    fn acting_agent(&self) -> Option<String> {
        let named = self.agent.clone();
        let agent = named.or_else(|| self.client().hasty().status().ok()?.agent)?;
        Some(agent.strip_prefix('@').unwrap_or(&agent).to_owned())
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

/// The commands of a text: those in backticks, or the text itself where it is one.
fn each_command(text: &str, spell: impl Fn(&str) -> String) -> String {
    let begins = format!("{NAME} ");
    if text.starts_with(&begins) && !text.contains('`') {
        return spell(text);
    }
    let parts = text.split('`').enumerate().map(|(place, part)| {
        if place % 2 == 1 && part.starts_with(&begins) {
            spell(part)
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<String>>().join("`")
}

impl CliError {
    /// Where several senders used an id: this command once for each of them.
    #[must_use]
    pub fn for_each_sender(mut self, command: &str) -> Self {
        let senders = self.problem.as_ref().and_then(|problem| {
            let senders = problem.extra.get("senders")?.as_array()?;
            let text = |one: &Value, name: &str| Some(one.get(name)?.as_str()?.to_owned());
            let senders = senders
                .iter()
                .map(|one| Some((text(one, "agent")?, text(one, "mesh")?)));
            senders.collect::<Option<Vec<(String, String)>>>()
        });
        if let Some(senders) = senders {
            let commands = senders.iter().map(|(agent, mesh)| {
                format!(
                    "`{command} --agent {} --mesh {}`",
                    quoted(agent),
                    quoted(mesh)
                )
            });
            let commands: Vec<String> = commands.collect();
            self.next = Some(format!("Say whose it is: {}.", commands.join(" or ")));
        }
        self
    }

    /// The same, with a next step that can be run.
    #[must_use]
    pub fn spelled(mut self, context: &Context) -> Self {
        self.next = self.next.map(|next| context.spelled_in(&next));
        let answered = self.answer.as_mut().and_then(|it| it.get_mut("next"));
        if let Some(next) = answered
            && let Some(text) = next.as_str()
        {
            *next = context.spelled_in(text).into();
        }
        if let Some(problem) = &mut self.problem {
            problem.next = context.spelled_in(&problem.next);
            let told = problem.extra.get_mut("warnings");
            for warning in told.and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(next) = warning.get_mut("next")
                    && let Some(text) = next.as_str()
                {
                    *next = context.spelled_in(text).into();
                }
            }
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
                "heddle effect compensate k -- COMMAND",
                r"heddle effect compensate k --agent 'it'\''s' --mesh team -- COMMAND",
            ),
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
        let named = context(None, Some("m"));
        let restore = "heddle daemon restore FILE";
        assert_eq!(named.spelled(restore), restore);
        let list = "heddle daemon outbox list";
        assert_eq!(named.spelled(list), format!("{list} --mesh m"));
        assert_eq!(elsewhere.spelled("heddle up"), "heddle up --home '/a b'");
    }

    #[test]
    fn what_a_person_is_to_run_does_not_name_the_agent_that_is_told_of_it() {
        let named = context(Some("planner"), None);
        assert_eq!(
            named.spelled_in("Carol runs `heddle effect compensate k --agent PERSON -- COMMAND`; see `heddle peers`."),
            "Carol runs `heddle effect compensate k -- COMMAND`; see `heddle peers --agent planner`."
        );
        let there = Context {
            home: "/elsewhere".into(),
            ..context(Some("planner"), Some("team"))
        };
        assert_eq!(
            there.spelled("heddle effect approve e --agent PERSON --mesh MESH"),
            "heddle effect approve e --mesh MESH"
        );
        assert_eq!(
            there.spelled(
                "heddle effect approve e --agent PERSON --mesh 01M7H2CQZ63R4KAJ95MD5BAFGJ"
            ),
            "heddle effect approve e --mesh 01M7H2CQZ63R4KAJ95MD5BAFGJ"
        );
        // Our words about people decide nothing.
        assert_eq!(
            named.spelled_in("A person may look with `heddle peers`."),
            "A person may look with `heddle peers --agent planner`."
        );
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
