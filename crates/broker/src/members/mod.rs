//! Who belongs to a mesh: standings, keys and invitations. The promises and what the rows hold.
//!
//! The stores implement them in `storage`, where all SQL is; the door uses them in `ws/identify` and
//! `ws/enrol`. What is decided without a store stands in `core::membership`.

mod contract;
mod grants;
mod rows;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod suite_standing;

pub use contract::Members;
pub use grants::{Granted, Grants};
pub use rows::{Credentials, EnrolVerdict, Enrolment, NewInvite, RevokeVerdict, Standing};
