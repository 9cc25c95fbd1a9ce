//! `heddle daemon outbox prune`: gives the space of old payloads back, and retires dead rows where that is asked for.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{PruneAnswer, PruneBody};

use crate::cli::keyed::Keyed;
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Only rows that were accepted longer ago than this: 30d, 12h, 90m or 45s
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_seconds)]
    older_than: u64,
    /// Only rows of these states: done, dead, aborted
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<String>,
    /// With --status dead: they are aborted besides, so that nobody is told of them any more; their ids stay taken
    #[arg(long)]
    retire: bool,
    /// Do it; without this it only says what it would do
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    keyed: Keyed,
}

/// Each part of a prune is a request of its own: the first under the key, the others under keys that follow from it.
fn key_of(args: &Args, part: usize) -> Option<String> {
    let key = args.keyed.key.as_ref()?;
    Some(match part {
        0 => key.clone(),
        part => format!("{key}/{part}"),
    })
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let mut body = PruneBody {
        older_than_seconds: args.older_than,
        status: args.status.clone(),
        confirm: args.confirm,
        retire: args.retire,
        cursor: None,
    };
    let mut total = PruneAnswer {
        duplicate: false,
        rows: 0,
        bytes: 0,
        confirmed: args.confirm,
        cursor: None,
    };
    for number in 0.. {
        let client = context.client().under(key_of(args, number));
        let part = client.prune(&body)?;
        total.duplicate |= part.duplicate;
        total.rows += part.rows;
        total.bytes += part.bytes;
        if part.cursor.is_none() {
            break;
        }
        body.cursor = part.cursor;
    }
    context.print(&total, if args.retire { retired } else { describe })
}

fn retired(answer: &PruneAnswer) -> String {
    let rows = answer.rows;
    match (rows, answer.confirmed) {
        (0, _) => "there is no dead row of that age\n".to_owned(),
        (_, true) => format!("retired {rows} dead rows; their ids stay taken\n"),
        (_, false) => {
            format!(
                "would retire {rows} dead rows; their ids would stay taken\n  next: the same with --confirm\n"
            )
        }
    }
}

fn describe(answer: &PruneAnswer) -> String {
    let (rows, bytes) = (answer.rows, answer.bytes);
    match (rows, answer.confirmed) {
        (0, _) => "there is no payload to give back\n".to_owned(),
        (_, true) => format!(
            "gave back {bytes} bytes of {rows} payloads; their ids, states and chains stay, and a dead one among them cannot be requeued any more\n"
        ),
        (_, false) => format!(
            "would give back {bytes} bytes of {rows} payloads; ids, states and chains would stay, but a dead message without its payload cannot be requeued any more: `heddle daemon outbox --failed` lists them\n  next: the same with --confirm\n"
        ),
    }
}
