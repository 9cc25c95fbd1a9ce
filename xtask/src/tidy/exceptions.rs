//! `xtask/exceptions.toml`: what may break a size rule or hold `unsafe`, and why; a stale entry is itself a finding.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{file_lines, function_lines, unsafe_code};
use crate::finding::Finding;
use crate::toml_text::{self, line_of};

pub(crate) const PATH: &str = "xtask/exceptions.toml";
const RULE: &str = "exception";
/// The other rules know no exception: their rooms are in the rule.
const WAIVABLE: &[&str] = &[file_lines::RULE, function_lines::RULE, unsafe_code::RULE];
const KEYS: &[&str] = &["path", "function", "rule", "reason"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    path: String,
    function: Option<String>,
    rule: String,
    line: usize,
}

impl Exception {
    fn covers(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.path == finding.path && self.function == finding.function
    }
}

/// The entries that hold together, and a finding for each that does not.
pub(crate) fn parse(text: &str) -> (Vec<Exception>, Vec<Finding>) {
    let table = match toml_text::parse(PATH, text, RULE) {
        Ok(table) => table,
        Err(finding) => return (Vec::new(), vec![finding]),
    };
    let mut exceptions = Vec::new();
    let mut findings = Vec::new();
    for (key, value) in &table {
        let line = line_of(text, &key.span());
        if key.get_ref() != "exception" {
            findings.push(Finding::new(
                PATH,
                line,
                RULE,
                "only `[[exception]]` stands here",
            ));
            continue;
        }
        for entry in value.get_ref().as_array().into_iter().flatten() {
            let line = line_of(text, &entry.span());
            match read(entry, line) {
                Ok(exception) => exceptions.push(exception),
                Err(why) => findings.push(Finding::new(PATH, line, RULE, why)),
            }
        }
    }
    (exceptions, findings)
}

fn read(entry: &Spanned<DeValue<'_>>, line: usize) -> Result<Exception, String> {
    let table = entry
        .get_ref()
        .as_table()
        .ok_or("an exception is a table")?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&&**key.get_ref())) {
        return Err(format!(
            "unknown key `{}`: there are {}",
            key.get_ref(),
            KEYS.join(", ")
        ));
    }
    let path = text_at(table, "path").ok_or("name the `path`")?;
    let rule = text_at(table, "rule").ok_or("name the `rule`")?;
    let function = text_at(table, "function");
    text_at(table, "reason").ok_or("give a `reason`: why is the code better this way?")?;
    if !WAIVABLE.contains(&rule.as_str()) {
        return Err(format!(
            "no exception from `{rule}`: only from {}",
            WAIVABLE.join(", ")
        ));
    }
    if function.is_some() != (rule == function_lines::RULE) {
        return Err(format!(
            "`function` goes with `{}` and with no other rule",
            function_lines::RULE
        ));
    }
    Ok(Exception {
        path,
        function,
        rule,
        line,
    })
}

/// A string that says something.
fn text_at(table: &DeTable<'_>, key: &str) -> Option<String> {
    let text = table.get(key)?.get_ref().as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Takes out what an exception covers and adds every exception that covers nothing.
pub(crate) fn apply(exceptions: &[Exception], findings: Vec<Finding>) -> Vec<Finding> {
    let stale: Vec<Finding> = exceptions
        .iter()
        .filter(|exception| !findings.iter().any(|finding| exception.covers(finding)))
        .map(|exception| {
            let Exception {
                path, rule, line, ..
            } = exception;
            let advice = format!("`{path}` no longer needs one from `{rule}`: take the entry out");
            Finding::new(PATH, *line, RULE, advice)
        })
        .collect();
    let mut kept = findings;
    kept.retain(|finding| !exceptions.iter().any(|exception| exception.covers(finding)));
    kept.extend(stale);
    kept
}

#[cfg(test)]
mod tests {
    use super::{Finding, apply, parse};

    const GOOD: &str = "# Why.\n\n[[exception]]\npath = \"a.rs\"\nfunction = \"W::run\"\n\
        rule = \"function-lines\"\nreason = \"one table\"\n\n[[exception]]\npath = \"b.rs\"\n\
        rule = \"unsafe\"\nreason = \"one cast\"\n";

    fn too_long(path: &str, function: &str) -> Finding {
        let finding = Finding::new(path, 1, "function-lines", "x");
        Finding {
            function: Some(function.to_owned()),
            ..finding
        }
    }

    #[test]
    fn a_good_list_is_read_with_its_lines() {
        let (exceptions, findings) = parse(GOOD);
        assert_eq!(findings, []);
        assert_eq!(
            exceptions.iter().map(|e| e.line).collect::<Vec<_>>(),
            [3, 9]
        );
        assert_eq!(parse("# nothing yet\n"), (vec![], vec![]));
    }

    #[test]
    fn an_entry_that_does_not_hold_together_is_caught() {
        for (entry, why) in [
            ("path = 'a'\nrule = 'unsafe'\nreason = ' '", "reason"),
            ("path = 'a'\nrule = 'unsafe'", "reason"),
            ("rule = 'unsafe'\nreason = 'x'", "path"),
            ("path = 'a'\nreason = 'x'", "rule"),
            (
                "path = 'a'\nrule = 'clock'\nreason = 'x'",
                "no exception from `clock`",
            ),
            (
                "path = 'a'\nrule = 'function-lines'\nreason = 'x'",
                "`function` goes with",
            ),
            (
                "path = 'a'\nrule = 'unsafe'\nfunction = 'f'\nreason = 'x'",
                "`function` goes with",
            ),
            (
                "path = 'a'\nrule = 'unsafe'\nreason = 'x'\nuntil = 'y'",
                "unknown key `until`",
            ),
        ] {
            let (exceptions, findings) = parse(&format!("[[exception]]\n{entry}\n"));
            assert_eq!(exceptions, [], "{entry}");
            assert!(findings[0].advice.contains(why), "{entry}: {}", findings[0]);
        }
        assert_eq!(parse("[other]\n").1.len(), 1);
        assert_eq!(parse("[[exception]\n").1.len(), 1);
    }

    #[test]
    fn an_exception_covers_its_function_and_no_other() {
        let (exceptions, _) = parse(GOOD);
        let findings = vec![
            too_long("a.rs", "W::run"),
            too_long("a.rs", "W::stop"),
            Finding::new("b.rs", 4, "unsafe", "x"),
            Finding::new("b.rs", 8, "unsafe", "x"),
            Finding::new("b.rs", 8, "clock", "x"),
        ];
        let kept = apply(&exceptions, findings);
        assert_eq!(
            kept,
            [
                too_long("a.rs", "W::stop"),
                Finding::new("b.rs", 8, "clock", "x")
            ]
        );
    }

    #[test]
    fn an_exception_that_covers_nothing_is_caught() {
        let (exceptions, _) = parse(GOOD);
        let kept = apply(&exceptions, vec![too_long("a.rs", "W::run")]);
        assert_eq!(kept.len(), 1);
        assert!(
            kept[0]
                .to_string()
                .starts_with("xtask/exceptions.toml:9: exception: `b.rs`")
        );
    }
}
