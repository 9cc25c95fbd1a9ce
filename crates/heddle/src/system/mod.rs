//! The machine's own clock and randomness, behind the traits of `heddle-core`, and the process's runtimes.

mod clock;
mod ids;
mod runtime;

pub use clock::SystemClock;
pub use ids::SystemIds;
pub use runtime::Runtime;
