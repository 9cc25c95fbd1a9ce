//! `heddle effect request | approve | deny`.

use clap::Args as ClapArgs;
use heddle_core::approvers;
use heddle_wire::ipc::{EffectApproveBody, EffectRequestAnswer, EffectRequestBody};
use serde_json::json;

use super::EffectArgs;
use super::record::Record;
use super::text;
use crate::cli::error::exit;
use crate::cli::span::parse_seconds;
use crate::cli::spelled::quoted;
use crate::cli::{CliError, Context, ui};

#[derive(Debug, ClapArgs)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    effect: EffectArgs,
    /// An id for this very call: with it a retry is the same call
    #[arg(long)]
    id: Option<String>,
}

impl RequestArgs {
    pub(super) fn key(&self) -> &str {
        &self.effect.key
    }
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
    let answer = context.client().request_effect(&body, args.id.as_deref());
    let answer = answer.map_err(|error| args.effect.named_in(error.into()))?;
    let record = Record::open(context);
    if !answer.duplicate {
        record.requested(&body, &answer);
    }
    let status = |key: &str| context.spelled(&format!("heddle effect status {}", quoted(key)));
    context.print(&answer, |answer| {
        let id = &answer.request_id;
        let key = &args.effect.key;
        match answer.status.as_str() {
            "awaiting_approval" => waits(context, answer),
            "waiting_for_broker" => format!(
                "{key} waits for the broker of its mesh, and is asked for by itself when that is back\n  next: {}\n",
                status(key)
            ),
            "approved" => format!("{id} is approved\n"),
            stands => format!("{id} is {stands}\n  next: {}\n", status(key)),
        }
    })
}

/// Whose word is waited for, and how they say it.
fn waits(context: &Context, answer: &EffectRequestAnswer) -> String {
    let (id, all, mesh) = (&answer.request_id, &answer.approvers, &answer.mesh_id);
    let who = approvers::in_words(all, mesh);
    let place = match (approvers::here(all), all.first()) {
        (None, Some(elsewhere)) => format!(", in the home of {elsewhere}"),
        _ => String::new(),
    };
    let approve = approvers::run_by(all, mesh, &format!("heddle effect approve {id}"));
    format!(
        "{id} waits for a person{who} until {}\n  next{place}: {}\n",
        answer.expires_at,
        context.spelled(&approve)
    )
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
    /// Ask nothing at a terminal
    #[arg(long)]
    yes: bool,
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
    if !context.json {
        show_and_ask(context, args)?;
    }
    let answer = context.client().approve_effect(&body, args.id.as_deref())?;
    if !answer.duplicate {
        let details = json!({"request_id": args.request_id, "agent": context.agent});
        Record::open(context).step(&answer.logical_request_key, "approved", details);
    }
    context.print(&answer, |answer| {
        let what = text::effect(
            (&answer.operation, &answer.target),
            (&answer.artifact_hash, &answer.run),
            (&answer.logical_request_key, &answer.requested_by),
        );
        match &answer.nonce {
            Some(nonce) => format!(
                "approved until {}: {what}nonce, shown this once, good for {}, who asked, and for who has approved: {nonce}\n",
                answer.expires_at, answer.requested_by
            ),
            None => format!(
                "approved before, until {}: {what}its nonce was shown then\n  next: {} (grants a further nonce)\n",
                answer.expires_at,
                context.spelled(&format!("heddle effect approve {}", answer.request_id))
            ),
        }
    })
}

/// Nobody approves what they have not seen. At a terminal they are asked; elsewhere who calls has decided.
fn show_and_ask(context: &Context, args: &ApproveArgs) -> Result<(), CliError> {
    let client = context.client();
    // A request that is not there is told by the approval itself.
    let Ok(story) = client.effect_story(&args.request_id, &context.scope()) else {
        return Ok(());
    };
    let named = format!(" as {},", args.request_id);
    let mut asked = story.story.iter();
    let asked = asked.find(|event| event.what == "requested" && event.detail.contains(&named));
    let Some(asked) = asked else {
        return Ok(());
    };
    ui::note(&format!(
        "to be approved: {}, asked for by {} at {}",
        asked.detail, asked.by, asked.at
    ));
    if args.yes || ui::confirm("Approve this? [y/N] ")? {
        return Ok(());
    }
    let id = quoted(&args.request_id);
    Err(CliError::new(exit::FAILED, "nothing was approved").next(format!(
        "Approve with `heddle effect approve {id} --yes`, or turn it down with `heddle effect deny {id}`."
    )))
}

#[derive(Debug, ClapArgs)]
pub(super) struct DenyArgs {
    /// The request, as `heddle effect list` shows it
    request_id: String,
    /// An id for this very call: with it a retry is the same call
    #[arg(long)]
    id: Option<String>,
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
