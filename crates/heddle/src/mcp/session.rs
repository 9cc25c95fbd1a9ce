//! One MCP client at work: whom it acts for, and the daemon that it reaches.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use heddle_core::names::AgentName;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::AgentBody;
use serde_json::{Value, json};

use super::agent_name::derived;
use super::answer::ToolError;
use crate::cli::{CliError, Context, exit};
use crate::up::{self, Flavour};

/// So many unread messages are looked through for an urgent one.
const LOOK_AHEAD: &str = "50";

pub(super) struct Session {
    client: Client,
    /// To start a daemon with: as a person would, in nobody else's name.
    starter: Option<Context>,
    context: Context,
    folder: PathBuf,
    mesh: Option<String>,
    named: Option<AgentName>,
    /// Whom it acts for, once the client has said who it is and the mailbox is there.
    agent: OnceLock<AgentName>,
    registering: Mutex<()>,
    reading: Mutex<()>,
    /// Its own read cursor (DESIGN §5): two sessions of one agent do not read for each other.
    pub(super) name: String,
}

impl Session {
    pub(super) fn new(context: &Context, may_start: bool) -> Result<Self, CliError> {
        let folder = std::env::current_dir().map_err(|error| {
            CliError::new(exit::FAILED, format!("there is no working folder: {error}"))
                .next("Start it in the folder that the agent works in.")
        })?;
        Ok(Self {
            client: context.client(),
            starter: may_start.then(|| Context {
                agent: None,
                ..context.clone()
            }),
            context: context.clone(),
            folder,
            mesh: context.mesh.clone(),
            named: context.agent_name()?,
            agent: OnceLock::new(),
            registering: Mutex::new(()),
            reading: Mutex::new(()),
            name: format!("mcp-{}", Context::mint_id()),
        })
    }

    /// For whoever reads and then moves the cursor: one at a time.
    pub(super) fn reading(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client, with the agent's mailbox in place. Starts the daemon when none runs.
    pub(super) fn enter(&self, client_name: &str) -> Result<&AgentName, ClientError> {
        if let Some(agent) = self.agent.get() {
            return Ok(agent);
        }
        let _one_at_a_time = self
            .registering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(agent) = self.agent.get() {
            return Ok(agent);
        }
        let agent = match &self.named {
            Some(agent) => agent.clone(),
            None => derived(client_name, &self.folder)
                .ok_or_else(|| ClientError::Protocol("no agent name can be made".to_owned()))?,
        };
        let body = AgentBody {
            agent: agent.to_string(),
            mesh: self.mesh.clone(),
        };
        match (self.client.register_agent(&body), &self.starter) {
            (Err(ClientError::NotRunning { .. }), Some(starter)) => {
                // Another one may be quicker; whoever it was, there is a daemon then.
                let _ = up::detach(starter, Flavour::Embedded);
                self.client.register_agent(&body)?;
            }
            (other, _) => drop(other?),
        }
        Ok(self.agent.get_or_init(|| agent))
    }

    /// The daemon is gone in the middle of a conversation: starts one where that is ours to do. Whether it runs now.
    pub(super) fn start_again(&self) -> bool {
        let _one_at_a_time = self
            .registering
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(starter) = &self.starter else {
            return false;
        };
        // Another one may be quicker; whoever it was, there is a daemon then.
        up::detach(starter, Flavour::Embedded).is_ok() || self.client.status().is_ok()
    }

    /// Whether a daemon that is gone is started by the next call.
    pub(super) fn may_start(&self) -> bool {
        self.starter.is_some()
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn agent(&self) -> Option<String> {
        self.agent.get().map(ToString::to_string)
    }

    /// As the same agent would call a verb from this folder. What the environment of a server names, the shell in which a
    /// command of ours is pasted does not know.
    pub(super) fn context(&self) -> Context {
        let mut context = Context {
            agent: self.agent(),
            json: true,
            ..self.context.clone()
        };
        (context.environment.agent, context.environment.mesh) = (None, None);
        context
    }

    /// The refusal, with every command in it as it can be pasted.
    pub(super) fn spelled(&self, mut error: ToolError) -> ToolError {
        if let ToolError::Client(ClientError::Problem(problem)) = &mut error {
            problem.next = self.context().spelled_in(&problem.next);
        }
        error
    }

    pub(super) fn mesh(&self) -> Option<String> {
        self.mesh.clone()
    }

    /// The query that names agent and mesh, and more.
    pub(super) fn query<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let agent = self.agent.get().map(|agent| ("agent", agent.as_str()));
        let mesh = self.mesh.as_deref().map(|mesh| ("mesh", mesh));
        let scope = agent.into_iter().chain(mesh);
        scope.chain(more.iter().copied()).collect()
    }

    /// What the agent should know although it asked for something else: the daemon's warnings, urgent mail.
    pub(super) fn urgent(&self) -> Vec<Value> {
        let query = self.query(&[("session", &self.name), ("limit", LOOK_AHEAD)]);
        // That nobody could be asked is no failure of the tool that has just succeeded.
        let Ok(page) = self.client.inbox(&query) else {
            return Vec::new();
        };
        // Whatever the daemon has to tell is told once, so what came with this look must not be lost.
        let told = page.warnings.iter().map(|warning| json!(warning));
        let urgent = page.items.iter().filter(|item| item.priority == "now");
        let urgent = urgent.map(|item| {
            json!({
                "type": "urgent_message",
                "from": item.from,
                "id": item.id,
                "next": "call check_messages",
            })
        });
        told.chain(urgent).collect()
    }
}

#[cfg(test)]
mod tests {
    use heddle_core::error_code::ErrorCode;
    use heddle_wire::problem::Problem;

    use super::*;
    use crate::env::Environment;

    /// Whoever pastes a command has another environment than the server that an agent has started.
    #[test]
    fn a_command_for_a_person_names_the_mesh_also_where_the_servers_environment_does() {
        let environment = Environment {
            home: Some("/h".into()),
            mesh: Some("crew".to_owned()),
            agent: Some("bob".to_owned()),
            ..Environment::default()
        };
        let context = Context::new(environment, true, None, None, None).unwrap();
        let session = Session::new(&context, false).unwrap();
        session.agent.set(AgentName::parse("bob").unwrap()).unwrap();
        assert_eq!(
            session.context().spelled("heddle effect run -- COMMAND"),
            "heddle effect run --agent bob --mesh crew -- COMMAND"
        );
        let refused = Problem::new(ErrorCode::EffectNotFound, "k")
            .next("A person runs `heddle effect approve e --agent PERSON`.");
        let refused = ClientError::Problem(Box::new(refused));
        let ToolError::Client(ClientError::Problem(told)) = session.spelled(refused.into()) else {
            panic!("it is the same refusal");
        };
        assert_eq!(
            told.next,
            "A person runs `heddle effect approve e --mesh crew`."
        );
    }
}
