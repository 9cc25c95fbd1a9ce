//! `heddle mesh create | list | info | clock | publish | invite | join | grant | revoke | block | give-back |
//! take-back`: which meshes this home
//! is in, and with whom.

mod block;
mod clock;
mod create;
mod give_back;
mod grant;
mod invite;
mod join;
mod publish;
mod text;

use clap::{Args as ClapArgs, Subcommand};
use heddle_wire::ipc::MeshRevokeBody;

use crate::cli::keyed::Keyed;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a further personal mesh in this home
    Create(create::Args),
    /// Show the meshes of this home
    List,
    /// Show a mesh: its broker, its members, their keys
    Info,
    /// Show the logical clock of the mesh's data and how its sync stands
    Clock,
    /// Share a personal mesh, with all that is in it, with whoever is invited
    Publish(publish::Args),
    /// Make a link by which others join (publishes a personal mesh first); whoever has the link may
    Invite(invite::Args),
    /// Join the mesh that a link invites to
    Join(join::Args),
    /// Give a member a role, and lift a block; for the mesh's owners
    Grant(grant::Args),
    /// Hear a member no more until it is granted a role again; for the mesh's owners
    Block(block::Args),
    /// Write out what others made, this home has, and the log has lost
    GiveBack(give_back::Give),
    /// Send again what this home had made and another home gave back
    TakeBack(give_back::Take),
    /// Shut a member out, for ever; for the mesh's owners
    Revoke {
        /// The member's name or id
        member: String,
        #[command(flatten)]
        keyed: Keyed,
    },
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    match args.verb {
        Verb::Create(args) => create::run(context, args),
        Verb::Grant(args) => grant::run(context, args),
        Verb::Block(args) => block::run(context, args),
        Verb::List => context.print(&context.client().meshes()?, text::list),
        Verb::Info => {
            let query: Vec<_> = context.mesh_scope().into_iter().collect();
            context.print(&context.client().mesh_info(&query)?, text::info)
        }
        Verb::GiveBack(args) => give_back::give(context, &args),
        Verb::TakeBack(args) => give_back::take(context, &args),
        Verb::Clock => clock::run(context),
        Verb::Publish(args) => publish::run(context, args),
        Verb::Invite(args) => invite::run(context, &args),
        Verb::Join(args) => join::run(context, args),
        Verb::Revoke { member, keyed } => {
            let client = context.client().under(keyed.key);
            let answer = client.revoke(&MeshRevokeBody {
                member,
                mesh: context.mesh.clone(),
            })?;
            context.print(&answer, |answer| {
                if answer.changed {
                    format!(
                        "@{} is shut out of {}, now and for ever\n",
                        answer.member, answer.mesh
                    )
                } else {
                    format!(
                        "@{} was shut out of {} already\n",
                        answer.member, answer.mesh
                    )
                }
            })
        }
    }
}
