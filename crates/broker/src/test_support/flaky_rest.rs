//! What a failing store passes through untouched: the log, members, presence, queues, stories, upkeep.

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::ids::{BrokerId, HistoryId, InviteId, MemberId, MeshId, OpId, Party};
use heddle_core::membership::{Capabilities, Change, ChangeVerdict, GrantChange, PublicKey};
use heddle_core::names::{MemberName, MeshName, QueueName};
use heddle_core::witness::Witness;
use heddle_core::work::{Settle, Settled};

use super::Flaky;
use crate::members::{
    Credentials, EnrolVerdict, Enrolment, Granted, Grants, Members, NewInvite, RevokeVerdict,
    Standing,
};
use crate::storage::{
    Epochs, Explanation, Job, JobClaim, LeaseMs, Leased, LeftOut, Log, LogPage, MendedLog,
    OpenSnapshot, Orphan, PageLimit, Parted, Parts, Presence, Present, Queues, Receipt, SendId,
    SnapshotVerdict, Snapshots, Storage, StorageError, Story, Taken, Taker, Upkeep, UploadEnd,
    UploadPart, UploadVerdict, Uploads, Wakes,
};

type Answer<T> = Result<T, StorageError>;

impl<S: Storage> Log for Flaky<S> {
    async fn log_after(&self, mesh: MeshId, after: HistoryId, limit: PageLimit) -> Answer<LogPage> {
        self.inner.log_after(mesh, after, limit).await
    }

    async fn epochs(&self, mesh: MeshId) -> Answer<Epochs> {
        self.inner.epochs(mesh).await
    }

    async fn bump_epoch(&self, mesh: MeshId) -> Answer<u64> {
        self.inner.bump_epoch(mesh).await
    }

    async fn part(&self, mesh: MeshId, seen: Vec<Witness>) -> Answer<Option<Parted>> {
        self.inner.part(mesh, seen).await
    }

    async fn mend_log(&self, mesh: MeshId, at: HistoryId) -> Answer<Option<MendedLog>> {
        self.inner.mend_log(mesh, at).await
    }
}

impl<S: Storage> Snapshots for Flaky<S> {
    async fn begin_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Answer<SnapshotVerdict> {
        self.inner.begin_snapshot(mesh, id, by).await
    }

    async fn commit_snapshot(
        &self,
        mesh: MeshId,
        id: OpId,
        by: MemberId,
    ) -> Answer<SnapshotVerdict> {
        self.inner.commit_snapshot(mesh, id, by).await
    }

    async fn open_snapshot(&self, mesh: MeshId) -> Answer<Option<OpenSnapshot>> {
        self.inner.open_snapshot(mesh).await
    }
}

impl<S: Storage> Uploads for Flaky<S> {
    async fn begin_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        now: WallMs,
    ) -> Answer<UploadVerdict> {
        self.inner.begin_upload(mesh, by, id, now).await
    }

    async fn stage_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        part: UploadPart,
    ) -> Answer<UploadVerdict> {
        self.inner.stage_upload(mesh, by, id, part).await
    }

    async fn commit_upload(
        &self,
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        end: UploadEnd,
    ) -> Answer<UploadVerdict> {
        self.inner.commit_upload(mesh, by, id, end).await
    }

    async fn ending_upload(&self, mesh: MeshId, by: MemberId) -> Answer<Option<(OpId, u64)>> {
        self.inner.ending_upload(mesh, by).await
    }

    async fn upload_left_out(&self, mesh: MeshId, by: MemberId, id: OpId) -> Answer<LeftOut> {
        self.inner.upload_left_out(mesh, by, id).await
    }

    async fn sweep_uploads(&self, mesh: MeshId, before: WallMs) -> Answer<usize> {
        self.inner.sweep_uploads(mesh, before).await
    }
}

impl<S: Storage> Members for Flaky<S> {
    async fn broker_id(&self, fresh: BrokerId) -> Answer<BrokerId> {
        self.inner.broker_id(fresh).await
    }

    async fn enrol_owner(
        &self,
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
        key: PublicKey,
        at: WallMs,
    ) -> Answer<bool> {
        self.inner.enrol_owner(mesh, member, name, key, at).await
    }

    async fn rotate_key(
        &self,
        mesh: MeshId,
        member: MemberId,
        key: PublicKey,
        at: WallMs,
    ) -> Answer<bool> {
        self.inner.rotate_key(mesh, member, key, at).await
    }

    async fn credentials(&self, mesh: MeshId, member: MemberId) -> Answer<Credentials> {
        self.inner.credentials(mesh, member).await
    }

    async fn standings(&self, mesh: MeshId) -> Answer<Vec<Standing>> {
        self.inner.standings(mesh).await
    }

    async fn create_invite(&self, mesh: MeshId, invite: NewInvite) -> Answer<bool> {
        self.inner.create_invite(mesh, invite).await
    }

    async fn invite(&self, mesh: MeshId, invite: InviteId) -> Answer<Option<NewInvite>> {
        self.inner.invite(mesh, invite).await
    }

    async fn has_invites(&self, mesh: MeshId) -> Answer<bool> {
        self.inner.has_invites(mesh).await
    }

    async fn enrol(&self, mesh: MeshId, enrolment: Enrolment) -> Answer<EnrolVerdict> {
        self.inner.enrol(mesh, enrolment).await
    }

    async fn revoke(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        at: WallMs,
    ) -> Answer<RevokeVerdict> {
        self.inner.revoke(mesh, by, member, at).await
    }

