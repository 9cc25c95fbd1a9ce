//! House rules as tests: `cargo xtask tidy` reads the source, `cargo xtask layers` reads the arrows between crates.
//!
//! Exit code 0: clean. 1: findings, one line each. 2: the rules could not be run at all.

mod finding;
mod layers;
mod report;
mod tidy;
mod toml_text;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).parent() else {
        return report::broken("xtask must live in a folder of the workspace");
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(root),
        ["layers"] => layers::run(root),
        _ => return report::broken("usage: cargo xtask <tidy | layers>"),
    };
    match outcome {
        Ok(verdict) => report::verdict(&verdict),
        Err(error) => report::broken(&error.to_string()),
    }
}
