//! `heddle forget KEY`: take a memory away.

use clap::Args as ClapArgs;
use heddle_wire::ipc::KeyBody;

use super::remember::{again, describe, id};
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    key: String,
    /// The idempotency key: the same key and request again land once
    #[arg(long)]
    id: Option<String>,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let body = KeyBody {
        key: args.key,
        client_message_id: Some(id(args.id)),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let client = context.client();
    let answer = again(|| client.forget(&body))?;
    context.print(&answer, |answer| describe("forgot", answer))
}
