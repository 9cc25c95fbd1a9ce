//! `heddle doctor`: what is wrong, and what a person can do about ops that do not get through.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use heddle_daemon::upkeep::{StepsNow, steps_now};
use heddle_daemon::{Home, upkeep as upkeep_of};
use heddle_wire::client::{Client, ClientError};
use heddle_wire::ipc::{DoctorAnswer, DoctorView, Finding, OpBody, ResumeBody};

use super::journal::doctor as journal;
use crate::cli::keyed::Keyed;
use crate::cli::spelled::quoted;
use crate::cli::{CliError, Context, compact, exit, rollback, upkeep};
use crate::system::Runtime;
use crate::up::{LastWords, last_words};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Try an op again that was refused or set aside
    #[arg(long, value_name = "ID", conflicts_with_all = ["drop", "resume_sync"])]
    retry: Option<String>,
    /// Give an op up; one home keeps a change that the others do not have
    #[arg(long, value_name = "ID", conflicts_with = "resume_sync")]
    drop: Option<String>,
    /// Let the sync of a mesh go on that an op has paused, and bring back from its log what is missing here
    #[arg(long, value_name = "MESH")]
    resume_sync: Option<String>,
    /// Make a copy of the home, also while the daemon runs; replaces nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["retry", "drop", "resume_sync", "repair"])]
    backup: Option<PathBuf>,
    /// Save what can be read of a damaged store; the daemon must be down, and the damaged file is kept
    #[arg(long, conflicts_with_all = ["retry", "drop", "resume_sync"])]
    repair: bool,
    /// Say what became of a migration that failed at the start, and what the way back is
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["retry", "drop", "resume_sync", "backup", "repair"])]
    rollback_migration: Option<String>,
    /// Give back the room of what was deleted from the home's files; the daemon must be down
    #[arg(long, conflicts_with_all = ["retry", "drop", "resume_sync", "backup", "repair", "rollback_migration"])]
    compact: bool,
    /// Rebuild this repository's state from its journal and compare; exit 1 on drift
    #[arg(long, conflicts_with_all = ["retry", "drop", "resume_sync", "backup", "repair", "rollback_migration"])]
    verify_journal: bool,
    #[command(flatten)]
    keyed: Keyed,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Erase the content of records from this repository's journal, everywhere in its store
    Redact(journal::redact::Args),
    /// Park damaged lines of this repository's journal in its quarantine; nothing is thrown away
    Quarantine(journal::quarantine::Args),
}

