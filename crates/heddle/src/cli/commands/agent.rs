//! `heddle agent register | list`: the mailboxes of this home.

use clap::{Args as ClapArgs, Subcommand};
use heddle_wire::ipc::{AgentBody, AgentList};

use crate::cli::keyed::Keyed;
use crate::cli::text::table;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Give an agent a mailbox; again changes nothing
    Register {
        name: String,
        #[command(flatten)]
        keyed: Keyed,
    },
    /// Show this home's agents and what waits for them
    List,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Register { name, keyed } => {
            let client = context.client().under(keyed.key);
            let answer = client.register_agent(&AgentBody {
                agent: name,
                mesh: context.mesh.clone(),
            })?;
            context.print(&answer, |answer| {
                if answer.duplicate == Some(true) {
                    format!("{} was registered already\n", answer.address)
                } else {
                    format!("registered {}\n", answer.address)
                }
            })
        }
        Verb::List => {
            let query: Vec<_> = context.mesh_scope().into_iter().collect();
            let list = context.client().agents(&query)?;
            context.print(&list, describe)
        }
    }
}

fn describe(list: &AgentList) -> String {
    let mut rows = vec![vec![
        "AGENT".to_owned(),
        "ADDRESS".to_owned(),
        "UNREAD".to_owned(),
    ]];
    for agent in &list.agents {
        rows.push(vec![
            agent.agent.clone(),
            agent.address.clone(),
            agent.unread.to_string(),
        ]);
    }
    table(&rows)
}
