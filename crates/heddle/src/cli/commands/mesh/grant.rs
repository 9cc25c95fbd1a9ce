//! `heddle mesh grant MEMBER ROLE`: what a member may do, and the end of a block.

use clap::{Args as ClapArgs, ValueEnum};
use heddle_wire::ipc::{MeshGrantBody, MeshStandingAnswer};

use crate::cli::keyed::Keyed;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The member's name or id
    member: String,
    #[arg(value_enum)]
    role: Role,
    #[command(flatten)]
    keyed: Keyed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Invites, grants, blocks and revokes
    Owner,
    /// Sends and receives
    Member,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Member => "member",
        }
    }
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let client = context.client().under(args.keyed.key);
    let answer = client.grant(&MeshGrantBody {
        member: args.member,
        role: args.role.as_str().to_owned(),
        mesh: context.mesh.clone(),
    })?;
    context.print(&answer, describe)
}

fn describe(answer: &MeshStandingAnswer) -> String {
    let MeshStandingAnswer {
        member, mesh, role, ..
    } = answer;
    if answer.changed {
        format!("@{member} is {role} of {mesh}, and is heard\n")
    } else {
        format!("@{member} was {role} of {mesh} already\n")
    }
}
