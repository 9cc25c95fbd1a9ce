//! What can go wrong in a measurement: one sentence, for a person.

use std::fmt;

#[derive(Debug)]
pub struct BenchError(String);

pub type Outcome<T> = Result<T, BenchError>;

impl BenchError {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

macro_rules! from_errors {
    ($($source:ty => $prefix:literal),* $(,)?) => {
        $(impl From<$source> for BenchError {
            fn from(error: $source) -> Self {
                Self(format!(concat!($prefix, ": {}"), error))
            }
        })*
    };
}

from_errors! {
    std::io::Error => "input or output",
    rusqlite::Error => "sqlite",
    serde_json::Error => "json",
    tokio::task::JoinError => "a task broke off",
    tokio::time::error::Elapsed => "waited in vain",
}

/// Says what was being done when it failed.
pub trait While<T> {
    fn or_fail(self, doing: &str) -> Outcome<T>;
}

impl<T, E: fmt::Display> While<T> for Result<T, E> {
    fn or_fail(self, doing: &str) -> Outcome<T> {
        self.map_err(|error| BenchError(format!("{doing}: {error}")))
    }
}
