//! `heddle effect compensate`: makes up for what failed its verification, once.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{EffectCompensateBody, EffectEndBody};

use super::{process, text};
use crate::cli::error::exit;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub(super) struct CompensateArgs {
    /// The effect's key
    key: String,
    /// The nonce of `heddle effect approve --compensation`; who may approve needs none
    #[arg(long)]
    nonce: Option<String>,
    /// The command that makes up for it, behind --; without one it is only recorded
    #[arg(last = true)]
    command: Vec<String>,
}

pub(super) fn compensate(context: &Context, args: &CompensateArgs) -> Result<(), CliError> {
    let body = EffectCompensateBody {
        key: args.key.clone(),
        nonce: args.nonce.clone(),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let begun = context.client().compensate_effect(&body)?;
    if begun.duplicate {
        return context.print(&begun, text::status);
    }
    let attempt = begun.compensation.as_ref();
    let attempt = attempt.and_then(|compensation| compensation["attempt_id"].as_str());
    let attempt_id = attempt.unwrap_or_default().to_owned();
    let ended = if args.command.is_empty() {
        process::Ended {
            exit_code: Some(0),
            stdout: String::new(),
            stderr: String::new(),
            truncated: false,
        }
    } else {
        process::run(&args.command, &args.key, &attempt_id, !context.json)
    };
    let exit_code = ended.exit_code;
    let body = EffectEndBody {
        key: args.key.clone(),
        attempt_id,
        exit_code,
        stdout: ended.stdout,
        stderr: ended.stderr,
        truncated: ended.truncated,
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let done = context.client().compensated_effect(&body)?;
    if exit_code == Some(0) {
        return context.print(&done, text::status);
    }
    let answer = serde_json::to_value(&done).unwrap_or_default();
    let sentence = format!("{}: the command that makes up for it failed", args.key);
    Err(CliError::new(exit::FAILED, sentence)
        .next("It is not run again; mend the target by hand.")
        .answer(answer))
}
