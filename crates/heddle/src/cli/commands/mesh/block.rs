//! `heddle mesh block MEMBER`: nothing of a member is heard, until it is granted a role again.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{MeshBlockBody, MeshStandingAnswer};

use crate::cli::keyed::Keyed;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The member's name or id
    member: String,
    #[command(flatten)]
    keyed: Keyed,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let client = context.client().under(args.keyed.key);
    let answer = client.block(&MeshBlockBody {
        member: args.member,
        mesh: context.mesh.clone(),
    })?;
    context.print(&answer, describe)
}

fn describe(answer: &MeshStandingAnswer) -> String {
    let MeshStandingAnswer { member, mesh, .. } = answer;
    let state = if answer.changed {
        "is blocked in"
    } else {
        "was blocked already in"
    };
    format!(
        "@{member} {state} {mesh}: its connections are cut and nothing of it is accepted; mail waits for it.\n\
         `heddle --mesh {mesh} mesh grant {member} member` lifts that.\n"
    )
}
