//! What is asked of the authority over effects, and what it answers: the same calls as at a home's own door.

use serde::{Deserialize, Serialize};

use crate::ipc::{
    EffectApproveAnswer, EffectApproveBody, EffectCompensateBody, EffectEndBody, EffectList,
    EffectLog, EffectRegisterBody, EffectRequestAnswer, EffectRequestBody, EffectResolveBody,
    EffectStartBody, EffectStory, EffectSurface, EffectVerifyBody, EffectView,
};

/// One call. `mesh` and `agent` of a body stay at home: the connection says the one, the frame the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", content = "body", rename_all = "snake_case")]
pub enum EffectCall {
    Request(EffectRequestBody),
    Approve(EffectApproveBody),
    Deny(EffectApproveBody),
    Register(EffectRegisterBody),
    Start(EffectStartBody),
    Finish(EffectEndBody),
    Resolve(EffectResolveBody),
    Verify(EffectVerifyBody),
    Compensate(EffectCompensateBody),
    Compensated(EffectEndBody),
    Status {
        key: String,
    },
    List {
        limit: usize,
        /// The cursor of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
    Log {
        key: Option<String>,
        limit: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
    /// Of a key, a request, a registration or an attempt.
    Story {
        id: String,
    },
    SurfaceCheck,
    /// Of the home that a mesh has moved from: what was decided about it there, from this place on. Until all of it
    /// has come, nothing is decided here.
    HandOver {
        from: u64,
        /// As the registrar writes them.
        units: Vec<String>,
        is_last: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum EffectAnswer {
    Requested(EffectRequestAnswer),
    Approved(EffectApproveAnswer),
    View(Box<EffectView>),
    List(EffectList),
    Log(EffectLog),
    Story(Box<EffectStory>),
    Surface(EffectSurface),
    /// How far a hand-over has come.
    HandedOver {
        through: u64,
        is_whole: bool,
        /// Units that were not written: something else stands in their place.
        skipped: u64,
    },
}

impl EffectCall {
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Approve(_) => "approve",
            Self::Deny(_) => "deny",
            Self::Register(_) => "register",
            Self::Start(_) => "start",
            Self::Finish(_) => "finish",
            Self::Resolve(_) => "resolve",
            Self::Verify(_) => "verify",
            Self::Compensate(_) => "compensate",
            Self::Compensated(_) => "compensated",
            Self::Status { .. } => "status",
            Self::List { .. } => "list",
            Self::Log { .. } => "log",
            Self::Story { .. } => "story",
            Self::SurfaceCheck => "surface_check",
            Self::HandOver { .. } => "hand_over",
        }
    }

    /// The effect that it is about, where the call itself says it.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Request(body) => Some(&body.key),
            Self::Register(body) => Some(&body.key),
            Self::Start(body) => Some(&body.key),
            Self::Finish(body) | Self::Compensated(body) => Some(&body.key),
            Self::Resolve(body) => Some(&body.key),
            Self::Verify(body) => Some(&body.key),
            Self::Compensate(body) => Some(&body.key),
            Self::Status { key } => Some(key),
            Self::Log { key, .. } => key.as_deref(),
            Self::Approve(_)
            | Self::Deny(_)
            | Self::List { .. }
            | Self::Story { .. }
            | Self::SurfaceCheck
            | Self::HandOver { .. } => None,
        }
    }

    /// The request, or any id of an effect, that it names instead of a key.
    pub fn named_id(&self) -> Option<&str> {
        match self {
            Self::Approve(body) | Self::Deny(body) => Some(&body.request_id),
            Self::Story { id } => Some(id),
            _ => None,
        }
    }

    /// Whether it changes something, and so takes an id of the caller's own.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::Status { .. }
                | Self::List { .. }
                | Self::Log { .. }
                | Self::Story { .. }
                | Self::SurfaceCheck
        )
    }

    /// Without the names that only this home gives to the mesh and to the caller.
    #[must_use]
    pub fn without_scope(mut self) -> Self {
        let scope = match &mut self {
            Self::Request(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Approve(body) | Self::Deny(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Register(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Start(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Finish(body) | Self::Compensated(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Resolve(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Verify(body) => Some((&mut body.mesh, &mut body.agent)),
            Self::Compensate(body) => Some((&mut body.mesh, &mut body.agent)),
            _ => None,
        };
        if let Some((mesh, agent)) = scope {
            (*mesh, *agent) = (None, None);
        }
        self
    }

    /// The names of mesh and caller, as the body has them.
    pub fn scope(&self) -> (Option<String>, Option<String>) {
        let (mesh, agent) = match self {
            Self::Request(body) => (&body.mesh, &body.agent),
            Self::Approve(body) | Self::Deny(body) => (&body.mesh, &body.agent),
            Self::Register(body) => (&body.mesh, &body.agent),
            Self::Start(body) => (&body.mesh, &body.agent),
            Self::Finish(body) | Self::Compensated(body) => (&body.mesh, &body.agent),
            Self::Resolve(body) => (&body.mesh, &body.agent),
            Self::Verify(body) => (&body.mesh, &body.agent),
            Self::Compensate(body) => (&body.mesh, &body.agent),
            _ => return (None, None),
        };
        (mesh.clone(), agent.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{ClientFrame, Request};

    #[test]
    fn a_call_survives_the_way_there_and_leaves_its_scope_at_home() {
        let call = EffectCall::Start(EffectStartBody {
            key: "k".into(),
            attempt_id: "a".into(),
            command_hash: None,
            mesh: Some("team".into()),
            agent: Some("planner".into()),
        });
        assert_eq!(call.scope(), (Some("team".into()), Some("planner".into())));
        let call = call.without_scope();
        assert_eq!(call.scope(), (None, None));
        let frame = ClientFrame::Request {
            request: 7,
            body: Request::Effect {
                agent: heddle_core::names::AgentName::parse("planner").unwrap(),
                id: None,
                seen: None,
                call: Box::new(call.clone()),
            },
        };
        let text = serde_json::to_string(&frame).unwrap();
        assert!(!text.contains("team"), "{text}");
        let Ok(ClientFrame::Request { body, .. }) = ClientFrame::parse(&text) else {
            panic!("{text}");
        };
        let Request::Effect { call: back, .. } = body else {
            panic!("{text}");
        };
        assert_eq!(*back, call);
        for call in [
            EffectCall::SurfaceCheck,
            EffectCall::List {
                limit: 3,
                cursor: None,
            },
            EffectCall::Log {
                key: None,
                limit: 3,
                cursor: Some("7".to_owned()),
            },
        ] {
            assert!(!call.is_change());
            let text = serde_json::to_string(&call).unwrap();
            assert_eq!(serde_json::from_str::<EffectCall>(&text).unwrap(), call);
        }
    }
}
