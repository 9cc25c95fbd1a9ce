//! Publishing a personal mesh to a broker elsewhere: the mesh moves there with its owner, and its rows follow as ops.
//!
//! The order is what makes it safe. The link is cut and held; whatever the old broker still has is fetched first; the
//! new one knows mesh and owner before the config names it, and the config names it before the first row is an op.
//! Before the config is written a crash changes nothing; after it, the next start goes on from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::Clock;
use heddle_core::error_code::ErrorCode;
use heddle_core::membership::MemberKey;
use heddle_core::names::MeshName;
use heddle_store::{BegunPublish, Mesh, MeshKind, Store};
use heddle_wire::broker::{
    RegisterMeshAnswer, RegisterMeshBody, RegisterOwner, RegisterTopic, ReplyResult, Request,
};
use heddle_wire::from_wire::invalid;
use heddle_wire::problem::Problem;

use super::join::blocking;
use super::{claim, config_file, keys};
use crate::config::MeshConfig;
use crate::home::Home;
use crate::link::{Connector, Registration, UrlConnector};
use crate::mesh::MeshState;
use crate::shared::{Shared, store_problem};
use crate::start_error::StartError;

/// How often the old broker may have something left before the mesh counts as too busy to move.
const TRIES_MAX: u32 = 20;
/// Between two tries the link is up again, and fetches what is left.
const BETWEEN: Duration = Duration::from_millis(500);

