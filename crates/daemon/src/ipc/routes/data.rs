//! What every change to the data has in common at the door: its key, its fingerprint, its receipt.
//!
//! A new noun begins a [`Change`], makes its normalised fields, asks the store, and hands the outcome to
//! [`Change::settle`]: what comes back is the receipt, from which it makes its answer.

use heddle_core::clock::WallMs;
use heddle_core::data::{DataError, DataKey, change_fingerprint};
use heddle_core::error_code::ErrorCode;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::ids::{ClientMessageId, MemberId, OpId};
use heddle_core::lamport::Stamp;
use heddle_core::limits::RESPONSE_BYTES_MAX;
use heddle_core::names::AgentName;
use heddle_core::pressure::Pressure;
use heddle_store::{Applied, ChangeKey, KnownChange, Receipt, StoreError};
use heddle_wire::from_wire;
use heddle_wire::ipc::{ChangeAnswer, StampView};
use heddle_wire::problem::Problem;
use serde_json::Value;

use super::send::{agent, idempotency_key};
use super::warnings;
use crate::ipc::Ipc;
use crate::mesh::MeshState;
use crate::shared::store_problem;

/// Of a page's bytes, what its values may take; keys, tags and stamps need the rest.
pub(super) const VALUE_BYTES_MAX: usize = RESPONSE_BYTES_MAX / 4;

/// Who changes something, where, and under which id, as the request says.
pub(super) struct Asked<'a> {
    pub(super) verb: &'static str,
    pub(super) id: Option<&'a str>,
    pub(super) mesh: Option<&'a str>,
    pub(super) agent: Option<&'a str>,
}

/// A change on its way to the store.
pub(super) struct Change<'i> {
    ipc: &'i Ipc,
    pub(super) verb: &'static str,
    pub(super) mesh: &'i MeshState,
    pub(super) agent: AgentName,
    pub(super) id: ClientMessageId,
}

/// A change that was made, now or before.
pub(super) struct Settled {
    pub(super) duplicate: bool,
    pub(super) receipt: Receipt,
}

impl<'i> Change<'i> {
    pub(super) async fn begin(
        ipc: &'i Ipc,
        headers: &http::HeaderMap,
        asked: Asked<'_>,
    ) -> Result<Self, Problem> {
        let mesh = ipc.shared.mesh(asked.mesh)?;
        let agent = agent(ipc, asked.agent)?;
        warnings::hears(mesh, &agent);
        let header = idempotency_key(headers)?;
        let id = from_wire::client_message_id(header.as_deref(), asked.id)?;
        // Local first: with the mailbox in this home, what the broker says to it does not matter here.
        if let Err(problem) = mesh.register(&ipc.shared, &agent).await
            && !mesh.is_own(&agent)
        {
            return Err(problem);
        }
        Ok(Self {
            ipc,
            verb: asked.verb,
            mesh,
            agent,
            id: id.unwrap_or_else(|| ClientMessageId::minted(ipc.shared.ids.ulid())),
        })
    }

    /// `fields` are everything that makes this change another one, normalised.
    pub(super) fn key(&self, fields: &Value) -> Result<ChangeKey, Problem> {
        let fingerprint = change_fingerprint(self.verb, fields);
        Ok(ChangeKey {
            mesh: self.mesh.mesh.mesh,
            peer: self.mesh.party(self.agent.clone()),
            id: self.id.clone(),
            fingerprint: fingerprint.map_err(|error| from_wire::invalid(error.to_string()))?,
            op: OpId(self.ipc.shared.ids.uuid_v7()),
            now: self.ipc.shared.clock.wall(),
        })
    }

    /// What the id was consumed for, if it was; the gate asks again.
    pub(super) async fn known(&self) -> Result<Option<KnownChange>, Problem> {
        let (mesh, peer) = (self.mesh.mesh.mesh, self.mesh.party(self.agent.clone()));
        let store = &self.ipc.shared.store;
        let known = store.known_change(mesh, peer, self.id.clone()).await;
        known.map_err(|error| store_problem(&error))
    }

    /// What the gate says of a change that cannot be made now: its first answer, or that its id belongs to another one.
    /// `None` where the id is free. The look-up goes before whatever else is wrong (C47).
    pub(super) async fn before(
        &self,
        key: &ChangeKey,
    ) -> Result<Option<Applied<Problem>>, Problem> {
        let known = self.known().await?;
        Ok(known.map(|known| {
            if known.fingerprint == key.fingerprint {
                Applied::Duplicate(known.receipt)
            } else {
                Applied::Conflict {
                    stored: known.fingerprint,
                    at: known.receipt.at,
                }
            }
        }))
    }

