//! How long the last start took, from the process's first step to its open doors, beside what it should take
//! (local-first §17.2). A slow one is told and is nothing wrong: the machine may just have been busy.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use heddle_core::limits::COLD_START_BUDGET;
use heddle_wire::ipc::Finding;
use serde_json::Value;

/// Nothing where this home was never started, or its figures were taken away.
pub(super) fn finding(home: &Path) -> Option<Finding> {
    let took_ms = last(home)?;
    let budget_ms = COLD_START_BUDGET.as_millis();
    let is_within = u128::from(took_ms) <= budget_ms;
    let (verdict, next) = if is_within {
        ("within", "")
    } else {
        (
            "more than",
            "A busy machine or a large store that was not closed cleanly make it longer; logs/metrics.jsonl has every start.",
        )
    };
    Some(Finding {
        check: "cold start".to_owned(),
        ok: true,
        says: format!(
            "the last start took {took_ms} ms, {verdict} the {budget_ms} ms it should take"
        ),
        next: next.to_owned(),
    })
}

/// The newest start in the figures of this home. A line that is torn or foreign is passed over.
fn last(home: &Path) -> Option<u64> {
    let logs = home.join("logs");
    let files = ["metrics.jsonl", "metrics.jsonl.1"];
    files.iter().find_map(|name| {
        let file = crate::home::open_plain(&logs.join(name)).ok()?;
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        let starts = lines.filter_map(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            line["cold_start_ms"].as_u64()
        });
        starts.last()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(lines: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("logs")).unwrap();
        std::fs::write(home.path().join("logs/metrics.jsonl"), lines).unwrap();
        home
    }

    #[test]
    fn the_newest_start_is_told_beside_what_it_should_take() {
        let start = |ms| format!("{{\"what\":\"start\",\"cold_start_ms\":{ms}}}\n");
        let stop = "{\"what\":\"stop\",\"cold_start_ms\":null}\n";
        let two = home(&format!(
            "{}{stop}{}{stop}torn{{",
            start(90_000),
            start(400)
        ));
        let found = finding(two.path()).unwrap();
        assert!(found.ok);
        assert_eq!(
            found.says,
            "the last start took 400 ms, within the 400 ms it should take"
        );
        let slow = home(&start(401));
        let found = finding(slow.path()).unwrap();
        assert!(found.ok, "slow is not wrong");
        assert!(found.says.contains("more than"), "{found:?}");
        assert!(!found.next.is_empty());
        assert_eq!(finding(home(stop).path()), None);
        assert_eq!(finding(tempfile::tempdir().unwrap().path()), None);
    }
}
