//! The broker: it accepts each message once, keeps the history of its meshes, and delivers.
//!
//! Four rooms. [`accept`] is the gate (B0 to B3), [`storage`] and [`limiter`] are what it stands
//! on, each a trait with its promises and one suite, and [`ws`] is the door. Nothing here listens
//! on a port: the door is given a connection whose identity is already proven ([`Principal`]).

pub mod accept;
pub mod limiter;
mod principal;
pub mod storage;
#[cfg(test)]
mod test_support;
pub mod ws;

pub use principal::Principal;
pub use ws::{Broker, BrokerConfig, Ending, ws_config};