/// Where the mesh goes.
pub(crate) struct Destination {
    pub(crate) url: String,
    /// The broker's token, presented once.
    pub(crate) token_file: Option<PathBuf>,
    /// The authorities that vouch for it, from now on.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Moves the mesh; what its new broker calls it, or none if it is there already.
pub(crate) async fn publish_to(
    shared: &Shared,
    home: &Path,
    mesh: &MeshState,
    to: Destination,
) -> Result<Option<MeshName>, Problem> {
    claim::check_url(&to.url)?;
    claim::check_ca(&to.url, to.ca_file.as_deref())?;
    let _one = shared.joining.lock().await;
    let connector = mesh.connector().ok_or_else(|| not_ours(mesh))?;
    if !connector.hosts() {
        let there = UrlConnector::new(&to.url).label();
        return if connector.label() == there {
            Ok(None)
        } else {
            Err(not_ours(mesh))
        };
    }
    let head = shared.store.sync_head(mesh.mesh.mesh).await;
    let head = head.map_err(|error| store_problem(&error))?;
    if head.kind != MeshKind::Personal {
        return Err(invalid(format!(
            "mesh {} is shared through this home's own broker, where those who joined look for it",
            mesh.mesh.name
        ))
        .next("Make a mesh for the team with `heddle mesh create`, and publish that one."));
    }
    let key = mesh.identity.key.clone().ok_or_else(|| not_ours(mesh))?;
    for _ in 0..TRIES_MAX {
        refuse_work(mesh).await?;
        mesh.cut.notify_one();
        let held = mesh.linking.lock().await;
        // Nobody but this home speaks to the old broker, and it does not now: what it has not given is all.
        if !has_left(connector.as_ref()).await? {
            let answer = match register(mesh, &to, &key).await {
                Ok(answer) => answer,
                Err(problem) => {
                    drop(held);
                    // Whoever looks at the status next sees the mesh as it was, and not on its way.
                    let _ = tokio::time::timeout(BETWEEN * 6, mesh.wait_connected()).await;
                    return Err(problem);
                }
            };
            let anew = shared.store.reach_anew(mesh.mesh.mesh).await;
            anew.map_err(|error| store_problem(&error))?;
            remember(home, mesh, &to, &answer).await?;
            let connector = UrlConnector::new(&to.url).with_ca_file(to.ca_file);
            mesh.move_to(Arc::new(connector), answer.server_id);
            drop(held);
            tracing::info!(mesh = %mesh.mesh.name, broker = %mesh.broker(), "the mesh has moved");
            return Ok(Some(answer.slug));
        }
        drop(held);
        let _ = tokio::time::timeout(BETWEEN, mesh.wait_connected()).await;
        tokio::time::sleep(BETWEEN).await;
    }
    Err(Problem::new(
        ErrorCode::DaemonBusy,
        "messages keep coming in the mesh, and none may be left behind",
    )
    .next("Let the agents rest for a moment and publish again; nothing was changed."))
}

fn not_ours(mesh: &MeshState) -> Problem {
    invalid(format!(
        "mesh {} is hosted at {}, and moves from there to nowhere",
        mesh.mesh.name,
        mesh.broker()
    ))
    .next("Publish a mesh that this home hosts itself; `heddle mesh list` shows where each is.")
}

/// Work that waits in a queue belongs to the broker that has it.
async fn refuse_work(mesh: &MeshState) -> Result<(), Problem> {
    // A try before this one may have cut it.
    let _ = tokio::time::timeout(BETWEEN * 4, mesh.wait_connected()).await;
    let ReplyResult::QueueCounts { queues } = mesh.ask(Request::QueueCounts).await? else {
        return Ok(());
    };
    let waiting = queues.iter().find(|queue| queue.ready + queue.leased > 0);
    let Some(queue) = waiting else {
        return Ok(());
    };
    let (name, count) = (&queue.queue, queue.ready + queue.leased);
    Err(invalid(format!(
        "{count} messages wait in queue {name}, and work does not move"
    ))
    .next(format!(
        "Have it done first (`heddle queue take {name}`, then ack), and publish again; nothing was changed."
    )))
}

async fn has_left(connector: &dyn Connector) -> Result<bool, Problem> {
    let Some(looking) = connector.holds_any() else {
        return Ok(false);
    };
    looking
        .await
        .map_err(|error| Problem::new(ErrorCode::StorageUnavailable, error.to_string()))
}

async fn register(
    mesh: &MeshState,
    to: &Destination,
    key: &MemberKey,
) -> Result<RegisterMeshAnswer, Problem> {
    let own = mesh.mesh.member;
    let (topics, queues) = mesh.with_known(|known| {
        let topic = |topic: &heddle_wire::broker::RosterTopic| RegisterTopic {
            topic: topic.topic.clone(),
            subscribers: topic
                .subscribers
                .iter()
                .filter(|one| one.member == own)
                .map(|one| one.agent.clone())
                .collect(),
        };
        let topics: Vec<_> = known.roster.topics.iter().map(topic).collect();
        let queues: Vec<_> = known
            .roster
            .queues
            .iter()
            .map(|q| q.queue.clone())
            .collect();
        (topics, queues)
    });
    let body = RegisterMeshBody {
        slug: mesh.mesh.name.clone(),
        kind: Some(MeshKind::SharedOwner.as_str().to_owned()),
        owner: Some(RegisterOwner {
            mesh_id: mesh.mesh.mesh,
            member_id: own,
            member: mesh.mesh.member_name.clone(),
            key: key.public(),
            agents: mesh.own_agents().into_iter().collect(),
            topics,
            queues,
        }),
    };
    let registration = Registration {
        url: &to.url,
        token_file: to.token_file.as_deref(),
        ca_file: to.ca_file.as_deref(),
    };
    registration.send(&body).await
}

async fn remember(
    home: &Path,
    mesh: &MeshState,
    to: &Destination,
    answer: &RegisterMeshAnswer,
) -> Result<(), Problem> {
    let config = MeshConfig {
        name: mesh.mesh.name.clone(),
        url: to.url.clone(),
        token_file: None,
        ca_file: to.ca_file.clone(),
        member: Some(mesh.mesh.member_name.clone()),
        id: Some(mesh.mesh.mesh),
        broker_id: Some(answer.server_id),
        member_id: Some(mesh.mesh.member),
        key_file: Some(keys::file_of(mesh.mesh.mesh)),
    };
    let path = home.join("config.toml");
    let written = blocking(move || config_file::add(&path, &config)).await?;
    written.map_err(|why| {
        Problem::new(ErrorCode::Internal, why)
            .next("Mend the file and publish again; the mesh is still hosted here.")
    })
}

/// At a start: a mesh whose config says that it is elsewhere, while its rows are still for nobody else.
pub(crate) async fn go_on(
    store: &Store,
    mesh: &Mesh,
    home: &Home,
    clock: &dyn Clock,
) -> Result<(), StartError> {
    if store.sync_head(mesh.mesh).await?.kind != MeshKind::Personal {
        return Ok(());
    }
    let rows_max = home.config.daemon.snapshot_rows();
    let begun = store.begin_publish_above(mesh.mesh, clock.wall(), rows_max);
    if let BegunPublish::Fresh(publish) = begun.await? {
        tracing::info!(mesh = %mesh.name, rows = publish.rows_total, "the publish of a mesh that has moved goes on");
    }
    Ok(())
}
