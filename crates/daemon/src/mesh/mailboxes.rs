//! The mailboxes of this home in a mesh: made here first, then told to its broker.

use heddle_core::error_code::ErrorCode;
use heddle_core::limits::{AGENTS_MAX, REGISTER_TIMEOUT};
use heddle_core::names::AgentName;
use heddle_wire::broker::Request;
use heddle_wire::problem::Problem;

use super::MeshState;
use crate::shared::{Shared, read, store_problem, write};

impl MeshState {
    #[cfg(test)]
    pub(crate) fn pretend_agents(&self, agents: impl Iterator<Item = AgentName>) {
        write(&self.agents).extend(agents);
    }

    fn no_more_agents(&self, agent: &AgentName) -> Problem {
        let detail = format!(
            "this home has {AGENTS_MAX} agents in mesh {} already, which is the most that it can have; @{agent} would be one more",
            self.mesh.name
        );
        Problem::new(ErrorCode::InvalidRequest, detail).next(
            "Use a name that is here (`heddle agent list`): an agent may come back under its name in every session.",
        )
    }

    /// Makes sure that this home has the mailbox; true when it is new.
    ///
    /// It is kept here first; the broker hears of it now, or in the next hello. A broker that hangs is not waited for: what
    /// is sent in this name comes behind the question, on the same connection.
    pub(crate) async fn register(
        &self,
        shared: &Shared,
        agent: &AgentName,
    ) -> Result<bool, Problem> {
        if self.is_own(agent) {
            return Ok(false);
        }
        if read(&self.agents).len() >= AGENTS_MAX {
            return Err(self.no_more_agents(agent));
        }
        let fresh = shared
            .store
            .register_agent(self.mesh.mesh, agent.clone(), shared.clock.wall())
            .await
            .map_err(|error| store_problem(&error))?;
        write(&self.agents).insert(agent.clone());
        if self.is_connected() {
            let request = Request::RegisterAgent {
                agent: agent.clone(),
            };
            // A link that breaks right now says hello again, and the hello names every mailbox.
            if let Err(problem) = self.ask_within(request, REGISTER_TIMEOUT).await
                && problem.known_code() != Some(ErrorCode::NotConnected)
            {
                return Err(problem);
            }
        }
        Ok(fresh)
    }
}
