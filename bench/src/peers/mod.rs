//! Peers: other people's servers with the same promise, started privately from Debian packages.

pub mod nats;
pub mod postgres;
pub mod redis;

use std::sync::atomic::{AtomicU64, Ordering};

/// An id that no other message of this run has, in order of time like the product's own.
pub fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{number:026}")
}
