//! Invitations under an idempotency key: the link is kept before the broker hears of it, so that a retry,
//! whatever happened to the first, is the same invitation and not a second one. Meshes that were made here have
//! their keys among those of the mesh that every home has; their link is empty.

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, MeshId};
use rusqlite::{Connection, params};

use crate::cells::Cells;
use crate::error::StoreError;
use crate::store::Store;

/// What a key was used for.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptInvite {
    pub fingerprint: Fingerprint,
    pub made_at: WallMs,
    /// A secret.
    pub link: String,
}

pub(crate) const KEEP: &str = "
    INSERT INTO invite_key (mesh_id, request_key, fingerprint, made_at, link)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (mesh_id, request_key) DO NOTHING";

pub(crate) const KEPT: &str = "
    SELECT request_key, fingerprint, made_at, link FROM invite_key
    WHERE mesh_id = ?1 AND request_key = ?2";

impl Store {
    /// Keeps an invitation under a free key; what is kept under it then, and whether that is this one.
    pub async fn keep_invite(
        &self,
        mesh: MeshId,
        key: ClientMessageId,
        new: KeptInvite,
    ) -> Result<(KeptInvite, bool), StoreError> {
        self.write(move |connection| {
            let inserted = connection.prepare_cached(KEEP)?.execute(params![
                mesh.0.to_bytes(),
                key.as_str(),
                new.fingerprint.0,
                new.made_at.0,
                new.link,
            ])?;
            let kept = kept(connection, mesh, &key)?;
            let kept = kept.ok_or_else(|| {
                StoreError::Corrupt("an invitation is gone right after its insert".to_owned())
            })?;
            Ok((kept, inserted > 0))
        })
        .await
    }
}

impl Store {
    /// What a key was used for; `None` where it is free.
    pub async fn kept_invite(
        &self,
        mesh: MeshId,
        key: ClientMessageId,
    ) -> Result<Option<KeptInvite>, StoreError> {
        self.read_few(move |connection| kept(connection, mesh, &key))
            .await
    }
}

fn kept(
    connection: &Connection,
    mesh: MeshId,
    key: &ClientMessageId,
) -> Result<Option<KeptInvite>, StoreError> {
    let mut statement = connection.prepare_cached(KEPT)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut cells = Cells::of("invite_key", row);
    let _: String = cells.get()?;
    Ok(Some(KeptInvite {
        fingerprint: cells.fingerprint()?,
        made_at: cells.wall()?,
        link: cells.get()?,
    }))
}
