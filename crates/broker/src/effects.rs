//! Who decides about the effects of a mesh, as the broker sees it: somebody to hand the calls to.
//!
//! The broker proves who calls and carries; it decides nothing. An authority promises that what it has
//! answered is durable, that a call under an id that it has answered is answered again without effect, and
//! that it takes the member for who the broker says it is.
//! With each answer it proves how far it has come; members show it what they have seen (`EffectAsked::seen`), and one
//! that does not know it any more decides nothing.

use std::future::Future;
use std::pin::Pin;

use heddle_core::error_code::ErrorCode;
use heddle_core::names::AgentName;
use heddle_wire::broker::{EffectCall, ReplyResult};
use heddle_wire::problem::Problem;

use crate::principal::Principal;

/// A call as it came in.
#[derive(Debug)]
pub struct EffectAsked {
    /// The mailbox that speaks.
    pub agent: AgentName,
    /// The caller's own id of the call.
    pub id: Option<String>,
    /// What the authority has proven to that member last.
    pub seen: Option<String>,
    pub call: EffectCall,
}

pub trait EffectAuthority: Send + Sync + 'static {
    fn call(
        &self,
        principal: Principal,
        asked: EffectAsked,
    ) -> Pin<Box<dyn Future<Output = ReplyResult> + Send + '_>>;
}

/// What a broker without an authority says: nothing of this kind is decided here, so nothing may run.
pub(crate) fn nobody_decides() -> ReplyResult {
    let problem = Problem::new(
        ErrorCode::ApprovalRefused,
        "nobody decides about effects at this broker",
    )
    .next("Use a mesh that somebody hosts with `heddle up`, or this home's own mesh; nothing was registered.");
    ReplyResult::EffectRefused {
        problem: Box::new(problem),
    }
}
