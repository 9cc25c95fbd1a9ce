//! Sending ops whose authors the broker knows.
//!
//! An op is in the name of one of this home's mailboxes, and the broker takes none in a name that was never made known to
//! it: the mailbox may be registered while its first op overtakes it, or the op is of a version that signed with a name
//! which no mailbox here has. Either way the broker is told of the mailbox, and the op is sent once more, at once.

use std::collections::BTreeSet;

use heddle_core::error_code::ErrorCode;
use heddle_core::names::AgentName;
use heddle_wire::broker::{ReplyResult, Request, SendItem, Verdict};

use crate::link::{Answered, Live};
use crate::mesh::MeshState;
use crate::shared::Shared;

/// The verdicts on all of them, in their order; none without an answer.
pub(super) async fn send(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    items: Vec<SendItem>,
) -> Option<Answered> {
    let kept = items.clone();
    let (mut verdicts, epoch) = live.send_ops(items).await?;
    let unknown: Vec<usize> = (0..verdicts.len().min(kept.len()))
        .filter(|at| is_unknown_agent(&verdicts[*at]))
        .collect();
    if unknown.is_empty() || verdicts.len() != kept.len() {
        return Some((verdicts, epoch));
    }
    let agents: BTreeSet<AgentName> = unknown.iter().map(|at| kept[*at].agent.clone()).collect();
    for agent in agents {
        if !make_known(shared, mesh, live, agent).await? {
            // Refused for now; each of them counts it and comes again by itself.
            return Some((verdicts, epoch));
        }
    }
    let again = unknown.iter().map(|at| kept[*at].clone()).collect();
    let (answers, epoch) = live.send_ops(again).await?;
    if answers.len() == unknown.len() {
        for (at, answer) in unknown.into_iter().zip(answers) {
            verdicts[at] = answer;
        }
    }
    Some((verdicts, epoch))
}

fn is_unknown_agent(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Refused(refused) if ErrorCode::parse(&refused.code) == Some(ErrorCode::UnknownAgent))
}

/// A mailbox here and at the broker. Whether the broker has it now; none where it does not answer.
async fn make_known(
    shared: &Shared,
    mesh: &MeshState,
    live: &Live,
    agent: AgentName,
) -> Option<bool> {
    let name = agent.to_string();
    if let Err(problem) = mesh.register(shared, &agent).await {
        tracing::warn!(agent = name, problem = %problem.detail, "an op's author could not be made known");
        return Some(false);
    }
    // Known here already: it is the broker that does not have it.
    let reply = live.request(Request::RegisterAgent { agent }).await?;
    let is_known = matches!(reply, ReplyResult::Ok { .. });
    if is_known {
        tracing::info!(agent = name, mesh = %mesh.mesh.name, "the author of an op was made known to the broker");
    }
    Some(is_known)
}
