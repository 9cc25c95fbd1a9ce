//! What a person reads when a verb fails: a sentence, the next step, an exit code.

use std::path::Path;

use heddle_core::error_code::ErrorCode;
use heddle_core::shell::quoted;
use heddle_wire::client::ClientError;
use heddle_wire::problem::Problem;
use serde_json::Value;

use super::context::warnings_in;

/// Exit codes (CONTRACT).
pub mod exit {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const CONFLICT: u8 = 3;
    pub const NOT_FOUND: u8 = 4;
    pub const UNREACHABLE: u8 = 5;
    pub const REFUSED: u8 = 6;
}

#[derive(Debug)]
pub struct CliError {
    pub code: u8,
    pub message: String,
    pub next: Option<String>,
    /// The daemon's own words, for `--json`.
    pub problem: Option<Box<Problem>>,
    /// The verb's own answer, for `--json`, where failing is one.
    pub answer: Option<Box<Value>>,
    /// A reader that closed the pipe is no failure worth a word.
    pub quiet: bool,
}

impl CliError {
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            next: None,
            problem: None,
            answer: None,
            quiet: false,
        }
    }

    /// Whether the daemon said this.
    pub fn is(&self, code: ErrorCode) -> bool {
        let said = self.problem.as_ref();
        said.is_some_and(|problem| problem.known_code() == Some(code))
    }

    /// What the daemon told beside the refusal: each with its next step.
    pub fn warnings(&self) -> Vec<(String, String)> {
        let problem = self.problem.as_ref();
        warnings_in(problem.and_then(|problem| problem.extra.get("warnings")))
    }

    /// What `--json` prints instead of a problem.
    #[must_use]
    pub fn answer(mut self, answer: Value) -> Self {
        self.answer = Some(Box::new(answer));
        self
    }

    /// The same beside the `code` of any failure; `detail` and `next` have every answer.
    #[must_use]
    pub fn beside(self, mut answer: Value) -> Self {
        answer["code"] = super::ui::code_name(self.code).into();
        self.answer(answer)
    }

    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// The answer is lost, what it tells of is not.
    #[must_use]
    pub fn unprinted(self, answer: &str) -> Self {
        if self.quiet {
            return self;
        }
        let message = format!(
            "it is done, but the answer could not be printed ({}):\n  {}",
            self.message,
            answer.trim_end().replace('\n', "\n  ")
        );
        Self { message, ..self }.next("Do not do it again: it has taken effect.")
    }

    /// Another program keeps us from writing to a file. Nothing is wrong with it, and trying again may help.
    pub fn held(file: &Path) -> Self {
        let file = file.display().to_string();
        let message =
            format!("another program holds a lock on {file}; nothing can be written there");
        let who = format!("`fuser -v {}` names the program", quoted(&file));
        Self::new(exit::UNREACHABLE, message).next(format!(
            "{who}: end what it does, and run this again. Nothing is half done."
        ))
    }

    pub fn quiet() -> Self {
        Self {
            quiet: true,
            ..Self::new(0, "")
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::NotRunning { .. } => {
                Self::new(exit::UNREACHABLE, message).next("Start one with `heddle up`.")
            }
            ClientError::Foreign { .. } => Self::new(exit::REFUSED, message)
                .next("Remove the socket if it is not yours, or choose another HEDDLE_HOME."),
            ClientError::Silent => Self::new(exit::UNREACHABLE, message).next(
                "It may be stopped or overloaded; `heddle status` says which process it is. Of a command with --id, a retry under the same one is safe.",
            ),
            ClientError::Broken(_) => Self::new(exit::UNREACHABLE, message)
                .next("Try again; of a command with --id, the same one makes it safe whatever happened."),
            ClientError::Protocol(_) => Self::new(exit::FAILED, message)
                .next("Restart the daemon with this version: `heddle down`, then `heddle up`."),
            ClientError::Problem(problem) => Self {
                code: match problem.known_code() {
                    // The store of who decides elsewhere, who could not be asked; or ours, which another program holds for now.
                    Some(ErrorCode::StorageUnavailable)
                        if problem.extra.get("decides").is_some_and(|it| it == "broker")
                            || problem.extra.contains_key("held") =>
                    {
                        exit::UNREACHABLE
                    }
                    known => known.map_or(exit::FAILED, ErrorCode::exit_code),
                },
                message,
                next: Some(with_candidates(&problem)),
                problem: Some(problem),
                ..Self::new(exit::FAILED, "")
            },
        }
    }
}

fn with_candidates(problem: &Problem) -> String {
    let names: Vec<&str> = problem
        .extra
        .get("candidates")
        .and_then(|value| value.as_array())
        .map(|list| list.iter().filter_map(|name| name.as_str()).collect())
        .unwrap_or_default();
    if names.is_empty() {
        problem.next.clone()
    } else {
        format!("{} Candidates: {}.", problem.next, names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_who_decides_elsewhere_is_out_of_reach_and_our_own_has_failed() {
        let code = |problem: Problem| CliError::from(ClientError::Problem(Box::new(problem))).code;
        let own = Problem::new(ErrorCode::StorageUnavailable, "gone");
        assert_eq!(code(own.clone()), exit::FAILED);
        let decides = own.clone().with("decides", "broker");
        assert_eq!(code(decides), exit::UNREACHABLE);
        assert_eq!(code(own.with("held", "data.db")), exit::UNREACHABLE);
    }
}