    async fn change_standing(
        &self,
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        change: Change,
        at: WallMs,
    ) -> Answer<ChangeVerdict> {
        let inner = &self.inner;
        inner.change_standing(mesh, by, member, change, at).await
    }
}

impl<S: Storage> Grants for Flaky<S> {
    async fn change_grant(
        &self,
        mesh: MeshId,
        member: MemberId,
        peer: MemberId,
        change: GrantChange,
    ) -> Answer<Granted> {
        self.inner.change_grant(mesh, member, peer, change).await
    }

    async fn grants(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Answer<Vec<(MemberId, Capabilities)>> {
        self.inner.grants(mesh, member).await
    }
}

impl<S: Storage> Presence for Flaky<S> {
    async fn begin_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        since: WallMs,
        until: LeaseMs,
    ) -> Answer<u64> {
        self.inner.begin_session(mesh, member, since, until).await
    }

    async fn renew_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        until: LeaseMs,
    ) -> Answer<bool> {
        self.inner
            .renew_session(mesh, member, generation, until)
            .await
    }

    async fn end_session(
        &self,
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        at: WallMs,
    ) -> Answer<bool> {
        self.inner.end_session(mesh, member, generation, at).await
    }

    async fn expire_sessions(&self, mesh: MeshId, now: LeaseMs, at: WallMs) -> Answer<usize> {
        self.inner.expire_sessions(mesh, now, at).await
    }

    async fn presence(&self, mesh: MeshId, now: LeaseMs) -> Answer<Vec<Present>> {
        self.inner.presence(mesh, now).await
    }

    async fn pass_lease_time(&self, mesh: MeshId, now: LeaseMs) -> Answer<LeaseMs> {
        self.inner.pass_lease_time(mesh, now).await
    }

    async fn lease_time(&self, mesh: MeshId) -> Answer<LeaseMs> {
        self.inner.lease_time(mesh).await
    }
}

impl<S: Storage> Queues for Flaky<S> {
    async fn create_queue(&self, mesh: MeshId, queue: &QueueName) -> Answer<bool> {
        self.inner.create_queue(mesh, queue).await
    }

    async fn queue_take(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        limit: PageLimit,
    ) -> Answer<Vec<Taken>> {
        self.inner.queue_take(mesh, queue, taker, limit).await
    }

    async fn queue_renew(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        items: Vec<Leased>,
    ) -> Answer<Vec<Settled>> {
        self.inner.queue_renew(mesh, queue, taker, items).await
    }

    async fn queue_settle(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        agent: &Party,
        settle: (Settle, Vec<Leased>),
        at: WallMs,
    ) -> Answer<Vec<Settled>> {
        self.inner
            .queue_settle(mesh, queue, agent, settle, at)
            .await
    }

    async fn queue_hold_back(
        &self,
        mesh: MeshId,
        queue: &QueueName,
        items: Vec<Leased>,
    ) -> Answer<()> {
        self.inner.queue_hold_back(mesh, queue, items).await
    }
}

impl<S: Storage> Story for Flaky<S> {
    async fn receipts(&self, mesh: MeshId, member: MemberId, items: Vec<Receipt>) -> Answer<usize> {
        self.inner.receipts(mesh, member, items).await
    }

    async fn explain(&self, mesh: MeshId, id: SendId) -> Answer<Option<Explanation>> {
        self.inner.explain(mesh, id).await
    }

    async fn mentions_after(
        &self,
        mesh: MeshId,
        agent: &Party,
        after: HistoryId,
        rows_max: usize,
    ) -> Answer<Vec<HistoryId>> {
        self.inner
            .mentions_after(mesh, agent, after, rows_max)
            .await
    }
}

impl<S: Storage> Upkeep for Flaky<S> {
    async fn meshes(&self) -> Answer<Vec<(MeshId, MeshName)>> {
        self.inner.meshes().await
    }

    async fn claim_job(&self, wanted: JobClaim) -> Answer<Option<(String, WallMs)>> {
        self.inner.claim_job(wanted).await
    }

    async fn release_job(&self, mesh: MeshId, job: Job, holder: &str) -> Answer<()> {
        self.inner.release_job(mesh, job, holder).await
    }

    async fn age(&self, mesh: MeshId) -> Answer<Option<AgeMark>> {
        self.inner.age(mesh).await
    }

    async fn keep_age(
        &self,
        mesh: MeshId,
        mark: AgeMark,
        births_from: Duration,
    ) -> Answer<Duration> {
        self.inner.keep_age(mesh, mark, births_from).await
    }

    async fn sweep_expired(&self, mesh: MeshId, age: Duration) -> Answer<usize> {
        self.inner.sweep_expired(mesh, age).await
    }

    async fn prune_messages(&self, mesh: MeshId, born: Duration) -> Answer<usize> {
        self.inner.prune_messages(mesh, born).await
    }

    async fn count_traffic(&self, mesh: MeshId) -> Answer<u64> {
        self.inner.count_traffic(mesh).await
    }

    async fn traffic(&self, mesh: MeshId) -> Answer<Vec<(WallMs, u64)>> {
        self.inner.traffic(mesh).await
    }

    async fn orphan_check(&self, mesh: MeshId) -> Answer<Vec<Orphan>> {
        self.inner.orphan_check(mesh).await
    }

    async fn effect_rows(&self, mesh: MeshId) -> Answer<u64> {
        self.inner.effect_rows(mesh).await
    }
}

impl<S: Storage> Wakes for Flaky<S> {}

impl<S: Storage> Parts for Flaky<S> {}
