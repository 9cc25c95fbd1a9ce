//! How a command ended, kept beside its lock by a runner that could not tell it: whoever looks hands it in.
//!
//! The file is the call as the runner would have made it. It is handed in only when the runner is gone: one that lives
//! tells by itself. Told twice it is one call, because an end that is known is the same answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use heddle_core::names::AgentName;
use heddle_wire::broker::EffectCall;
use serde_json::json;

use super::ask::{Scope, is_passing};
use super::end_file::{Bad, END, body, read};
use super::{Effects, waiting};
use crate::shared::Shared;

/// Ends that are not believed, by the names of their files.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<BTreeMap<String, Bad>>);

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Unread {
    /// True where it was not known before.
    fn is_new(&self, path: &Path, why: Bad) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name_of(path), why) != Some(why)
    }

    fn forget(&self, path: &Path) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&name_of(path));
    }

    fn forget_all(&self) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.clear();
    }

    /// What is wrong with the end of this name, if it is one of them.
    pub(super) fn of(&self, path: &Path) -> Option<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name_of(path);
        let why = names.get(&name)?;
        Some(format!(
            "effects/{name} should say how its command ended, and {}",
            why.in_words()
        ))
    }

    pub(super) fn trouble(&self) -> Vec<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = names.iter().map(|(name, why)| {
            format!(
                "effects/{name} {}: it should say how the command of an effect ended. Look at its target, say so with --resolve, and remove the file",
                why.in_words()
            )
        });
        told.collect()
    }
}

impl Effects {
    /// The end of this key's command, if a runner has left one here.
    pub(super) async fn hand_in(&self, scope: &Scope<'_>, key: &str) {
        let mesh = scope.mesh.mesh.mesh;
        let path = self.lock(mesh, key).with_extension(END);
        // What the command has left behind has inherited the lock, and is no runner.
        let is_held = self.is_locked(mesh, key);
        if !path.exists() || is_held && !self.is_runner_gone(mesh, key) {
            return;
        }
        // IMPORTANT: in the name of who ran it, whoever looks: nobody else's word counts.
        let found = read(&path).and_then(|call| {
            let is_of = body(&call).is_some_and(|body| body.key == key);
            let agent = self.runner(&call).filter(|_| is_of);
            let named = agent.and_then(|agent| self.named(scope.mesh, &agent).ok());
            named.map(|named| (call, named)).ok_or(Bad::Unreadable)
        });
        let (call, named) = match found {
            Ok(found) => found,
            // Half a file is none: a runner that died while it wrote has left its lock to a person.
            Err(why) => return self.not_believed(&path, why),
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
        if is_held {
            self.free(mesh, key);
        }
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "the end of a command was told and is still there");
        }
    }

    /// It is left where it is, for a person.
    fn not_believed(&self, path: &Path, why: Bad) {
        if self.unread.is_new(path, why) {
            tracing::warn!(path = %path.display(), "the end of a command {}, or is of no effect of this home; it is left where it is", why.in_words());
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
            let found = read(&path).and_then(|call| {
                let mesh = shared.mesh(call.scope().0.as_deref());
                mesh.map(|mesh| (call, mesh)).map_err(|_| Bad::Unreadable)
            });
            let (call, mesh) = match found {
                Ok(found) => found,
                Err(why) => {
                    self.not_believed(&path, why);
                    continue;
                }
            };
            let scope = Scope {
                shared,
                mesh,
                agent: &self.speaks.default,
            };
            if let Some(body) = body(&call) {
                self.hand_in(&scope, &body.key).await;
            }
        }
        self.ends().is_empty()
    }
}
