//! What every verb knows: where the home is, whom it acts for, how it answers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use heddle_core::clock::{Clock, Ids};
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::ClientMessageId;
use heddle_core::names::AgentName;
use heddle_wire::client::{Client, ClientError};
use heddle_wire::problem::Problem;
use serde::Serialize;

use super::error::{CliError, exit};
use super::text::printable;
use super::ui;
use crate::env::Environment;
use crate::system::{SystemClock, SystemIds};

#[derive(Clone)]
pub struct Context {
    pub environment: Environment,
    pub json: bool,
    pub home: PathBuf,
    pub agent: Option<String>,
    pub mesh: Option<String>,
}

impl Context {
    pub fn new(
        environment: Environment,
        json: bool,
        home: Option<PathBuf>,
        agent: Option<String>,
        mesh: Option<String>,
    ) -> Result<Self, CliError> {
        let home = home.or_else(|| environment.home.clone()).ok_or_else(|| {
            CliError::new(exit::USAGE, "there is no home folder")
                .next("Set HEDDLE_HOME or pass --home FOLDER.")
        })?;
        Ok(Self {
            json,
            home,
            agent: agent.or_else(|| environment.agent.clone()),
            mesh: mesh.or_else(|| environment.mesh.clone()),
            environment,
        })
    }

    pub fn client(&self) -> Client {
        Client::new(heddle_daemon::home::socket_path(&self.home))
    }

    /// A fresh id, minted here so that a retry after a lost answer is the same request.
    pub fn mint_id() -> ClientMessageId {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        ClientMessageId::minted(SystemIds::new(clock).ulid())
    }

    /// The query parameters that name agent and mesh.
    pub fn scope(&self) -> Vec<(&str, &str)> {
        let agent = self.agent.as_deref().map(|agent| ("agent", agent));
        agent.into_iter().chain(self.mesh_scope()).collect()
    }

    pub fn mesh_scope(&self) -> Option<(&str, &str)> {
        self.mesh.as_deref().map(|mesh| ("mesh", mesh))
    }

    /// A mesh that was named is one of these; for verbs that look at all of them.
    pub fn known_mesh<'m>(&self, meshes: impl Iterator<Item = &'m str>) -> Result<(), CliError> {
        let Some(wanted) = self.mesh.as_deref() else {
            return Ok(());
        };
        let names: Vec<&str> = meshes.collect();
        if names.contains(&wanted) {
            return Ok(());
        }
        let detail = format!("no mesh here is called {wanted:?}");
        let problem = Problem::new(ErrorCode::UnknownMesh, detail).with("candidates", names);
        Err(ClientError::Problem(Box::new(problem)).into())
    }

    /// The answer: JSON when asked for, else what `text` makes of it.
    pub fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        self.put(value, text, Self::tell_warnings)
    }

    /// The same of a verb whose own words name what was left out: it need not be a row of `data.db`.
    pub fn print_said<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        self.put(value, text, Self::tell_warned)
    }

    /// The answer of a verb that has taken effect: where it cannot be printed, standard error has it, for whoever asked must not
    /// take it for refused.
    pub fn print_done<T: Serialize>(
        &self,
        value: &T,
        text: impl Fn(&T) -> String,
    ) -> Result<(), CliError> {
        let printed = self.print(value, &text);
        printed.map_err(|error| error.unprinted(&text(value)))
    }

    fn put<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
        tell: impl FnOnce(&Self, &T),
    ) -> Result<(), CliError> {
        if self.json {
            return ui::json(value);
        }
        ui::text(&text(value))?;
        tell(self, value);
        Ok(())
    }

    /// A single value that was asked for: for a program every byte of it, for a terminal what is safe.
    pub fn print_value<T: Serialize>(
        &self,
        view: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        if self.json {
            return ui::json(view);
        }
        ui::value(&text(view))?;
        self.tell_warnings(view);
        Ok(())
    }

    fn tell_warnings<T: Serialize>(&self, value: &T) {
        let view = serde_json::to_value(value).unwrap_or_default();
        tell_left_out(view.get("left_out"));
        self.tell_warned(value);
    }

    fn tell_warned<T: Serialize>(&self, value: &T) {
        for (message, next) in warnings(value) {
            let next = self.spelled_in(&next);
            ui::note(&format!("warning: {message}\n  next: {next}"));
        }
    }
}

