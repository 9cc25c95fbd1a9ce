//! How a command ended, kept beside its lock by a runner that could not tell it: whoever looks hands it in.
//!
//! The file is the call as the runner would have made it. It is handed in only when nobody holds the lock: a
//! runner that lives tells by itself. Told twice it is one call, because an end that is known is the same answer.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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

/// Ends that cannot be read, by the names of their files.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<BTreeSet<String>>);

impl Unread {
    /// True where it was not known before.
    fn is_new(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name)
    }

    fn forget(&self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(name.as_ref());
    }

    fn forget_all(&self) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.clear();
    }

    pub(super) fn trouble(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = names.iter().map(|name| {
            format!(
                "effects/{name} cannot be read: it should say how the command of an effect ended. Look at its target, say so with --resolve, and remove the file"
            )
        });
        told.collect()
    }
}

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
        let call = read(&path).filter(|call| body(call).is_some_and(|body| body.key == key));
        // IMPORTANT: in the name of who ran it, whoever looks: nobody else's word counts.
        let agent = call.as_ref().and_then(|call| self.runner(call));
        let agent = agent.and_then(|agent| self.named(scope.mesh, &agent).ok());
        let (Some(call), Some(named)) = (call, agent) else {
            // Half a file is none: a runner that died while it wrote has left its lock to a person.
            if self.unread.is_new(&path) {
                tracing::warn!(path = %path.display(), "the end of a command cannot be read, or is of another key; it is left where it is");
            }
            return;
        };
        self.unread.forget(&path);
        let scope = &Scope {
            agent: &named,
            ..*scope
        };
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

    /// Who has run it, as the runner said it.
    fn runner(&self, call: &EffectCall) -> Option<AgentName> {
        match call.scope().1 {
            None => Some(self.speaks.default.clone()),
            Some(name) => AgentName::parse(&name).ok(),
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
        let ends = self.ends();
        if ends.is_empty() {
            self.unread.forget_all();
        }
        for path in ends {
            let call = read(&path);
            let mesh = call
                .as_ref()
                .map(|call| shared.mesh(call.scope().0.as_deref()));
            let (Some(call), Some(Ok(mesh))) = (&call, mesh) else {
                if self.unread.is_new(&path) {
                    tracing::warn!(path = %path.display(), "the end of a command cannot be read, or is of no mesh of this home");
                }
                continue;
            };
            let scope = Scope {
                shared,
                mesh,
                agent: &self.speaks.default,
            };
            if let Some(body) = body(call) {
                self.hand_in(&scope, &body.key).await;
            }
        }
        self.ends().is_empty()
    }
}
