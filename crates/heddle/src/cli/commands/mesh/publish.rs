//! `heddle mesh publish`: a personal mesh is shared with whoever joins; and watching how far that is.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use heddle_wire::client::ClientError;
use heddle_wire::ipc::{MeshPublishBody, MeshPublishView};

use crate::cli::keyed::Keyed;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};

const BAR_CELLS: u64 = 24;
/// How long to watch before going on without; the daemon goes on in any case.
const WATCH_SECONDS: u64 = 30;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The mesh [default: --mesh, or the mesh that every home has]
    name: Option<String>,
    /// The broker of a team that hosts it from now on: wss://HOST:PORT/ [default: this home's own]
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// A copy of broker_token of that broker's data folder; presented once
    #[arg(long, value_name = "FILE", requires = "to")]
    token_file: Option<PathBuf>,
    /// The certificate of the authority that signed that broker's (PEM); read at every connection, so keep it there
    /// [default: the authorities that this machine trusts]
    #[arg(long, value_name = "FILE", requires = "to")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    keyed: Keyed,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let mesh = args.name.or_else(|| context.mesh.clone());
    let named = |option, file: Option<PathBuf>| file.map(|file| absolute(option, file)).transpose();
    let token_file = named("--token-file", args.token_file)?;
    let ca_file = named("--ca", args.ca)?;
    let key = args.keyed.key;
    let begun = if args.to.is_some() || key.is_some() {
        let begin = MeshPublishBody {
            mesh: mesh.clone(),
            to: args.to,
            token_file,
            ca_file,
            wait_seconds: None,
        };
        Some(context.client().under(key).publish(&begin)?)
    } else {
        None
    };
    let mut view = watch_mesh(context, mesh)?;
    if let Some(begun) = begun {
        view.fresh |= begun.fresh;
        view.name_at_broker = begun.name_at_broker;
        view.effects_damaged = begun.effects_damaged;
    }
    context.print(&view, text)
}

/// The daemon stands in another folder.
pub(super) fn absolute(option: &str, path: PathBuf) -> Result<String, CliError> {
    let failed = |why: String| CliError::new(exit::USAGE, format!("{option}: {why}"));
    let path = std::path::absolute(path).map_err(|error| failed(error.to_string()))?;
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| failed("the path is not UTF-8".to_owned()))
}

/// Until all is at the broker, or for a while.
pub(super) fn watch(context: &Context) -> Result<MeshPublishView, CliError> {
    watch_mesh(context, context.mesh.clone())
}

fn watch_mesh(context: &Context, mesh: Option<String>) -> Result<MeshPublishView, CliError> {
    let client = context.client();
    let mut fresh = false;
    let body = |wait_seconds| MeshPublishBody {
        mesh: mesh.clone(),
        wait_seconds,
        ..MeshPublishBody::default()
    };
    for _ in 0..WATCH_SECONDS {
        let mut step = client.publish(&body(Some(1))).map_err(|error| {
            ui::progress_done();
            broken_off(error)
        })?;
        fresh |= step.fresh;
        step.fresh = fresh;
        if step.done {
            ui::progress_done();
            return Ok(step);
        }
        ui::progress(&bar(&step));
    }
    ui::progress_done();
    let mut last = client.publish(&body(None))?;
    last.fresh |= fresh;
    Ok(last)
}

/// A daemon that went away in the middle goes on by itself, whoever watches.
fn broken_off(error: ClientError) -> CliError {
    let is_gone = matches!(error, ClientError::Broken(_) | ClientError::Silent);
    let error = CliError::from(error);
    if is_gone {
        error.next(
            "A publish that has begun goes on by itself, at the next `heddle up` where the daemon is gone; `heddle mesh publish` again says how far it is, and sends no row twice.",
        )
    } else {
        error
    }
}

