//! One broken house rule at one place, and the verdict that a task hands to `main`.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root of the workspace, with `/` on every system.
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    /// What is wrong, then what to do: the reader sees only this line.
    pub(crate) advice: String,
    /// Set where an exception names a function and not a whole file.
    pub(crate) function: Option<String>,
}

impl Finding {
    pub(crate) fn new(
        path: impl Into<String>,
        line: usize,
        rule: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            line,
            rule,
            advice: advice.into(),
            function: None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            advice,
            ..
        } = self;
        write!(f, "{path}:{line}: {rule}: {advice}")
    }
}

/// What a task found, and the sentence to say when it found nothing.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) findings: Vec<Finding>,
    pub(crate) summary: String,
}

#[cfg(test)]
mod tests {
    use super::Finding;

    #[test]
    fn a_finding_is_one_line_that_an_editor_can_jump_to() {
        let finding = Finding::new("crates/core/src/lib.rs", 7, "head", "write a sentence");
        assert_eq!(
            finding.to_string(),
            "crates/core/src/lib.rs:7: head: write a sentence"
        );
    }
}
