//! `heddle mesh create NAME`: a further personal mesh of this home.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{MeshCreateAnswer, MeshCreateBody};

use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What to call it, here and for whoever is invited
    name: String,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let body = MeshCreateBody { name: args.name };
    context.print(&context.client().create_mesh(&body)?, describe)
}

fn describe(answer: &MeshCreateAnswer) -> String {
    let mesh = &answer.mesh;
    let began = if answer.duplicate {
        format!("mesh {mesh} was there already; you are @{}", answer.member)
    } else {
        format!(
            "mesh {mesh} is made; you are @{}, and nobody else is in it",
            answer.member
        )
    };
    format!(
        "{began}\n\nTry next:\n  heddle --mesh {mesh} agent register planner\n  heddle --mesh {mesh} mesh invite\n"
    )
}
