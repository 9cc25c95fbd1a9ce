//! `heddle mesh invite`: a link for so many, for so long.

use clap::Args as ClapArgs;
use heddle_wire::ipc::MeshInviteBody;

use crate::cli::commands::remember::{again, id};
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// How many may join by it
    #[arg(long, default_value_t = 1, value_name = "N")]
    uses: u32,
    /// How long it lasts: 7d, 12h, 30m, 45s
    #[arg(long, default_value = "7d", value_name = "TIME", value_parser = parse_seconds)]
    expires: u64,
    /// The idempotency key: the same key and request again give the same link
    #[arg(long)]
    id: Option<String>,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let body = MeshInviteBody {
        mesh: context.mesh.clone(),
        uses: Some(args.uses),
        expires_seconds: Some(args.expires),
    };
    let key = id(args.id.clone());
    let answer = again(|| context.client().invite(&key, &body))?;
    if answer.published {
        super::publish::watch(context)?;
    }
    context.print(&answer, |answer| {
        let who = match answer.uses {
            1 => "one home".to_owned(),
            uses => format!("{uses} homes"),
        };
        let shared = if answer.published {
            "\nThe mesh was this home's own; what is in it is shared with them from now on.\n"
        } else {
            ""
        };
        format!(
            "{}\n\nLets {who} of this machine join mesh {} until {}. Whoever has the link may use it:\n\
             pass it on in private, and join with `heddle mesh join -`, which reads it from standard input.\n{shared}",
            answer.link, answer.mesh, answer.expires_at
        )
    })
}
