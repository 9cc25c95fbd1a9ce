//! Who decides about the effects of a mesh, as the broker sees it: somebody to hand the calls to.
//!
//! The broker proves who calls and carries; it decides nothing. An authority promises that what it has
//! answered is durable, that a call under an id that it has answered is answered again without effect, and
//! that it takes the member for who the broker says it is.

use std::future::Future;
use std::pin::Pin;

use heddle_core::error_code::ErrorCode;
use heddle_core::names::AgentName;
use heddle_wire::broker::{EffectCall, ReplyResult};
use heddle_wire::problem::Problem;

use crate::principal::Principal;

pub trait EffectAuthority: Send + Sync + 'static {
    fn call(
        &self,
        principal: Principal,
        agent: AgentName,
        id: Option<String>,
        call: EffectCall,
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
