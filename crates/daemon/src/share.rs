//! Puts together what the parts of a daemon have in common, from a home, its stores and its links.

use std::sync::{Arc, Mutex};

use heddle_core::names::AgentName;
use heddle_store::{Blobs, Store};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::files::gone::Gone;
use crate::home::Home;
use crate::hooks::Tokens;
use crate::inbox;
use crate::link::Connector;
use crate::membership::Link;
use crate::meshes::Meshes;
use crate::outbox::disk;
use crate::run::StartOptions;
use crate::shared::Shared;
use crate::start_error::StartError;
use crate::tasks::Activity;
use crate::upkeep::unreadable::Suspect;
use crate::vectors::Embedder;

/// What the parts of the daemon have in common.
pub(crate) async fn share(
    home: &Home,
    (store, blobs): (Store, Blobs),
    (options, person): (&StartOptions, AgentName),
    (links, host): (Vec<Link>, Option<Arc<dyn Connector>>),
) -> Result<Arc<Shared>, StartError> {
    let meshes = Meshes::default();
    for link in links {
        let name = link.mesh.name.to_string();
        if !meshes.push(Arc::new(link.load(&store).await?)) {
            return Err(StartError::Mesh {
                mesh: name,
                why: "this home has as many meshes as it can have".to_owned(),
            });
        }
    }
    let last_arrival = store.last_arrival().await?;
    let outbox = &home.config.outbox;
    let shutdown = CancellationToken::new();
    let embedder = Embedder::new(
        home.config.vectors.clone(),
        home.path().to_owned(),
        options.vectors_key.clone(),
        shutdown.clone(),
    );
    Ok(Arc::new(Shared {
        home: home.path().to_owned(),
        host,
        embedder,
        store,
        blobs,
        file_deleted: Notify::new(),
        clock: Arc::clone(&options.clock),
        ids: Arc::clone(&options.ids),
        meshes,
        person,
        links: Mutex::default(),
        joining: tokio::sync::Mutex::default(),
        max_age_hours_override: outbox.max_age_hours_override,
        age: Mutex::default(),
        left: home.config.left.clone(),
        snapshot_rows: home.config.daemon.snapshot_rows(),
        cold_start_ms: std::sync::OnceLock::new(),
        arrivals: watch::Sender::new(last_arrival),
        events: Events::default(),
        hook_tokens: Tokens::default(),
        parked: Store::parked_files(&home.data()),
        old_files: Store::damaged_files(&home.data()),
        looked: Mutex::new(None),
        damage: inbox::damage::Damage::default(),
        inbox_retention: home.config.inbox.retention(),
        disk: disk::Disk::new(home.path().to_owned(), outbox.disk_budget_mb),
        unreadable: Suspect::default(),
        gone: Gone::default(),
        tasks: Activity::new(options.ids.uuid_v7().as_u128()),
        shutdown,
        fatal: Mutex::new(None),
    }))
}
