//! Requests of a connection, each to its room: names and subscriptions, status and receipts, queues, the log and its
//! snapshots, members, effects.

use heddle_core::ids::{ClientMessageId, MeshId, Party};
use heddle_core::membership::{Change, Role};
use heddle_core::names::AgentName;
use heddle_wire::broker::{ReplyResult, Request};

use super::{Shared, explain, grants, held, herald, log, people, snapshots, work};
use crate::accept::{Refusal, refused};
use crate::effects::{EffectAsked, nobody_decides};
use crate::limiter::Limiter;
use crate::principal::Principal;
use crate::storage::{Epochs, SendId, Storage, StorageError};

pub(super) async fn answer<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> ReplyResult {
    let is_quiet = matches!(
        request,
        Request::Receipts { .. }
            | Request::CreateInvite { .. }
            | Request::Effect { .. }
            | Request::SnapshotBegin { .. }
            | Request::SnapshotCommit { .. }
            | Request::UploadBegin { .. }
            | Request::UploadChunk { .. }
            | Request::UploadCommit { .. }
    );
    let changes_roster = !is_quiet;
    match carry_out(shared, principal, request).await {
        Ok(result) => {
            if changes_roster && matches!(result, ReplyResult::Ok { changed: true }) {
                shared.roster_changed(principal.mesh, None);
            }
            result
        }
        Err(error) => ReplyResult::Refused(refused(Refusal::from(error))),
    }
}

/// A connection acts for its own member only: the member of every row is the one that was proven.
async fn carry_out<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> Result<ReplyResult, StorageError> {
    let storage = shared.storage();
    let mesh = principal.mesh;
    let own = |agent: AgentName| Party {
        member: principal.member,
        agent,
    };
    let changed = match request {
        Request::RegisterAgent { agent } => storage.register_agent(mesh, &own(agent)).await?,
        Request::CreateTopic { topic } => storage.create_topic(mesh, &topic).await?,
        Request::CreateQueue { queue } => storage.create_queue(mesh, &queue).await?,
        Request::Subscribe { topic, agent } => storage.subscribe(mesh, &topic, &own(agent)).await?,
        Request::Unsubscribe { topic, agent } => {
            storage.unsubscribe(mesh, &topic, &own(agent)).await?
        }
        Request::Receipts { items } => explain::receipts(shared, principal, items).await?,
        Request::MessageStatus {
            agent,
            client_message_id,
        } => return status(shared, principal, own(agent), client_message_id).await,
        Request::Explain {
            agent,
            client_message_id,
        } => {
            let id = SendId::new(mesh, own(agent), client_message_id);
            return explain::explain(shared, mesh, id).await;
        }
        request @ Request::Effect { .. } => return Ok(decide(shared, principal, request).await),
        Request::Roster => {
            let roster = herald::roster(shared, mesh).await?;
            return Ok(ReplyResult::Roster { roster });
        }
        // The lane's affair: it knows the connection.
        Request::BlobRead { .. } => return Ok(ReplyResult::Absent),
        Request::LogRead { after, limit } => {
            return log::read(shared, principal, after, limit).await;
        }
        request @ (Request::SnapshotBegin { .. }
        | Request::SnapshotCommit { .. }
        | Request::UploadBegin { .. }
        | Request::UploadChunk { .. }
        | Request::UploadCommit { .. }) => {
            return snapshots::answer(shared, principal, request).await;
        }
        Request::Epochs => return epochs(shared, mesh).await,
        request @ (Request::CreateInvite { .. }
        | Request::RevokeMember { .. }
        | Request::BlockMember { .. }
        | Request::GrantMember { .. }
        | Request::ChangeGrant(_)
        | Request::Grants
        | Request::Members) => return about_members(shared, principal, request).await,
        Request::QueueCounts => return work::counts(shared, mesh).await,
        Request::Held { after, limit } => {
            return held::page(shared, principal, after, limit).await;
        }
        request @ (Request::QueueTake { .. }
        | Request::QueueAck { .. }
        | Request::QueueRelease { .. }
        | Request::QueueRenew { .. }) => return on_a_queue(shared, principal, request).await,
    };
    Ok(ReplyResult::Ok { changed })
}

/// Asks whoever decides about the effects of the mesh.
async fn decide<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> ReplyResult {
    match (shared.effects.get(), request) {
        (
            Some(authority),
            Request::Effect {
                agent,
                id,
                seen,
                call,
            },
        ) => {
            let call = *call;
            let asked = EffectAsked {
                agent,
                id,
                seen,
                call,
            };
            authority.call(principal.clone(), asked).await
        }
        _ => nobody_decides(),
    }
}

async fn epochs<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    mesh: MeshId,
) -> Result<ReplyResult, StorageError> {
    let Epochs { epoch, ends, holes } = shared.storage().epochs(mesh).await?;
    Ok(ReplyResult::Epochs { epoch, ends, holes })
}

/// Who is in the mesh, and who may what.
async fn about_members<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> Result<ReplyResult, StorageError> {
    match request {
        Request::CreateInvite { link } => people::create_invite(shared, principal, &link).await,
        Request::RevokeMember { member } => people::revoke(shared, principal, member).await,
        Request::BlockMember { member } => {
            people::change(shared, principal, member, Change::Block).await
        }
        Request::GrantMember { member, role } => match Role::parse(&role) {
            Some(role) => people::change(shared, principal, member, Change::Grant(role)).await,
            None => Ok(people::unknown_role()),
        },
        Request::ChangeGrant(ask) => grants::change(shared, principal, &ask).await,
        Request::Grants => grants::list(shared, principal).await,
        // Nothing else is handed here.
        _ => people::members(shared, principal).await,
    }
}

/// What consumers ask of a queue.
async fn on_a_queue<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    request: Request,
) -> Result<ReplyResult, StorageError> {
    let mesh = principal.mesh;
    let own = |agent: AgentName| Party {
        member: principal.member,
        agent,
    };
    match request {
        Request::QueueTake {
            queue,
            agent,
            max,
            lease_ms,
            // The lane's affair: it knows the connection.
            wake: _,
        } => work::take(shared, mesh, &queue, own(agent), (max, lease_ms)).await,
        Request::QueueAck {
            queue,
            agent,
            items,
        } => work::ack(shared, mesh, &queue, &own(agent), items).await,
        Request::QueueRelease {
            queue,
            agent,
            items,
        } => work::release(shared, mesh, &queue, &own(agent), items).await,
        Request::QueueRenew {
            queue,
            agent,
            items,
            lease_ms,
        } => work::renew(shared, mesh, &queue, own(agent), (items, lease_ms)).await,
        // Nothing else is handed here.
        _ => Ok(ReplyResult::Ok { changed: false }),
    }
}

async fn status<S: Storage, L: Limiter>(
    shared: &Shared<S, L>,
    principal: &Principal,
    sender: Party,
    client_message_id: ClientMessageId,
) -> Result<ReplyResult, StorageError> {
    let id = SendId::new(principal.mesh, sender, client_message_id);
    let consumed = shared.storage().status(principal.mesh, id).await?;
    Ok(
        consumed.map_or(ReplyResult::Absent, |consumed| ReplyResult::Committed {
            broker_message_id: consumed.broker_message_id,
            history_id: consumed.history_id,
            wire_fingerprint: consumed.wire_fingerprint.to_hex(),
        }),
    )
}
