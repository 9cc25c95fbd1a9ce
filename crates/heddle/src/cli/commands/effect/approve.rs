//! `heddle effect request | approve | deny`.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{EffectApproveBody, EffectRequestBody};

use super::EffectArgs;
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    effect: EffectArgs,
}

pub(super) fn request(context: &Context, args: &RequestArgs) -> Result<(), CliError> {
    let body = EffectRequestBody {
        key: args.effect.key.clone(),
        op: args.effect.op.clone(),
        target: args.effect.target.clone(),
        artifact_hash: args.effect.artifact_hash()?,
        run: args.effect.run.clone(),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let answer = context.client().request_effect(&body)?;
    context.print(&answer, |answer| {
        let id = &answer.request_id;
        match answer.status.as_str() {
            "awaiting_approval" => format!(
                "{id} waits for a person until {}\n  next: heddle effect approve {id}\n",
                answer.expires_at
            ),
            status => format!("{id} is {status}\n"),
        }
    })
}

#[derive(Debug, ClapArgs)]
pub(super) struct ApproveArgs {
    /// The request, as `heddle effect request` or `heddle effect list` shows it
    request_id: String,
    /// How long the nonce is good, e.g. 15m
    #[arg(long, value_parser = parse_window)]
    window: Option<u32>,
    /// Approve the compensation of what failed its verification
    #[arg(long)]
    compensation: bool,
}

fn parse_window(text: &str) -> Result<u32, String> {
    let seconds = parse_seconds(text)?;
    let minutes = u32::try_from(seconds.div_ceil(60)).unwrap_or(u32::MAX);
    if minutes == 0 {
        return Err("a window lasts at least a minute".to_owned());
    }
    Ok(minutes)
}

pub(super) fn approve(context: &Context, args: &ApproveArgs) -> Result<(), CliError> {
    let body = EffectApproveBody {
        request_id: args.request_id.clone(),
        window_minutes: args.window,
        compensation: args.compensation.then_some(true),
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let answer = context.client().approve_effect(&body)?;
    context.print(&answer, |answer| {
        format!(
            "approved until {}\nnonce, shown this once: {}\n",
            answer.expires_at, answer.nonce
        )
    })
}

#[derive(Debug, ClapArgs)]
pub(super) struct DenyArgs {
    /// The request, as `heddle effect list` shows it
    request_id: String,
}

pub(super) fn deny(context: &Context, args: &DenyArgs) -> Result<(), CliError> {
    let body = EffectApproveBody {
        request_id: args.request_id.clone(),
        window_minutes: None,
        compensation: None,
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let answer = context.client().deny_effect(&body)?;
    context.print(&answer, |answer| {
        format!("{} is {}\n", args.request_id, answer.status)
    })
}

#[cfg(test)]
mod tests {
    use super::parse_window;

    #[test]
    fn a_window_is_rounded_up_to_minutes() {
        assert_eq!(parse_window("15m"), Ok(15));
        assert_eq!(parse_window("61s"), Ok(2));
        assert!(parse_window("0s").is_err());
        assert!(parse_window("soon").is_err());
    }
}
