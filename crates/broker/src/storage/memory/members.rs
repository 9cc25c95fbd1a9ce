//! Members of the oracle.

use std::collections::BTreeMap;

use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, InviteId, MemberId, MeshId};
use heddle_core::membership::{
    Bar, Change, ChangeVerdict, Facts, PublicKey, Role, decide_change, free_name,
};
use heddle_core::names::MemberName;

use super::super::error::StorageError;
use super::MemoryStorage;
use super::tables::Tables;
use crate::members::{
    Credentials, EnrolVerdict, Enrolment, Members, NewInvite, RevokeVerdict, Standing,
};

#[derive(Default)]
pub(super) struct Book {
    pub(super) standings: BTreeMap<MemberId, StandingRow>,
    pub(super) keys: BTreeMap<PublicKey, KeyRow>,
    pub(super) invites: BTreeMap<InviteId, InviteRow>,
}

pub(super) struct StandingRow {
    pub(super) role: Role,
    pub(super) enrolled_at: WallMs,
    pub(super) invite: Option<InviteId>,
    pub(super) revoked_at: Option<WallMs>,
    pub(super) blocked_at: Option<WallMs>,
}

pub(super) struct KeyRow {
    pub(super) member: MemberId,
    #[allow(dead_code, reason = "compared with other stores, row by row")]
    pub(super) added_at: WallMs,
    pub(super) retired_at: Option<WallMs>,
}

pub(super) struct InviteRow {
    pub(super) new: NewInvite,
    pub(super) used: u32,
}

impl Book {
    fn key_of(&self, member: MemberId) -> Option<PublicKey> {
        let mut keys = self.keys.iter();
        let current = keys.find(|(_, row)| row.member == member && row.retired_at.is_none());
        current.map(|(key, _)| *key)
    }

    pub(super) fn is_revoked(&self, member: MemberId) -> bool {
        self.bar(member) == Some(Bar::Revoked)
    }

    /// What keeps a member from being heard.
    pub(super) fn bar(&self, member: MemberId) -> Option<Bar> {
        let row = self.standings.get(&member)?;
        match (row.revoked_at, row.blocked_at) {
            (Some(_), _) => Some(Bar::Revoked),
            (None, Some(_)) => Some(Bar::Blocked),
            (None, None) => None,
        }
    }

    /// A key that the member had before is its key again. False if it is not such a key.
    fn revive(&mut self, member: MemberId, key: PublicKey, at: WallMs) -> bool {
        let row = self.keys.get(&key);
        if !row.is_some_and(|row| row.member == member && row.retired_at.is_some()) {
            return false;
        }
        for (other, row) in &mut self.keys {
            if *other == key {
                row.retired_at = None;
            } else if row.member == member && row.retired_at.is_none() {
                row.retired_at = Some(at);
            }
        }
        true
    }

    fn rotate(&mut self, member: MemberId, key: PublicKey, at: WallMs) -> bool {
        if self.keys.contains_key(&key) {
            return false;
        }
        for row in self.keys.values_mut() {
            if row.member == member && row.retired_at.is_none() {
                row.retired_at = Some(at);
            }
        }
        let row = KeyRow {
            member,
            added_at: at,
            retired_at: None,
        };
        self.keys.insert(key, row);
        true
    }
}

impl Tables {
    fn standing(&self, member: MemberId) -> Option<Standing> {
        let row = self.book.standings.get(&member)?;
        Some(Standing {
            member,
            name: self.members.get(&member)?.name.clone(),
            role: row.role,
            key: self.book.key_of(member)?,
            enrolled_at: row.enrolled_at,
            revoked_at: row.revoked_at,
            blocked_at: row.blocked_at,
            is_founder: row.invite.is_none(),
        })
    }

    fn is_name_taken(&self, name: &MemberName) -> bool {
        let folded = name.as_str().to_lowercase();
        let mut members = self.members.values();
        members.any(|member| member.name.as_str().to_lowercase() == folded)
    }

    fn enrol(&mut self, enrolment: Enrolment) -> EnrolVerdict {
        let Enrolment {
            invite,
            digest,
            member,
            name,
            key,
            at,
        } = enrolment;
        if let Some(row) = self.book.keys.get(&key) {
            let owner = row.member;
            if row.retired_at.is_some() || self.book.is_revoked(owner) {
                return EnrolVerdict::Revoked;
            }
            return EnrolVerdict::Duplicate {
                member: owner,
                name: self.members[&owner].name.clone(),
            };
        }
        let (role, expires_at, is_used_up) = match self.book.invites.get(&invite) {
            Some(row) if row.new.digest == digest => {
                let is_used_up = row.used >= row.new.uses_max;
                (row.new.role, row.new.expires_at, is_used_up)
            }
            _ => return EnrolVerdict::UnknownInvite,
        };
        if expires_at <= at {
            return EnrolVerdict::Expired { at: expires_at };
        }
        if is_used_up {
            return EnrolVerdict::UsedUp;
        }
        if self.is_name_taken(&name) {
            let suggestion = free_name(&name, |name| self.is_name_taken(name));
            return EnrolVerdict::NameTaken { suggestion };
        }
        if let Some(row) = self.book.invites.get_mut(&invite) {
            row.used += 1;
        }
        self.ensure_member(member, &name);
        let standing = StandingRow {
            role,
            enrolled_at: at,
            invite: Some(invite),
            revoked_at: None,
            blocked_at: None,
        };
        self.book.standings.insert(member, standing);
        self.book.rotate(member, key, at);
        EnrolVerdict::Enrolled { member, name }
    }

