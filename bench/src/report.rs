//! What a workload found: rows with a figure per round, goals, remarks; as a table and as JSON.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::{Outcome, While as _};
use crate::options::Options;
use crate::series::Series;
use crate::table::Table;

/// Digits that a goal is judged by: the goals themselves have no more.
const DIGITS_JUDGED: i32 = 3;

#[derive(Debug, Clone, Copy)]
pub enum Unit {
    PerSecond,
    Microseconds,
    Count,
}

#[derive(Debug, Clone, Copy)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug)]
pub struct Row {
    /// Its number in PERFORMANCE.md; empty for a figure without a goal.
    pub id: &'static str,
    pub what: String,
    pub unit: Unit,
    pub figures: Series,
    pub compared: Option<Compared>,
}

/// The figure that is judged: a ratio, or a count.
#[derive(Debug)]
pub struct Compared {
    /// What was divided by what, in words.
    pub how: &'static str,
    pub ratio: Series,
    pub goal: Option<Goal>,
}

impl Row {
    pub fn new(id: &'static str, what: impl Into<String>, unit: Unit, figures: Series) -> Self {
        Self {
            id,
            what: what.into(),
            unit,
            figures,
            compared: None,
        }
    }

    pub fn compared(mut self, how: &'static str, ratio: Series, goal: Option<Goal>) -> Self {
        self.compared = Some(Compared { how, ratio, goal });
        self
    }
}

impl Compared {
    fn is_met(&self) -> Option<bool> {
        let median = rounded(self.ratio.median());
        match self.goal? {
            Goal::AtLeast(least) => Some(median >= least),
            Goal::AtMost(most) => Some(median <= most),
        }
    }
}

/// To the digits that count.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    #[allow(clippy::cast_possible_truncation)]
    let magnitude = value.abs().log10().floor() as i32;
    let scale = 10_f64.powi(DIGITS_JUDGED - 1 - magnitude);
    (value * scale).round() / scale
}

#[derive(Debug)]
pub struct Report {
    name: &'static str,
    rows: Vec<Row>,
    remarks: Vec<String>,
}

impl Report {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            rows: Vec::new(),
            remarks: Vec::new(),
        }
    }

    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// A row of PERFORMANCE.md that could not be measured here.
    pub fn skipped(&mut self, id: &str, why: &str) {
        self.remarks.push(format!("skipped {id}: {why}"));
    }

    pub fn text(&self, options: &Options) -> String {
        let mut table = Table::new(&[
            "#",
            "what",
            "median",
            "min – max",
            "ratio",
            "min – max",
            "of",
            "goal",
            "met",
        ]);
        for row in &self.rows {
            let show = |value: f64| shown(row.unit, value);
            let mut cells = vec![
                row.id.to_owned(),
                row.what.clone(),
                show(row.figures.median()),
                format!("{} – {}", show(row.figures.min()), show(row.figures.max())),
            ];
            if let Some(compared) = &row.compared {
                let ratio = &compared.ratio;
                cells.push(shown_ratio(ratio.median()));
                cells.push(format!(
                    "{} – {}",
                    shown_ratio(ratio.min()),
                    shown_ratio(ratio.max())
                ));
                cells.push(compared.how.to_owned());
                cells.push(compared.goal.map(goal_text).unwrap_or_default());
                cells.push(match compared.is_met() {
                    None => String::new(),
                    Some(true) => "yes".to_owned(),
                    Some(false) => "NO".to_owned(),
                });
            }
            table.row(cells);
        }
        let remarks: String = self.remarks.iter().map(|r| format!("  · {r}\n")).collect();
        format!(
            "\n{}: {} rounds of {} s, {} clients\n\n{}\n{remarks}",
            self.name,
            options.rounds,
            options.seconds,
            options.clients,
            table.text()
        )
    }

    fn json(&self, options: &Options) -> Value {
        let series = |series: &Series| {
            json!({
                "median": series.median(), "min": series.min(), "max": series.max(),
                "rounds": series.rounds(),
            })
        };
        let row = |row: &Row| {
            json!({
                "id": row.id,
                "what": row.what,
                "unit": unit_name(row.unit),
                "figures": series(&row.figures),
                "compared": row.compared.as_ref().map(|compared| json!({
                    "of": compared.how,
                    "ratio": series(&compared.ratio),
                    "goal": compared.goal.map(goal_text),
                    "met": compared.is_met(),
                })),
            })
        };
        json!({
            "workload": self.name,
            "seconds": options.seconds,
            "clients": options.clients,
            "rounds": options.rounds,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "remarks": self.remarks,
        })
    }

    /// Writes `results/<name>.json` beside this package.
    pub fn save(&self, options: &Options) -> Outcome<PathBuf> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results"));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(&self.json(options))?;
        std::fs::write(&path, text + "\n").or_fail(&path.display().to_string())?;
        Ok(path)
    }
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::PerSecond => "per_second",
        Unit::Microseconds => "microseconds",
        Unit::Count => "count",
    }
}

fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::AtLeast(least) => format!("≥ {}", rounded(least)),
        Goal::AtMost(most) => format!("≤ {}", rounded(most)),
    }
}

fn shown_ratio(value: f64) -> String {
    format!("{}", rounded(value))
}

fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond if value >= 10_000.0 => format!("{:.1}k/s", value / 1000.0),
        Unit::PerSecond => format!("{value:.0}/s"),
        Unit::Microseconds if value >= 1000.0 => format!("{:.2} ms", value / 1000.0),
        Unit::Microseconds => format!("{value:.0} µs"),
        Unit::Count => shown_ratio(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_three_digits() {
        let judged = |value: f64, goal| {
            let mut ratio = Series::default();
            ratio.push(value);
            let how = "";
            Compared { how, ratio, goal }.is_met()
        };
        let check = |value, goal, expected| assert_eq!(judged(value, Some(goal)), Some(expected));
        check(1.002, Goal::AtMost(1.0), true);
        check(1.006, Goal::AtMost(1.0), false);
        check(0.0314, Goal::AtMost(1.0 / 32.0), false);
        check(0.031, Goal::AtMost(1.0 / 32.0), true);
        check(0.6496, Goal::AtLeast(0.65), true);
        check(0.64, Goal::AtLeast(0.65), false);
        assert_eq!(judged(5.0, None), None);
    }
}
