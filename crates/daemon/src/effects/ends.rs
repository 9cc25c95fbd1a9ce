//! How a command ended, kept beside its lock by a runner that could not tell it: whoever looks hands it in.
//!
//! The file is the call as the runner would have made it. It is handed in only when nobody holds the lock: a
//! runner that lives tells by itself. Told twice it is one call, because an end that is known is the same answer.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use heddle_core::names::AgentName;
use heddle_wire::broker::EffectCall;
use heddle_wire::ipc::EffectEndBody;
use serde_json::json;

use super::ask::{Scope, is_passing};
use super::{Effects, waiting};
use crate::home::open_private;
use crate::shared::Shared;

/// Two streams of 64 KB, each of whose bytes JSON may write as six.
const END_BYTES_MAX: u64 = 2 << 20;

/// The name of an end, beside `NAME.lock`.
pub const END: &str = "end";

fn read(path: &Path) -> Option<EffectCall> {
    let mut text = String::new();
    let file = open_private(path).ok()?;
    file.take(END_BYTES_MAX).read_to_string(&mut text).ok()?;
    let call = serde_json::from_str(&text).ok()?;
    match call {
        EffectCall::Finish(_) | EffectCall::Compensated(_) => Some(call),
        _ => None,
    }
}

fn body(call: &EffectCall) -> Option<&EffectEndBody> {
    match call {
        EffectCall::Finish(body) | EffectCall::Compensated(body) => Some(body),
        _ => None,
    }
}

impl Effects {
    /// The end of this key's command, if a runner has left one here.
    pub(super) async fn hand_in(&self, scope: &Scope<'_>, key: &str) {
        let mesh = scope.mesh.mesh.mesh;
        let path = self.lock(mesh, key).with_extension(END);
        if !path.exists() || self.is_locked(mesh, key) {
            return;
        }
        let Some(call) = read(&path) else {
            // Half a file is none: a runner that died while it wrote has left its lock to a person.
            tracing::warn!(path = %path.display(), "the end of a command cannot be read; it is left where it is");
            return;
        };
        if body(&call).is_none_or(|body| body.key != key) {
            tracing::warn!(path = %path.display(), "the end of a command is of another key; it is left where it is");
            return;
        }
        let told = self.put(scope, None, call).await;
        match told {
            // Kept with everything else that waits for the broker.
            Err(problem) if problem.extra.get("waiting") == Some(&json!(true)) => {}
            Err(problem) if is_passing(&problem) => {
                waiting::look_again(self);
                return;
            }
            Err(problem) => {
                tracing::warn!(
                    key,
                    code = problem.code,
                    "the end of a command came too late"
                );
            }
            Ok(_) => {}
        }
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "the end of a command was told and is still there");
        }
    }

    fn ends(&self) -> Vec<PathBuf> {
        let Ok(folder) = std::fs::read_dir(&self.locks) else {
            return Vec::new();
        };
        let files = folder.filter_map(Result::ok).map(|file| file.path());
        let is_end = |path: &PathBuf| path.extension().is_some_and(|ending| ending == END);
        files.filter(is_end).collect()
    }

    /// All that was left here while no daemon ran. True when nothing is left.
    pub(super) async fn hand_in_all(&self, shared: &Shared) -> bool {
        for path in self.ends() {
            let Some(call) = read(&path) else {
                continue;
            };
            let (mesh, agent) = call.scope();
            let agent = agent.as_deref().map(AgentName::parse);
            let (Ok(mesh), Ok(agent)) = (shared.mesh(mesh.as_deref()), agent.transpose()) else {
                continue;
            };
            let agent = agent.unwrap_or_else(|| self.speaks.default.clone());
            let named = self.named(mesh, &agent);
            let scope = Scope {
                shared,
                mesh,
                agent: &named,
            };
            if let Some(body) = body(&call) {
                self.hand_in(&scope, &body.key).await;
            }
        }
        self.ends().is_empty()
    }
}
