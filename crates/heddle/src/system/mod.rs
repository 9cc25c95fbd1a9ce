//! The machine's own clock and randomness, behind the traits of `heddle-core`, and the process's runtimes and signals.

mod clock;
mod ids;
mod runtime;
mod signals;

pub use clock::SystemClock;
pub use ids::SystemIds;
pub use runtime::Runtime;
pub use signals::{Signals, Word, ignored};
