//! Opens the store of a home and makes it ready: what a start finds damaged is mended by the same start.

use heddle_core::names::MeshName;
use heddle_store::{Store, StoreError, StoreOptions};

use crate::config::HOME_MESH;
use crate::home::Home;
use crate::run::StartOptions;

/// Opened, and with what was on its way when the last process ended back in its place.
pub(crate) async fn open_store(home: &Home, options: &StartOptions) -> Result<Store, StoreError> {
    let store_options = StoreOptions {
        path: home.data(),
        durability: options.durability,
        vfs: None,
    };
    let now = options.clock.wall();
    let (store, _) = Store::open_or_park(store_options.clone(), now)?;
    match make_ready(&store, options).await {
        Ok(()) => Ok(store),
        // The file was closed in order and damaged afterwards, where the look at the start did not go.
        Err(error) if store.poisoned().is_some() => {
            tracing::warn!(%error, "data.db is damaged; all of it is checked now");
            store.stop();
            drop(store);
            let (store, _) = Store::reopen_damaged(store_options, now)?;
            make_ready(&store, options).await?;
            Ok(store)
        }
        Err(error) => Err(error),
    }
}

async fn make_ready(store: &Store, options: &StartOptions) -> Result<(), StoreError> {
    // What a start reads is looked at by one rule: what it could not read has one way out.
    store.refuse_spoilt().await?;
    // IMPORTANT: before the meshes are made sure of, which would begin a new one over what is there.
    store.refuse_lost_mesh(home_name()?).await?;
    // Before anything is sent: what was on its way when the last process ended goes back.
    let recovered = store.recover(options.clock.wall()).await?;
    if recovered > 0 {
        tracing::info!(
            recovered,
            "rows were in flight at the last end; they are pending again"
        );
    }
    // The reads that a start needs: better now than behind the open door.
    store.last_arrival().await?;
    store.figures().await?;
    store.outbox_parked().await.map(drop)
}

/// What the mesh is called that every home has.
pub(crate) fn home_name() -> Result<MeshName, StoreError> {
    MeshName::parse(HOME_MESH).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Why a store that takes nothing more ends the daemon, and what to do about it.
pub(crate) fn last_words(why: &str) -> String {
    if is_damage(why) {
        format!(
            "data.db is damaged ({why}); what was acknowledged before is safe. Start again: the start checks the file, makes a damaged index for searching anew, and sets a damaged inbox aside"
        )
    } else if heddle_store::is_out_of_place(why) {
        format!(
            "{why}, so nothing that this process wrote would outlive it. Put the file back, from where it was moved or from a copy (`heddle daemon restore`), then start again"
        )
    } else {
        format!(
            "the disk refused a sync ({why}); what was acknowledged before is safe. Check the disk, then start again"
        )
    }
}

/// In SQLite's words; its code is behind us by now.
pub fn is_damage(why: &str) -> bool {
    why.contains("malformed") || why.contains("not a database")
}