/// Rows that are ops, less those that still wait: what others can read.
fn bar(view: &MeshPublishView) -> String {
    let there = view.rows_done.saturating_sub(view.out_waiting);
    let cells = (there * BAR_CELLS)
        .checked_div(view.rows)
        .unwrap_or(BAR_CELLS);
    let done = "#".repeat(usize::try_from(cells).unwrap_or(0));
    let rest = ".".repeat(usize::try_from(BAR_CELLS.saturating_sub(cells)).unwrap_or(0));
    format!("publishing [{done}{rest}] {there} of {} rows", view.rows)
}

fn text(view: &MeshPublishView) -> String {
    let mesh = &view.mesh;
    let began = match (view.kind.as_str(), view.fresh) {
        ("shared_guest", _) => {
            return format!("mesh {mesh} is hosted elsewhere and shared already\n");
        }
        (_, true) => format!("mesh {mesh} is published"),
        (_, false) => format!("mesh {mesh} was published before"),
    };
    let rest = if view.done && !view.left_out.is_empty() {
        let count = view.left_out.len() as u64;
        let names: Vec<String> = view.left_out.iter().map(|name| printable(name)).collect();
        format!(
            "{} of {} rows are at its broker ({}); {count} cannot be read or have stamps that cannot be, and stayed here: {}\n  next: write the key again, and it goes out as well; `heddle doctor --repair` (after `heddle down`) mends a task, which goes out then, and takes out any other row that cannot be written again; `heddle doctor` says more",
            view.rows.saturating_sub(count),
            view.rows,
            view.broker,
            names.join(", ")
        )
    } else if view.done {
        format!("all {} rows are at its broker ({})", view.rows, view.broker)
    } else {
        format!(
            "its sync is catching up, {} of {} rows; `heddle mesh clock` shows it",
            view.rows_done, view.rows
        )
    };
    let renamed = view.name_at_broker.as_ref().map_or_else(String::new, |name| {
        format!(
            "\n  its broker has another mesh {mesh}, and calls this one {name}: whoever runs the broker names it so; here, and for those who join, it is what they call it\n  if you meant that other mesh, ask its owner for an invitation (`heddle mesh join LINK`)"
        )
    });
    let damaged = match view.effects_damaged.as_slice() {
        [] => String::new(),
        all => {
            let all: Vec<String> = all.iter().map(|one| printable(one)).collect();
            format!(
                "\n  effects that go there as damaged, and stay used: {}",
                all.join("; ")
            )
        }
    };
    format!("{began}: {rest}{renamed}{damaged}\n\nTry next:\n  heddle --mesh {mesh} mesh invite\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(rows: u64, rows_done: u64, out_waiting: u64) -> MeshPublishView {
        MeshPublishView {
            mesh: "home".to_owned(),
            kind: "shared_owner".to_owned(),
            broker: "embedded".to_owned(),
            name_at_broker: None,
            fresh: true,
            rows,
            rows_done,
            out_waiting,
            done: false,
            left_out: Vec::new(),
            effects_damaged: Vec::new(),
        }
    }

    #[test]
    fn the_bar_shows_what_others_can_read() {
        assert!(bar(&view(8, 8, 8)).contains(&format!("[{}] 0 of 8", ".".repeat(24))));
        assert!(bar(&view(8, 8, 2)).contains(&format!("[{}......] 6 of 8", "#".repeat(18))));
        assert!(bar(&view(8, 8, 0)).contains(&format!("[{}] 8 of 8", "#".repeat(24))));
        assert!(bar(&view(0, 0, 0)).ends_with("0 of 0 rows"));
        // Changes of now wait as well; they are no rows of before.
        assert!(bar(&view(8, 1, 5)).ends_with("0 of 8 rows"));
    }

    #[test]
    fn what_is_not_there_yet_is_not_said_to_be() {
        let said = text(&view(9, 4, 4));
        assert!(said.contains("4 of 9") && !said.contains("all 9"), "{said}");
        let done = MeshPublishView {
            done: true,
            ..view(9, 9, 0)
        };
        assert!(text(&done).contains("all 9 rows"));
        let some = MeshPublishView {
            left_out: vec!["vector \"v2\"".to_owned()],
            ..done
        };
        let said = text(&some);
        assert!(
            said.contains("8 of 9 rows") && said.contains("v2"),
            "{said}"
        );
    }
}
