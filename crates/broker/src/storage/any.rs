//! A store that is one of the two that a process serves: chosen when it starts, asked through one type from then on.
//!
//! So the broker behind it is compiled once, and not once for each database. It adds nothing and decides nothing: every
//! operation is handed on as it is. It runs the suite of the stores like each of them, so that none is forgotten here.

use std::time::Duration;

use heddle_core::age::AgeMark;
use heddle_core::clock::WallMs;
use heddle_core::envelope::Priority;
use heddle_core::ids::{BrokerId, HistoryId, InviteId, MemberId, MeshId, OpId, Party};
use heddle_core::membership::{Capabilities, Change, ChangeVerdict, GrantChange, PublicKey};
use heddle_core::names::{MemberName, MeshName, QueueName, TopicName};
use heddle_core::witness::Witness;
use heddle_core::work::{Settle, Settled};

use super::contract::{Answer, Storage};
use super::{
    Accepted, Ack, Consumed, Delivery, DeliveryCursor, DeliveryPlace, Epochs, Explanation,
    HeldPage, Hint, HistoryRow, Job, JobClaim, LeaseMs, Leased, LeftOut, Log, LogPage, Look,
    MendedLog, NewMessage, OpenSnapshot, Orphan, PageLimit, PartAsk, Parted, Parts,
    PostgresStorage, Presence, Present, QueueCount, Queues, Receipt, Roster, Seen, SendId,
    SnapshotVerdict, Snapshots, SqliteStorage, StorageError, Story, Taken, Taker, Upkeep,
    UploadEnd, UploadPart, UploadVerdict, Uploads, Wakes,
};
use crate::members::{
    Credentials, EnrolVerdict, Enrolment, Granted, Grants, Members, NewInvite, RevokeVerdict,
    Standing,
};

/// The file of one process, or the database that several share.
#[derive(Clone)]
pub enum AnyStorage {
    Sqlite(SqliteStorage),
    Postgres(PostgresStorage),
}

/// The operations of one trait, handed on.
macro_rules! hand_on {
    ($trait:ident { $(fn $name:ident($($given:ident: $type:ty),* $(,)?) -> $answer:ty;)* }) => {
        impl $trait for AnyStorage {
            $(
                async fn $name(&self, $($given: $type),*) -> $answer {
                    match self {
                        Self::Sqlite(storage) => $trait::$name(storage, $($given),*).await,
                        Self::Postgres(storage) => $trait::$name(storage, $($given),*).await,
                    }
                }
            )*
        }
    };
}

impl Wakes for AnyStorage {
    fn is_shared(&self) -> bool {
        match self {
            Self::Sqlite(storage) => storage.is_shared(),
            Self::Postgres(storage) => storage.is_shared(),
        }
    }

    fn seen(&self) -> Option<&Seen> {
        match self {
            Self::Sqlite(storage) => storage.seen(),
            Self::Postgres(storage) => storage.seen(),
        }
    }

    fn tell(&self, hint: Hint) {
        match self {
            Self::Sqlite(storage) => storage.tell(hint),
            Self::Postgres(storage) => storage.tell(hint),
        }
    }

    async fn heard(&self) -> Hint {
        match self {
            Self::Sqlite(storage) => storage.heard().await,
            Self::Postgres(storage) => storage.heard().await,
        }
    }
}

