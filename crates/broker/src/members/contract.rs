//! What the broker needs to know of members, and what every store promises.
//!
//! **A member is its id.** Its key may change and its name may; everything that is its own stays with
//! the id (C1). At each moment it has one key. A key belongs to one member for ever: a retired one
//! opens nothing and is nobody else's.
//!
//! **The last use is decided once.** An enrolment and the use that it takes of its invitation are one
//! transaction, and the use is taken by one conditional update: uses never exceed what was allowed, however
//! many race (T-69). Whoever is refused, for whatever reason, uses nothing.
//!
//! **A retry is the same enrolment.** The key decides: a key that is enrolled gets its first answer again,
//! though the invitation has expired or is used up since (T-71).
//!
//! **Revoked is for ever.** A revoked member has no mailboxes, no subscriptions and no sessions from that
//! transaction on, and gets none; its name stays taken, so that nobody speaks in it.
//!
//! **Blocked is for now.** A blocked member keeps its mailboxes, its subscriptions and what waits in them; its
//! sessions end in that transaction, and no new send of its own is accepted after it. A grant lifts it. What may
//! be changed, and by whom, is decided by `core::membership::decide_change` inside the transaction.
//!
//! Reading never changes anything: looking at an invitation takes no use (T-70).

use std::future::Future;

use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, InviteId, MemberId, MeshId};
use heddle_core::membership::{Change, ChangeVerdict, PublicKey};
use heddle_core::names::MemberName;

use super::rows::{Credentials, EnrolVerdict, Enrolment, NewInvite, RevokeVerdict, Standing};
use crate::storage::StorageError;

type Answer<T> = Result<T, StorageError>;

pub trait Members: Send + Sync + 'static {
    /// The id of this store: the first that was ever offered.
    fn broker_id(&self, fresh: BrokerId) -> impl Future<Output = Answer<BrokerId>> + Send;

    /// Makes this member an owner under this name and key. The caller is the owner of the store itself,
    /// so another key replaces the one before, also one that it had earlier (a key file that was put
    /// back). True if that changed anything.
    fn enrol_owner(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
        key: PublicKey,
        at: WallMs,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Gives an enrolled member another key. False if it is its key already, or if the key is taken, or
    /// if the member was revoked: then nothing was written.
    fn rotate_key(
        &self,
        mesh: MeshId,
        member: MemberId,
        key: PublicKey,
        at: WallMs,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// What a hello of this member is held against.
    fn credentials(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> impl Future<Output = Answer<Credentials>> + Send;

    /// Every enrolled member, sorted by id, revoked ones too.
    fn standings(&self, mesh: MeshId) -> impl Future<Output = Answer<Vec<Standing>>> + Send;

    /// Keeps an invitation. True if it is new; the same again changes nothing.
    fn create_invite(
        &self,
        mesh: MeshId,
        invite: NewInvite,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// An invitation as it was kept, though it has expired or is used up.
    fn invite(
        &self,
        mesh: MeshId,
        invite: InviteId,
    ) -> impl Future<Output = Answer<Option<NewInvite>>> + Send;

    /// Whether anybody was ever invited.
    fn has_invites(&self, mesh: MeshId) -> impl Future<Output = Answer<bool>> + Send;

    fn enrol(
        &self,
        mesh: MeshId,
        enrolment: Enrolment,
    ) -> impl Future<Output = Answer<EnrolVerdict>> + Send;

    /// Shuts a member out, if `by` is an owner. Owners are not shut out.
    fn revoke(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        at: WallMs,
    ) -> impl Future<Output = Answer<RevokeVerdict>> + Send;

    /// Blocks a member, or gives it a role, if `by` may. A blocked member's sessions end with it.
    fn change_standing(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        change: Change,
        at: WallMs,
    ) -> impl Future<Output = Answer<ChangeVerdict>> + Send;
}