    /// Why a request that names something impossible is refused. Nothing was ever accepted for it, so an id that is taken
    /// belongs to another change.
    pub(super) async fn refusal(&self, problem: Problem) -> Problem {
        match self.known().await {
            Ok(None) => problem,
            Ok(Some(known)) => self.conflict(known.fingerprint, known.receipt.at),
            Err(problem) => problem,
        }
    }

    fn conflict(&self, stored: Fingerprint, at: WallMs) -> Problem {
        Problem::new(
            ErrorCode::IdempotencyKeyReused,
            format!(
                "id {} belongs to another change of {}",
                self.id,
                at.to_rfc3339()
            ),
        )
        .with("conflict", "request_fingerprint_mismatch")
        .with("client_message_id", self.id.to_string())
        .with("daemon_fingerprint_prefix", stored.prefix())
    }

    /// `new`, or why nothing new is kept now. To be handed to the store, which asks the gate first.
    pub(super) fn if_there_is_room<T>(&self, new: T) -> Result<T, Problem> {
        let disk = &self.ipc.shared.disk;
        // Changes of a shared mesh wait in the outbox like messages; others never get there.
        let refused = if self.mesh.sync.is_shared() {
            disk.refusal_for(Pressure::Refusing)
        } else {
            disk.refusal_by_disk()
        };
        let refused = refused.or_else(|| disk.refusal_as_it_is_now());
        refused.map_or(Ok(new), Err)
    }

    /// `absent` is what to say where there is nothing to change.
    pub(super) fn settle<R: Into<Problem>>(
        &self,
        applied: Result<Applied<R>, StoreError>,
        absent: impl FnOnce() -> Problem,
    ) -> Result<Settled, Problem> {
        let applied = applied.map_err(|error| store_problem(&error))?;
        let (outcome, answer) = match applied {
            Applied::Fresh(receipt) => {
                self.mesh.sync.changed();
                ("fresh", Ok((false, receipt)))
            }
            Applied::Duplicate(receipt) => ("duplicate", Ok((true, receipt))),
            Applied::Conflict { stored, at } => ("conflict", Err(self.conflict(stored, at))),
            Applied::Absent => ("absent", Err(absent())),
            Applied::Refused(refusal) => ("refused", Err(refusal.into())),
        };
        metrics::counter!("heddle_data_changes_total", "outcome" => outcome).increment(1);
        let (duplicate, receipt) = answer?;
        Ok(Settled { duplicate, receipt })
    }

    /// The answer of a noun that is known by its key.
    pub(super) fn answer(
        &self,
        key: &DataKey,
        applied: Result<Applied<Problem>, StoreError>,
    ) -> Result<ChangeAnswer, Problem> {
        let Settled { duplicate, receipt } = self.settle(applied, || unknown_key(key))?;
        Ok(ChangeAnswer {
            client_message_id: self.id.to_string(),
            key: key.to_string(),
            mesh: self.mesh.mesh.name.to_string(),
            agent: self.agent.to_string(),
            duplicate,
            durability: "local".to_owned(),
            stamp: stamp_view(&receipt.stamp, receipt.incarnation),
            at: receipt.at.to_rfc3339(),
            warnings: Vec::new(),
        })
    }
}

pub(super) fn data_key(text: &str) -> Result<DataKey, Problem> {
    DataKey::parse(text).map_err(|error| data_problem(&error))
}

pub(super) fn data_problem(error: &DataError) -> Problem {
    match error {
        DataError::ValueTooLarge(_) | DataError::ContentTooLarge(_) => {
            Problem::new(ErrorCode::PayloadTooLarge, error.to_string()).next(
                "Keep less under one key, or split it over several; nothing was changed and no id was consumed.",
            )
        }
        _ => from_wire::invalid(error.to_string()),
    }
}

pub(super) fn unknown_key(key: &DataKey) -> Problem {
    Problem::new(
        ErrorCode::UnknownKey,
        format!("there is nothing under {:?}", key.as_str()),
    )
}

pub(super) fn stamp_view(stamp: &Stamp, incarnation: u64) -> StampView {
    StampView {
        lamport: stamp.lamport,
        peer: stamp.peer.as_str().to_owned(),
        op_id: stamp.op.to_string(),
        incarnation,
    }
}

/// `@member/agent` of a stored peer; as it is stored where that says more.
pub(super) fn address(mesh: &MeshState, peer: &str) -> String {
    let parts = peer.split_once('/').and_then(|(member, agent)| {
        let member: MemberId = member.parse().ok()?;
        Some((member, AgentName::parse(agent).ok()?))
    });
    match parts {
        Some((member, agent)) => mesh.address(member, &agent),
        None => peer.to_owned(),
    }
}

/// A stored value, which is canonical JSON or damage.
pub(super) fn stored_value(text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let detail = format!("a stored value is not JSON: {error}");
        Problem::new(ErrorCode::Internal, detail)
    })
}
