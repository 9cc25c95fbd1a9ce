//! `heddle daemon outbox prune`: gives the space of old payloads back.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{PruneAnswer, PruneBody};

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
    /// Do it; without this it only says what it would do
    #[arg(long)]
    confirm: bool,
}

pub fn run(context: &Context, args: &Args) -> Result<(), CliError> {
    let client = context.client();
    let mut body = PruneBody {
        older_than_seconds: args.older_than,
        status: args.status.clone(),
        confirm: args.confirm,
        cursor: None,
    };
    let mut total = PruneAnswer {
        rows: 0,
        bytes: 0,
        confirmed: args.confirm,
        cursor: None,
    };
    loop {
        let part = client.prune(&body)?;
        total.rows += part.rows;
        total.bytes += part.bytes;
        if part.cursor.is_none() {
            break;
        }
        body.cursor = part.cursor;
    }
    context.print(&total, describe)
}

fn describe(answer: &PruneAnswer) -> String {
    let (rows, bytes) = (answer.rows, answer.bytes);
    match (rows, answer.confirmed) {
        (0, _) => "there is no payload to give back\n".to_owned(),
        (_, true) => format!(
            "gave back {bytes} bytes of {rows} payloads; their ids, states and chains stay\n"
        ),
        (_, false) => format!(
            "would give back {bytes} bytes of {rows} payloads; ids, states and chains would stay\n  next: the same with --confirm\n"
        ),
    }
}
