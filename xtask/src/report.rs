//! Turns a verdict into lines and an exit code; nothing else in xtask prints.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::finding::Verdict;

const FINDINGS: u8 = 1;
const BROKEN: u8 = 2;

pub(crate) fn verdict(verdict: &Verdict) -> ExitCode {
    let (text, code) = render(verdict);
    // A reader that went away (`| head`) does not change the verdict.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    ExitCode::from(code)
}

pub(crate) fn broken(why: &str) -> ExitCode {
    let _ = writeln!(io::stderr().lock(), "xtask: {why}");
    ExitCode::from(BROKEN)
}

fn render(verdict: &Verdict) -> (String, u8) {
    if verdict.findings.is_empty() {
        return (format!("{}\n", verdict.summary), 0);
    }
    let mut findings = verdict.findings.clone();
    findings.sort();
    let lines: Vec<String> = findings.iter().map(|f| format!("{f}\n")).collect();
    (lines.concat(), FINDINGS)
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::finding::{Finding, Verdict};

    fn verdict(findings: Vec<Finding>) -> Verdict {
        Verdict {
            findings,
            summary: "all well".to_owned(),
        }
    }

    #[test]
    fn a_clean_verdict_is_one_summary_line_and_zero() {
        assert_eq!(render(&verdict(vec![])), ("all well\n".to_owned(), 0));
    }

    #[test]
    fn findings_are_sorted_one_a_line_and_fail() {
        let later = Finding::new("b.rs", 1, "head", "x");
        let sooner = Finding::new("a.rs", 9, "head", "x");
        let (text, code) = render(&verdict(vec![later, sooner]));
        assert_eq!(text, "a.rs:9: head: x\nb.rs:1: head: x\n");
        assert_eq!(code, 1);
    }
}