hand_on!(Storage {
    fn ensure_mesh(mesh: MeshId, name: &MeshName) -> Answer<bool>;
    fn mesh_named(name: &MeshName, fresh: MeshId) -> Answer<(MeshId, bool)>;
    fn mesh_name(mesh: MeshId) -> Answer<MeshName>;
    fn ensure_member(mesh: MeshId, member: MemberId, name: &MemberName) -> Answer<bool>;
    fn register_agent(mesh: MeshId, agent: &Party) -> Answer<bool>;
    fn create_topic(mesh: MeshId, topic: &TopicName) -> Answer<bool>;
    fn subscribe(mesh: MeshId, topic: &TopicName, agent: &Party) -> Answer<bool>;
    fn unsubscribe(mesh: MeshId, topic: &TopicName, agent: &Party) -> Answer<bool>;
    fn roster(mesh: MeshId) -> Answer<Roster>;
    fn known(mesh: MeshId, ids: Vec<SendId>) -> Answer<Vec<Look>>;
    fn status(mesh: MeshId, id: SendId) -> Answer<Option<Consumed>>;
    fn accept(mesh: MeshId, messages: Vec<NewMessage>) -> Answer<Vec<Accepted>>;
    fn deliveries_after(
        mesh: MeshId,
        member: MemberId,
        after: DeliveryCursor,
        limit: PageLimit,
    ) -> Answer<Vec<Delivery>>;
    fn ack(mesh: MeshId, member: MemberId, items: Vec<Ack>, at: WallMs) -> Answer<usize>;
    fn epoch(mesh: MeshId) -> Answer<u64>;
    fn raise_epoch_beyond(mesh: MeshId, seen: HistoryId) -> Answer<bool>;
    fn history_after(mesh: MeshId, after: HistoryId, rows_max: usize) -> Answer<Vec<HistoryRow>>;
});

hand_on!(Log {
    fn log_after(mesh: MeshId, after: HistoryId, limit: PageLimit) -> Answer<LogPage>;
    fn epochs(mesh: MeshId) -> Answer<Epochs>;
    fn bump_epoch(mesh: MeshId) -> Answer<u64>;
    fn part(mesh: MeshId, seen: Vec<Witness>) -> Answer<Option<Parted>>;
    fn mend_log(mesh: MeshId, at: HistoryId) -> Answer<Option<MendedLog>>;
});

hand_on!(Parts {
    fn leave_part(ask: PartAsk, data: Vec<u8>) -> Result<(), StorageError>;
    fn take_part(ask: PartAsk) -> Result<Option<Vec<u8>>, StorageError>;
});

hand_on!(Presence {
    fn begin_session(mesh: MeshId, member: MemberId, since: WallMs, until: LeaseMs) -> Answer<u64>;
    fn renew_session(
        mesh: MeshId,
        member: MemberId,
        generation: u64,
        until: LeaseMs,
    ) -> Answer<bool>;
    fn end_session(mesh: MeshId, member: MemberId, generation: u64, at: WallMs) -> Answer<bool>;
    fn expire_sessions(mesh: MeshId, now: LeaseMs, at: WallMs) -> Answer<usize>;
    fn presence(mesh: MeshId, now: LeaseMs) -> Answer<Vec<Present>>;
    fn lease_time(mesh: MeshId) -> Answer<LeaseMs>;
    fn pass_lease_time(mesh: MeshId, now: LeaseMs) -> Answer<LeaseMs>;
});

hand_on!(Queues {
    fn create_queue(mesh: MeshId, queue: &QueueName) -> Answer<bool>;
    fn queue_take(
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        limit: PageLimit,
    ) -> Answer<Vec<Taken>>;
    fn queue_renew(
        mesh: MeshId,
        queue: &QueueName,
        taker: Taker,
        items: Vec<Leased>,
    ) -> Answer<Vec<Settled>>;
    fn queue_settle(
        mesh: MeshId,
        queue: &QueueName,
        agent: &Party,
        settle: (Settle, Vec<Leased>),
        at: WallMs,
    ) -> Answer<Vec<Settled>>;
    fn queue_hold_back(mesh: MeshId, queue: &QueueName, items: Vec<Leased>) -> Answer<()>;
    fn queue_counts(mesh: MeshId, now: LeaseMs) -> Answer<Vec<QueueCount>>;
});

hand_on!(Snapshots {
    fn begin_snapshot(mesh: MeshId, id: OpId, by: MemberId) -> Answer<SnapshotVerdict>;
    fn commit_snapshot(mesh: MeshId, id: OpId, by: MemberId) -> Answer<SnapshotVerdict>;
    fn open_snapshot(mesh: MeshId) -> Answer<Option<OpenSnapshot>>;
});