/// A key stands for one call that changes something: a look has none to give it to, and what needs no daemon has its own proof.
fn refuse_idle_key(args: &Args) -> Result<(), CliError> {
    let takes_one = args.retry.is_some() || args.drop.is_some() || args.resume_sync.is_some();
    if args.keyed.key.is_none() || takes_one {
        return Ok(());
    }
    let why = "--id goes with --retry, --drop or --resume-sync";
    Err(CliError::new(exit::USAGE, why.to_owned()))
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    refuse_idle_key(&args)?;
    match args.verb {
        Some(Verb::Redact(args)) => return journal::redact::run(context, args),
        Some(Verb::Quarantine(args)) => return journal::quarantine::run(context, args),
        None => {}
    }
    if args.verify_journal {
        return journal::examine(context);
    }
    if let Some(file) = &args.backup {
        return upkeep::back_up(context, file);
    }
    if args.compact {
        return compact::run(context);
    }
    if args.repair {
        return upkeep::repair(context);
    }
    if let Some(number) = &args.rollback_migration {
        return rollback::run(context, number);
    }
    let client = context.client().under(args.keyed.key);
    let op = |id: &String| OpBody {
        id: id.clone(),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    if let Some(id) = &args.retry {
        return decide(context, &client, "retry", &op(id));
    }
    if let Some(id) = &args.drop {
        return decide(context, &client, "drop", &op(id));
    }
    if let Some(mesh) = args.resume_sync {
        return context.print(&client.resume_sync(&ResumeBody { mesh })?, said);
    }
    let view = match client.doctor() {
        // A process that holds the home is starting, stopping or stuck: not a home in which nothing runs.
        Err(ClientError::NotRunning { .. }) if Home::holder_for_good(&context.home).is_none() => {
            look(context)?
        }
        other => other?,
    };
    if context.mesh.is_some()
        && let Ok(list) = client.meshes()
    {
        context.known_mesh(list.meshes.iter().map(|mesh| mesh.mesh.as_str()))?;
    }
    context.print(&view, describe)?;
    if view.ok {
        Ok(())
    } else {
        Err(CliError {
            code: exit::FAILED,
            ..CliError::quiet()
        })
    }
}

/// A person's word on something that does not get through by itself.
fn decide(context: &Context, client: &Client, verb: &str, op: &OpBody) -> Result<(), CliError> {
    let answer = client.doctor_op(verb, op).map_err(|error| {
        let option = format!("--{verb}");
        let command = format!("heddle doctor {option} {}", quoted(&op.id));
        CliError::from(error).for_each_sender(&command)
    })?;
    context.print(&answer, said)
}

/// The verdict on a home in which nothing runs: its files, the brokers that its settings name, and what the last
/// daemon said.
fn look(context: &Context) -> Result<DoctorView, CliError> {
    let mut view = upkeep_of::look(&context.home, heddle_broker::storage::sqlite::condition);
    let runtime =
        Runtime::single().map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    let brokers = runtime.run(upkeep_of::broker_findings(&context.home));
    view.findings.extend(brokers);
    view.findings.extend(last_stop(&context.home));
    view.ok = view.findings.iter().all(|finding| finding.ok);
    Ok(view)
}

/// A start would end as the last one did.
fn last_stop(home: &Path) -> Option<Finding> {
    let last = last_words(home)?;
    if last.migration.is_some() {
        return failed_step(home, &last);
    }
    if last.starts_again {
        return None;
    }
    Some(Finding {
        check: "last stop".to_owned(),
        ok: false,
        says: format!("the last daemon stopped by itself: {}", last.why),
        next: "Whoever runs that broker has to update or reconfigure it (dedupe_retention_days of at least 7, say), or config.toml has to name another one or another max_age_hours_override; when that is done, `heddle up`.".to_owned(),
    })
}

/// What is in the way of a step now was looked for beside the other files; this is what the start itself has met.
fn failed_step(home: &Path, last: &LastWords) -> Option<Finding> {
    let (ok, tried, next) = match steps_now(home) {
        // Said already, with the ways out.
        StepsNow::NoneWaits | StepsNow::Refused => return None,
        StepsNow::Taken => (
            true,
            "; tried now in memory, it can be taken",
            "`heddle up` takes it; where the disk was full, with some space freed before.",
        ),
        StepsNow::Untold => (
            false,
            "",
            "If the disk was full, free some and start again with `heddle up`. Else `heddle doctor --repair` writes data.db anew and              keeps the file, or the Heddle of before goes on with it.",
        ),
    };
    Some(Finding {
        check: "last stop".to_owned(),
        ok,
        says: format!("the last start did not get through: {}{tried}", last.why),
        next: next.to_owned(),
    })
}

fn said(answer: &DoctorAnswer) -> String {
    format!("mesh {}: {}\n", answer.mesh, answer.says)
}

fn describe(view: &DoctorView) -> String {
    let mut text = String::new();
    text.push_str(if view.ok {
        "ok: nothing needs you\n"
    } else {
        "something needs you\n"
    });
    for finding in &view.findings {
        let sign = if finding.ok { " " } else { "!" };
        text.push_str(&format!("  {sign} {}: {}\n", finding.check, finding.says));
        if !finding.next.is_empty() {
            text.push_str(&format!("    {}\n", finding.next));
        }
    }
    if !view.ops.is_empty() {
        text.push_str("  ops:\n");
    }
    for op in &view.ops {
        let from = op
            .sender
            .as_deref()
            .map_or(String::new(), |sender| format!(" from {sender}"));
        let tries = match op.attempts {
            0 => String::new(),
            attempts => format!(", {attempts} times"),
        };
        text.push_str(&format!(
            "    {} ({}{from} in {}) {}{tries}: {}\n",
            op.id, op.way, op.mesh, op.state, op.reason
        ));
    }
    text
}
