//! Storing, deleting and moving vectors, here and from elsewhere.

use heddle_core::data::DataKey;
use heddle_core::ids::MeshId;
use heddle_core::lamport::{PeerId, Stamp};
use heddle_core::limits::VECTOR_MODELS_MAX;
use heddle_core::lww::Merge;
use heddle_core::op::{DataOp, NewVector, OpBody, VectorChange};
use heddle_core::vector::ModelFingerprint;
use rusqlite::{Connection, params};

use super::models;
use super::rows::{self, Live, Written};
use crate::data::request::{Applied, ChangeKey, Plan, apply};
use crate::data::seal::{VECTORS, vector_head};
use crate::data::take::Taken;
use crate::error::StoreError;
use crate::store::Store;

/// A vector under a new model, in the place of one that was read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorMove {
    pub key: DataKey,
    pub from: ModelFingerprint,
    /// The row that was read; another one by now is left alone.
    pub stamp: Stamp,
    pub new: NewVector,
}

pub(crate) const LIVE_MODELS: &str = concat!(
    "SELECT model_id, tombstone, ",
    vector_head!(),
    " FROM vector_metadata WHERE mesh_id = ?1 AND key = ?2 AND peer = ?3 ORDER BY model_id"
);

impl Store {
    /// As [`Store::remember`]: a known id is answered whatever `fresh` says.
    pub async fn store_vector<R: Send + 'static>(
        &self,
        id: ChangeKey,
        key: DataKey,
        fresh: Result<NewVector, R>,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            apply(connection, &id, |_| {
                Ok(match fresh {
                    Ok(new) => Plan::go(OpBody::Vector(VectorChange::Store {
                        key,
                        new: Box::new(new),
                        replaces: None,
                    })),
                    Err(refusal) => Plan::Refused(refusal),
                })
            })
        })
        .await
    }

    /// Under one model or all of them; a vector that is not there is [`Applied::Absent`].
    pub async fn delete_vector<R: Send + 'static>(
        &self,
        id: ChangeKey,
        key: DataKey,
        model: Option<ModelFingerprint>,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            apply(connection, &id, |connection| {
                let owner = PeerId::new(&id.peer.to_string());
                let mut models = live_models(connection, id.mesh, &key, &owner)?;
                models.retain(|live| model.is_none_or(|model| model == *live));
                // More than one op may name: what is left is deleted by the next call.
                models.truncate(VECTOR_MODELS_MAX);
                if models.is_empty() {
                    return Ok(Plan::Absent);
                }
                Ok(Plan::go(OpBody::Vector(VectorChange::Delete {
                    key,
                    models,
                })))
            })
        })
        .await
    }

    /// Puts a vector under another model and takes the old one away, in one transaction. A row that
    /// changed since it was read is [`Applied::Absent`].
    pub async fn move_vector<R: Send + 'static>(
        &self,
        id: ChangeKey,
        moved: VectorMove,
    ) -> Result<Applied<R>, StoreError> {
        self.write(move |connection| {
            apply(connection, &id, |connection| {
                let owner = PeerId::new(&id.peer.to_string());
                let VectorMove {
                    key,
                    from,
                    stamp,
                    new,
                } = moved;
                let row = rows::existing(connection, id.mesh, &key, &owner, from)?;
                if row.is_none_or(|row| !row.is_live || row.stamp != stamp) {
                    return Ok(Plan::Absent);
                }
                Ok(Plan::go(OpBody::Vector(VectorChange::Store {
                    key,
                    new: Box::new(new),
                    replaces: Some(from),
                })))
            })
        })
        .await
    }
}

fn live_models(
    connection: &Connection,
    mesh: MeshId,
    key: &DataKey,
    owner: &PeerId,
) -> Result<Vec<ModelFingerprint>, StoreError> {
    let mut statement = connection.prepare_cached(LIVE_MODELS)?;
    let mut rows = statement.query(params![mesh.0.to_bytes(), key.as_str(), owner.as_str()])?;
    let mut models = Vec::new();
    while let Some(row) = rows.next()? {
        let mut cells = crate::cells::Cells::of("vector_metadata", row);
        let model = cells.parsed(str::parse)?;
        let is_gone: bool = cells.get()?;
        // One that is not what was written is mended by being deleted, whatever it says it is.
        if !is_gone || VECTORS.check_head(row).is_err() {
            models.push(model);
        }
    }
    Ok(models)
}

/// Each row by itself: an op that concerns two may win one and lose the other.
pub(crate) fn take(
    connection: &Connection,
    mesh: MeshId,
    op: &DataOp,
    change: &VectorChange,
) -> Result<Taken, StoreError> {
    let written = Written {
        mesh,
        stamp: &op.stamp,
        incarnation: op.incarnation,
        at: op.at,
    };
    let mut verdicts = Vec::new();
    match change {
        VectorChange::Store { key, new, replaces } => {
            let live = Live {
                model: new.model(),
                embedding: new.embedding(),
                content: new.content(),
                metadata: new.metadata(),
            };
            verdicts.push(rows::put(connection, &written, key, &live)?);
            if let Some(model) = replaces {
                verdicts.push(rows::take_away(connection, &written, key, *model)?);
                models::leave(connection, *model, op.at)?;
            }
        }
        VectorChange::Delete { key, models } => {
            for model in models {
                verdicts.push(rows::take_away(connection, &written, key, *model)?);
            }
        }
    }
    Ok(if verdicts.contains(&Merge::Take) {
        Taken::Applied
    } else if verdicts.contains(&Merge::Keep) {
        Taken::Kept
    } else {
        Taken::Same
    })
}