hand_on!(Story {
    fn receipts(mesh: MeshId, member: MemberId, items: Vec<Receipt>) -> Answer<usize>;
    fn explain(mesh: MeshId, id: SendId) -> Answer<Option<Explanation>>;
    fn mentions_after(
        mesh: MeshId,
        agent: &Party,
        after: HistoryId,
        rows_max: usize,
    ) -> Answer<Vec<HistoryId>>;
    fn deliveries_held(
        mesh: MeshId,
        member: MemberId,
        after: (Priority, DeliveryPlace),
        limit: PageLimit,
    ) -> Answer<HeldPage>;
});

hand_on!(Upkeep {
    fn meshes() -> Answer<Vec<(MeshId, MeshName)>>;
    fn claim_job(wanted: JobClaim) -> Answer<Option<(String, WallMs)>>;
    fn release_job(mesh: MeshId, job: Job, holder: &str) -> Answer<()>;
    fn age(mesh: MeshId) -> Answer<Option<AgeMark>>;
    fn keep_age(mesh: MeshId, mark: AgeMark, births_from: Duration) -> Answer<Duration>;
    fn sweep_expired(mesh: MeshId, age: Duration) -> Answer<usize>;
    fn prune_messages(mesh: MeshId, born: Duration) -> Answer<usize>;
    fn count_traffic(mesh: MeshId) -> Answer<u64>;
    fn traffic(mesh: MeshId) -> Answer<Vec<(WallMs, u64)>>;
    fn orphan_check(mesh: MeshId) -> Answer<Vec<Orphan>>;
    fn effect_rows(mesh: MeshId) -> Answer<u64>;
});

hand_on!(Uploads {
    fn begin_upload(mesh: MeshId, by: MemberId, id: OpId, now: WallMs) -> Answer<UploadVerdict>;
    fn stage_upload(
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        part: UploadPart,
    ) -> Answer<UploadVerdict>;
    fn commit_upload(
        mesh: MeshId,
        by: MemberId,
        id: OpId,
        end: UploadEnd,
    ) -> Answer<UploadVerdict>;
    fn ending_upload(mesh: MeshId, by: MemberId) -> Answer<Option<(OpId, u64)>>;
    fn upload_left_out(mesh: MeshId, by: MemberId, id: OpId) -> Answer<LeftOut>;
    fn sweep_uploads(mesh: MeshId, before: WallMs) -> Answer<usize>;
});

hand_on!(Members {
    fn broker_id(fresh: BrokerId) -> Answer<BrokerId>;
    fn enrol_owner(
        mesh: MeshId,
        member: MemberId,
        name: &MemberName,
        key: PublicKey,
        at: WallMs,
    ) -> Answer<bool>;
    fn rotate_key(mesh: MeshId, member: MemberId, key: PublicKey, at: WallMs) -> Answer<bool>;
    fn credentials(mesh: MeshId, member: MemberId) -> Answer<Credentials>;
    fn standings(mesh: MeshId) -> Answer<Vec<Standing>>;
    fn create_invite(mesh: MeshId, invite: NewInvite) -> Answer<bool>;
    fn invite(mesh: MeshId, invite: InviteId) -> Answer<Option<NewInvite>>;
    fn has_invites(mesh: MeshId) -> Answer<bool>;
    fn enrol(mesh: MeshId, enrolment: Enrolment) -> Answer<EnrolVerdict>;
    fn revoke(mesh: MeshId, by: MemberId, member: MemberId, at: WallMs) -> Answer<RevokeVerdict>;
    fn change_standing(
        mesh: MeshId,
        by: MemberId,
        member: MemberId,
        change: Change,
        at: WallMs,
    ) -> Answer<ChangeVerdict>;
});

hand_on!(Grants {
    fn change_grant(
        mesh: MeshId,
        member: MemberId,
        peer: MemberId,
        change: GrantChange,
    ) -> Answer<Granted>;
    fn grants(mesh: MeshId, member: MemberId) -> Answer<Vec<(MemberId, Capabilities)>>;
});