/// Rows that an answer is without, because nobody can read them.
fn tell_left_out(list: Option<&serde_json::Value>) {
    let names = list.and_then(|list| list.as_array()).into_iter().flatten();
    let names: Vec<String> = names
        .filter_map(|name| name.as_str())
        .map(printable)
        .collect();
    if !names.is_empty() {
        ui::note(&left_out_in_words(&names));
    }
}

/// The same of what is meant to be all there is: whoever keeps it must not take it for whole, so it is a failure as well.
pub(crate) fn refuse_left_out(names: BTreeSet<String>) -> Result<(), CliError> {
    if names.is_empty() {
        return Ok(());
    }
    tell_left_out(Some(&names.into_iter().collect()));
    let mut not_whole = CliError::quiet();
    not_whole.code = exit::FAILED;
    Err(not_whole)
}

fn left_out_in_words(names: &[String]) -> String {
    let rows = if names.len() == 1 {
        "row is"
    } else {
        "rows are"
    };
    // The vectors of a model whose row is bad are whole; only what it is called is not.
    let next = if names.iter().all(|name| name.starts_with("model ")) {
        "`heddle down`, then `heddle doctor --repair` mends what is known of the model; its vectors stay."
    } else {
        "Write the key again or delete it; or `heddle down`, then `heddle doctor --repair` mends a task, takes any other row out and keeps the file."
    };
    format!(
        "warning: {} {rows} left out, because data.db cannot be read there: {}\n  next: {next}",
        names.len(),
        names.join(", ")
    )
}

/// What an answer has to tell beside what was asked: told once, so every verb must show it.
fn warnings<T: Serialize>(value: &T) -> Vec<(String, String)> {
    let value = serde_json::to_value(value).unwrap_or_default();
    warnings_in(value.get("warnings"))
}

/// The sentences of each: what happened, and what to do next.
pub(super) fn warnings_in(list: Option<&serde_json::Value>) -> Vec<(String, String)> {
    let list = list.and_then(|list| list.as_array());
    let words = |warning: &serde_json::Value, name: &str| {
        let text = warning.get(name).and_then(|text| text.as_str());
        printable(text.unwrap_or_default())
    };
    // Those that are plain words were shown by the verb itself.
    let told = list.into_iter().flatten().filter(|one| one.is_object());
    let told = told.map(|warning| (words(warning, "message"), words(warning, "next")));
    told.collect()
}

impl Context {
    /// The agent that was named, if one was; a name that cannot be one is a mistake.
    pub fn agent_name(&self) -> Result<Option<AgentName>, CliError> {
        let Some(name) = self.agent.as_deref() else {
            return Ok(None);
        };
        let parsed = AgentName::parse(name.strip_prefix('@').unwrap_or(name));
        parsed.map(Some).map_err(|error| {
            CliError::new(exit::USAGE, error.to_string())
                .next("Correct --agent or HEDDLE_AGENT, or leave it out.")
        })
    }

    /// `HEDDLE_STORE_SYNC=normal` is the opt-out; anything else but `full` is a mistake.
    pub fn durability(&self) -> Result<heddle_daemon::Durability, CliError> {
        match self.environment.store_sync.as_deref() {
            None | Some("full") => Ok(heddle_daemon::Durability::Full),
            Some("normal") => Ok(heddle_daemon::Durability::Normal),
            Some(other) => Err(CliError::new(
                exit::USAGE,
                format!("HEDDLE_STORE_SYNC={other} is not known"),
            )
            .next("Use full (the default) or normal.")),
        }
    }
}