    fn revoke(&mut self, by: MemberId, member: MemberId, at: WallMs) -> RevokeVerdict {
        let is_owner = |member: MemberId| self.standing(member).is_some_and(|one| one.is_owner());
        if !is_owner(by) {
            return RevokeVerdict::NotOwner;
        }
        if is_owner(member) {
            return RevokeVerdict::IsOwner;
        }
        match self.book.standings.get_mut(&member) {
            None => return RevokeVerdict::UnknownMember,
            Some(row) if row.revoked_at.is_some() => return RevokeVerdict::Already,
            Some(row) => row.revoked_at = Some(at),
        }
        self.agents.retain(|agent| agent.member != member);
        for subscribers in self.topics.values_mut() {
            subscribers.retain(|agent| agent.member != member);
        }
        if let Some(row) = self.members.get_mut(&member) {
            row.sessions.clear();
            row.seen_at = row.seen_at.max(Some(at));
        }
        RevokeVerdict::Revoked
    }

    fn change_standing(
        &mut self,
        by: MemberId,
        member: MemberId,
        change: Change,
        at: WallMs,
    ) -> ChangeVerdict {
        let facts = |one| self.standing(one).map(|standing| standing.facts());
        let owners = self.book.standings.keys().filter(|one| **one != member);
        let others = owners.filter(|one| facts(**one).is_some_and(Facts::is_owner));
        let verdict = decide_change(facts(by), facts(member), others.count(), change);
        if verdict != ChangeVerdict::Changed {
            return verdict;
        }
        if let Some(row) = self.book.standings.get_mut(&member) {
            match change {
                Change::Block => row.blocked_at = Some(at),
                Change::Grant(role) => (row.role, row.blocked_at) = (role, None),
            }
        }
        if change == Change::Block
            && let Some(row) = self.members.get_mut(&member)
        {
            row.sessions.clear();
            row.seen_at = row.seen_at.max(Some(at));
        }
        verdict
    }
}

impl Members for MemoryStorage {
    async fn broker_id(&self, fresh: BrokerId) -> Result<BrokerId, StorageError> {
        Ok(*self.broker_id.get_or_init(|| fresh))
    }

    async fn enrol_owner(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
        key: PublicKey,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| {
            let is_renamed = tables.ensure_member(member, name);
            let is_owner = tables.standing(member).is_some_and(|one| one.is_owner());
            if !is_owner {
                let standing = StandingRow {
                    role: Role::Owner,
                    enrolled_at: at,
                    invite: None,
                    revoked_at: None,
                    blocked_at: None,
                };
                tables.book.standings.insert(member, standing);
            }
            let is_other_key =
                tables.book.rotate(member, key, at) || tables.book.revive(member, key, at);
            Ok(is_renamed || !is_owner || is_other_key)
        })
    }

    async fn rotate_key(
        &self,
        mesh: MeshId,
        member: MemberId,
        key: PublicKey,
        at: WallMs,
    ) -> Result<bool, StorageError> {
        self.on(mesh, |tables| match tables.standing(member) {
            None => Err(StorageError::UnknownMember(member)),
            Some(standing) if standing.revoked_at.is_some() => Ok(false),
            Some(_) => Ok(tables.book.rotate(member, key, at)),
        })
    }

    async fn credentials(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Result<Credentials, StorageError> {
        self.on(mesh, |tables| {
            Ok(Credentials {
                mesh_has_keys: !tables.book.keys.is_empty(),
                standing: tables.standing(member),
            })
        })
    }

    async fn standings(&self, mesh: MeshId) -> Result<Vec<Standing>, StorageError> {
        self.on(mesh, |tables| {
            let members = tables.book.standings.keys();
            Ok(members.filter_map(|m| tables.standing(*m)).collect())
        })
    }

    async fn create_invite(&self, mesh: MeshId, invite: NewInvite) -> Result<bool, StorageError> {
        self.on(mesh, |tables| {
            let is_new = !tables.book.invites.contains_key(&invite.invite);
            let row = InviteRow {
                new: invite.clone(),
                used: 0,
            };
            tables.book.invites.entry(invite.invite).or_insert(row);
            Ok(is_new)
        })
    }

    async fn invite(
        &self,
        mesh: MeshId,
        invite: InviteId,
    ) -> Result<Option<NewInvite>, StorageError> {
        self.on(mesh, |tables| {
            let row = tables.book.invites.get(&invite);
            Ok(row.map(|row| row.new.clone()))
        })
    }

    async fn has_invites(&self, mesh: MeshId) -> Result<bool, StorageError> {
        self.on(mesh, |tables| Ok(!tables.book.invites.is_empty()))
    }

    async fn enrol(
        &self,
        mesh: MeshId,
        enrolment: Enrolment,
    ) -> Result<EnrolVerdict, StorageError> {
        self.on(mesh, |tables| Ok(tables.enrol(enrolment)))
    }

    async fn revoke(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        at: WallMs,
    ) -> Result<RevokeVerdict, StorageError> {
        self.on(mesh, |tables| Ok(tables.revoke(by, member, at)))
    }

    async fn change_standing(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        change: Change,
        at: WallMs,
    ) -> Result<ChangeVerdict, StorageError> {
        self.on(mesh, |tables| {
            Ok(tables.change_standing(by, member, change, at))
        })
    }
}
