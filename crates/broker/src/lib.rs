//! The broker: it accepts each message once, keeps the history of its meshes, and delivers.
//!
//! Seven rooms. [`accept`] is the gate (B0 to B3), [`storage`] and [`limiter`] are what it stands
//! on, each a trait with its promises and one suite, [`members`] says who belongs to a mesh, [`jobs`]
//! is upkeep, [`upload`] takes a large mesh in parts, and [`ws`] is the door.
//! Nothing here listens on a port: the door is given a connection and what is proven about its peer
//! ([`Claim`]).

pub mod accept;
mod any;
mod authorities;
mod effects;
pub mod jobs;
mod lease;
pub mod limiter;
pub mod members;
mod principal;
pub mod storage;
#[cfg(test)]
mod test_support;
pub mod upload;
pub mod ws;

pub use any::{AnyBroker, KeepMarks, Transport};
pub use effects::{EffectAsked, EffectAuthority};
pub use principal::{Claim, Principal};
pub use ws::{Broker, BrokerConfig, Ending, Marks, ws_config};
