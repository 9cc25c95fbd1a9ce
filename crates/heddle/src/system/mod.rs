//! The machine's own clock and randomness, behind the traits of `heddle-core`.

mod clock;
mod ids;

pub use clock::SystemClock;
pub use ids::SystemIds;
