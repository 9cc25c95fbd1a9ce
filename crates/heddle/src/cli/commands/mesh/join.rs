//! `heddle mesh join LINK`: the link as an argument, or with `-` from standard input, where nobody sees it.

use std::io::Read as _;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle_wire::ipc::{MeshJoinAnswer, MeshJoinBody};

use super::publish::absolute;
use crate::cli::keyed::Keyed;
use crate::cli::{CliError, Context, exit};

/// More than any link has.
const INPUT_BYTES_MAX: u64 = 16 << 10;

#[derive(ClapArgs)]
pub struct Args {
    /// The link, or - to read it from standard input
    link: String,
    /// Who you are in the mesh [default: as in your own]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What to call the mesh in this home [default: as the inviter does]
    #[arg(long = "as", value_name = "MESH")]
    local: Option<String>,
    /// The certificate of the authority that signed the broker's (PEM); read at every connection, so keep it there
    /// [default: the authorities that this machine trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    keyed: Keyed,
}

/// The link is a secret.
impl std::fmt::Debug for Args {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Args").finish_non_exhaustive()
    }
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let link = match args.link.as_str() {
        "-" => from_input()?,
        _ => args.link,
    };
    let ca_file = args.ca.map(|file| absolute("--ca", file)).transpose()?;
    let client = context.client().under(args.keyed.key);
    let answer = client.join(&MeshJoinBody {
        link,
        name: args.name,
        mesh: args.local,
        ca_file,
    })?;
    context.print(&answer, describe)
}

fn from_input() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(INPUT_BYTES_MAX)
        .read_to_string(&mut text);
    match read {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(CliError::new(
            exit::USAGE,
            format!("standard input: {error}"),
        )),
    }
}

fn describe(answer: &MeshJoinAnswer) -> String {
    let mesh = &answer.mesh;
    let began = if answer.duplicate {
        "this home was in mesh"
    } else {
        "this home is in mesh"
    };
    let state = match &answer.next {
        Some(next) => format!("\n{next}\n"),
        None if answer.connected => String::new(),
        None => "\nIts broker is out of reach for now; the daemon connects by itself as soon as it can.\n"
            .to_owned(),
    };
    format!(
        "{began} {mesh} as @{}\n{state}\nTry next:\n  heddle --mesh {mesh} peers\n  heddle --mesh {mesh} send @AGENT 'hello'\n",
        answer.member
    )
}
