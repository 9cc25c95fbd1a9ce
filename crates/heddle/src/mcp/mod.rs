//! `heddle mcp`: the doors of an agent's tools, over standard input and output.
//!
//! A tool is a file in `tools/`: its name, its description, its arguments, and a body that reaches the
//! daemon through `wire::client` like every other door. Standard output belongs to the protocol: nothing
//! here prints. What a tool list costs an agent is a promise (DESIGN §13.8) that a test holds.

mod agent_name;
mod answer;
mod profile;
mod server;
mod session;
mod stdio;
mod tools;

use rmcp::ServiceExt;

pub use profile::Profile;

use crate::cli::{CliError, Context, exit};
use crate::system::Runtime;
use server::Server;
use session::Session;
use stdio::Stdio;

/// Serves until the client closes its end.
pub fn serve(context: &Context, profile: Profile, may_start: bool) -> Result<(), CliError> {
    let session = Session::new(context, may_start)?;
    let runtime = Runtime::single().map_err(|error| failed(&error))?;
    runtime.run(async {
        let server = Server::new(session, profile);
        match server.serve(Stdio::open()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(|e| failed(&e)),
            // A client that goes away before it has said anything is no failure of ours.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    })
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::new(exit::FAILED, format!("the MCP server ended: {error}"))
        .next("Speak MCP to its standard input; an agent's client does that when it starts it.")
}
