//! `heddle effect request | approve | deny`.

use clap::Args as ClapArgs;
use heddle_wire::ipc::{EffectApproveBody, EffectRequestBody};
use serde_json::json;

use super::EffectArgs;
use super::record::Record;
use crate::cli::span::parse_seconds;
use crate::cli::{CliError, Context};

#[derive(Debug, ClapArgs)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    effect: EffectArgs,
    /// An id for this very call: with it a retry is the same call
    #[arg(long)]
    id: Option<String>,
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
    let answer = context.client().request_effect(&body, args.id.as_deref())?;
    let record = Record::open(context);
    if !answer.duplicate {
        record.requested(&body, &answer);
    }
    context.print(&answer, |answer| {
        let id = &answer.request_id;
        let key = &args.effect.key;
        match answer.status.as_str() {
            "awaiting_approval" => format!(
                "{id} waits for a person until {}\n  next: heddle effect approve {id}\n",
                answer.expires_at
            ),
            "waiting_for_broker" => format!(
                "{key} waits for the broker of its mesh, and is asked for by itself when that is back\n  next: heddle effect status {key}\n"
            ),
            "approved" => format!("{id} is approved\n"),
            status => format!("{id} is {status}\n  next: heddle effect status {key}\n"),
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
    /// An id for this very call: with it a retry grants no second nonce (and shows none)
    #[arg(long)]
    id: Option<String>,
}

fn parse_window(text: &str) -> Result<u32, String> {
    let seconds = parse_seconds(text)?;
    let minutes = u32::try_from(seconds / 60).unwrap_or(u32::MAX);
    // Rounded, it would be another window than the one that was asked for.
    if minutes == 0 || seconds % 60 != 0 {
        return Err(format!(
            "a window is counted in whole minutes, e.g. {}m",
            minutes.max(1)
        ));
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
    let answer = context.client().approve_effect(&body, args.id.as_deref())?;
    if !answer.duplicate {
        note(context, &args.request_id, "approved");
    }
    context.print(&answer, |answer| match &answer.nonce {
        Some(nonce) => format!(
            "approved until {}\nnonce, shown this once: {nonce}\n",
            answer.expires_at
        ),
        None => format!(
            "approved before, until {}; its nonce was shown then\n  next: heddle effect approve {} (grants a further nonce)\n",
            answer.expires_at, answer.request_id
        ),
    })
}

#[derive(Debug, ClapArgs)]
pub(super) struct DenyArgs {
    /// The request, as `heddle effect list` shows it
    request_id: String,
    /// An id for this very call: with it a retry is the same call
    #[arg(long)]
    id: Option<String>,
}

/// In the journal of the repository that we are in. The request names its effect.
fn note(context: &Context, request_id: &str, step: &str) {
    let story = context.client().effect_story(request_id, &context.scope());
    if let Ok(story) = story {
        let details = json!({"request_id": request_id, "agent": context.agent});
        let key = &story.effect.logical_request_key;
        Record::open(context).step(key, step, details);
    }
}

pub(super) fn deny(context: &Context, args: &DenyArgs) -> Result<(), CliError> {
    let body = EffectApproveBody {
        request_id: args.request_id.clone(),
        window_minutes: None,
        compensation: None,
        mesh: context.mesh.clone(),
        agent: context.agent.clone(),
    };
    let answer = context.client().deny_effect(&body, args.id.as_deref())?;
    if !answer.duplicate {
        let details = json!({"request_id": args.request_id, "agent": context.agent});
        Record::open(context).step(&answer.logical_request_key, "turned_down", details);
    }
    context.print(&answer, |answer| {
        format!("{} is {}\n", args.request_id, answer.status)
    })
}

#[cfg(test)]
mod tests {
    use super::parse_window;

    #[test]
    fn a_window_is_whole_minutes_and_never_another_one() {
        assert_eq!(parse_window("15m"), Ok(15));
        assert_eq!(parse_window("120s"), Ok(2));
        assert!(parse_window("61s").unwrap_err().contains("e.g. 1m"));
        assert!(parse_window("0s").is_err());
        assert!(parse_window("soon").is_err());
    }
}
