//! Sessions of the oracle.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};

use super::super::error::StorageError;
use super::super::presence::{LeaseMs, Presence, Present};
use super::MemoryStorage;
use super::tables::{Member, Session};

impl Member {
    fn end(&mut self, generation: u64, at: WallMs) -> bool {
        let ended = self.sessions.remove(&generation).is_some();
        if ended {
            self.seen_at = self.seen_at.max(Some(at));
        }
        ended
    }

    fn present(&self, member: MemberId, now: LeaseMs) -> Present {
        let running = self.sessions.values().filter(|session| session.until > now);
        let oldest = running.map(|session| session.since).min();
        Present {
            member,
            is_online: oldest.is_some(),
            since: oldest.or(self.seen_at),
        }
    }
}

impl Presence for MemoryStorage {
    async fn begin_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        since: WallMs,
        until: LeaseMs,
    ) -> Result<u64, StorageError> {
        self.on(mesh, |tables| {
            let row = tables
                .members
                .get_mut(&member)
                .ok_or(StorageError::UnknownMember(member))?;
            row.generation += 1;
            row.sessions
                .insert(row.generation, Session { since, until });
            Ok(row.generation)
        })
    }

    async fn renew_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        until: LeaseMs,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| {
            let row = tables.members.get_mut(&member);
            let session = row.and_then(|row| row.sessions.get_mut(&generation));
            Ok(session.is_some_and(|session| {
                session.until = session.until.max(until);
                true
            }))
        })
    }

    async fn end_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| {
            let row = tables.members.get_mut(&member);
            Ok(row.is_some_and(|row| row.end(generation, at)))
        })
    }

    async fn expire_sessions(
        &self,
        mesh: MeshId,
        now: LeaseMs,
        at: WallMs,
    ) -> Result<usize, StorageError> {
        self.on(mesh, |tables| {
            let mut count = 0;
            for row in tables.members.values_mut() {
                let over = row.sessions.iter().filter(|(_, s)| s.until <= now);
                let over: Vec<u64> = over.map(|(generation, _)| *generation).collect();
                count += over.len();
                for generation in over {
                    row.end(generation, at);
                }
            }
            Ok(count)
        })
    }

    async fn presence(&self, mesh: MeshId, now: LeaseMs) -> Result<Vec<Present>, StorageError> {
        self.on(mesh, |tables| {
            let members = tables.members.iter();
            Ok(members
                .map(|(member, row)| row.present(*member, now))
                .collect())
        })
    }

    async fn lease_time(&self, mesh: MeshId) -> Result<LeaseMs, StorageError> {
        self.on(mesh, |tables| Ok(tables.lease_time))
    }

    async fn pass_lease_time(&self, mesh: MeshId, now: LeaseMs) -> Result<LeaseMs, StorageError> {
        self.on(mesh, |tables| {
            tables.lease_time = tables.lease_time.max(now);
            Ok(tables.lease_time)
        })
    }
}
