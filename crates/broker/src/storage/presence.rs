//! Who is here: sessions are leases with a generation, and the promises about them.
//!
//! **A generation touches itself only.** Renewing and ending name a generation; a newer session of the
//! same member is never lengthened, shortened or ended by an older one.
//!
//! **Lease time.** Leases are measured in [`LeaseMs`], which no wall clock can move (C18). It stands
//! still while nobody serves the store, so a lease may last longer than it was granted, never shorter.

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};

use super::contract::Answer;

/// Milliseconds that have passed for the store's leases: they never go back, across restarts too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseMs(pub u64);

impl LeaseMs {
    /// After everything that a store can hold.
    pub const MAX: Self = Self(i64::MAX.unsigned_abs());

    #[must_use]
    pub fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Whether a member is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    pub member: MemberId,
    pub is_online: bool,
    /// Since when it has been so; `None` for one that never was here.
    pub since: Option<WallMs>,
}

pub trait Presence: Send + Sync + 'static {
    /// A new connection of this member. Its number is higher than every one before it, for ever.
    fn begin_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        since: WallMs,
        until: LeaseMs,
    ) -> impl Future<Output = Answer<u64>> + Send;

    /// Lengthens the lease of this very session. False if it has ended. May be forgotten in a power
    /// cut, like every other sign of life.
    fn renew_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        until: LeaseMs,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Ends this very session. False if it has ended already.
    fn end_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        at: WallMs,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Ends every session whose lease is over by now; returns how many.
    fn expire_sessions(
        &self,
        mesh: MeshId,
        now: LeaseMs,
        at: WallMs,
    ) -> impl Future<Output = Answer<usize>> + Send;

    /// Every member, sorted: here if one of its sessions has a lease that runs at `now`.
    fn presence(
        &self,
        mesh: MeshId,
        now: LeaseMs,
    ) -> impl Future<Output = Answer<Vec<Present>>> + Send;

    /// The newest lease time that a write was handed. Whoever serves the store goes on from here.
    fn lease_time(&self, mesh: MeshId) -> impl Future<Output = Answer<LeaseMs>> + Send;

    /// Keeps that it is `now`, and answers the newest time that anybody has kept: those who serve the store
    /// together go by the one of them that is furthest.
    fn pass_lease_time(
        &self,
        mesh: MeshId,
        now: LeaseMs,
    ) -> impl Future<Output = Answer<LeaseMs>> + Send;
}
