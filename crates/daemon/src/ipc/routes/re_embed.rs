//! `/v1/vector/re_embed`: one step of moving this home's vectors to another model.
//!
//! Every vector is moved by a change of its own, which writes the new one and takes the old one away. A
//! process that dies in between has moved some; the next run finds the others.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use heddle_core::data::{DataValue, change_fingerprint};
use heddle_core::ids::{ClientMessageId, MemberId, OpId, Party};
use heddle_core::limits::VECTOR_MOVES_MAX;
use heddle_core::names::AgentName;
use heddle_core::op::{NewVector, VectorContent};
use heddle_core::vector::{ModelFingerprint, ModelIdentity};
use heddle_store::{Applied, ChangeKey, VectorFilter, VectorMove, VectorRow};
use heddle_wire::from_wire;
use heddle_wire::ipc::{ReEmbedAnswer, ReEmbedBody};
use heddle_wire::problem::Problem;
use serde_json::json;

use super::data::data_key;
use super::vector::{called, cursor, cursor_of};
use crate::ipc::reply::{Answered, ok};
use crate::ipc::{Ipc, body};
use crate::mesh::MeshState;
use crate::shared::store_problem;
use crate::vectors::Maker;

/// A step ends after this, so that its caller can show how far it has come, and say so if there is no further answer.
const STEP: Duration = Duration::from_secs(1);
/// The first one sooner: until it is answered its caller knows of nothing.
const FIRST_STEP: Duration = Duration::from_millis(100);
/// Of the contents that one step reads.
const CONTENT_BYTES_MAX: usize = 2 << 20;

pub(super) async fn step(State(ipc): State<Arc<Ipc>>, request: Request) -> Answered {
    let (parts, incoming) = request.into_parts();
    let body: ReEmbedBody = body::read(&parts, incoming).await?;
    let mesh = ipc.shared.mesh(body.mesh.as_deref())?;
    let maker = ipc.shared.embedder.maker(Some(&body.to))?;
    let target = ipc.shared.embedder.identity(maker).await?;
    let (store, left_out) = ipc.shared.store.leniently();
    let from = match &body.from {
        None => None,
        Some(from) => {
            let found = called((&store, mesh.mesh.mesh), from).await?;
            Some(found.ok_or_else(|| {
                from_wire::invalid("there are no vectors of the model to move from")
                    .next("`heddle vector list --json` shows the models.")
            })?)
        }
    };
    if from == Some(target.fingerprint()) {
        return Err(from_wire::invalid("both models are the same").into());
    }
    let own = format!("{}/", mesh.mesh.member);
    let filter = VectorFilter {
        mesh: mesh.mesh.mesh,
        model: from,
        model_not: Some(target.fingerprint()),
        peer: None,
        peer_prefix: own.clone(),
        after: cursor(body.cursor.as_deref())?,
        limit: VECTOR_MOVES_MAX,
        bytes_max: CONTENT_BYTES_MAX,
    };
    let found = store.list_vectors(filter).await;
    let (rows, more) = found.map_err(|error| store_problem(&error))?;
    let mut step = Step {
        ipc: &ipc,
        mesh,
        maker,
        target: &target,
        at_most: if body.cursor.is_none() {
            FIRST_STEP
        } else {
            STEP
        },
        answer: ReEmbedAnswer {
            model: target.to_string(),
            ..ReEmbedAnswer::default()
        },
    };
    let done = step.run(&rows).await?;
    let mut answer = step.answer;
    let last = done.checked_sub(1).and_then(|at| rows.get(at));
    answer.cursor = last.filter(|_| more || done < rows.len()).map(cursor_of);
    let counts = store.count_vectors(mesh.mesh.mesh, own).await;
    for count in counts.map_err(|error| store_problem(&error))? {
        if count.model == target.fingerprint() {
            answer.there += count.own;
        } else if from.is_none_or(|from| from == count.model) {
            answer.left += count.own;
            answer.others += count.all - count.own;
        }
    }
    answer.left_out = ipc.shared.unreadable.left_out(&left_out);
    ok(&answer)
}

struct Step<'s> {
    ipc: &'s Ipc,
    mesh: &'s MeshState,
    maker: Maker,
    target: &'s ModelIdentity,
    at_most: Duration,
    answer: ReEmbedAnswer,
}

impl Step<'_> {
    /// How many rows were looked at.
    async fn run(&mut self, rows: &[VectorRow]) -> Result<usize, Problem> {
        let clock = &self.ipc.shared.clock;
        let began = clock.mono();
        for (at, row) in rows.iter().enumerate() {
            if at > 0 && clock.mono().saturating_sub(began) > self.at_most {
                return Ok(at);
            }
            let has_text = !row.content.trim().is_empty();
            let moved = if has_text {
                self.one(row).await
            } else {
                Ok(false)
            };
            // What was moved before is told first; the next step begins with this row, and is refused.
            if moved.is_err() && at > 0 {
                return Ok(at);
            }
            if moved? {
                self.answer.moved += 1;
            } else {
                self.answer.skipped += 1;
                self.answer.without_text += u64::from(!has_text);
            }
        }
        Ok(rows.len())
    }

    /// Moves a row that has a text; false where it changed meanwhile.
    async fn one(&self, row: &VectorRow) -> Result<bool, Problem> {
        let embedder = &self.ipc.shared.embedder;
        let (identity, embedding) = embedder.embed(self.maker, &row.content).await?;
        if identity != *self.target {
            return Err(
                from_wire::invalid("the provider's embeddings change their length")
                    .next("Set dim under [vectors] in config.toml, then go on."),
            );
        }
        let damaged = |why: String| Problem::new(heddle_core::error_code::ErrorCode::Internal, why);
        let content = VectorContent::new(row.content.clone());
        let metadata = DataValue::kept(row.metadata.clone());
        let new = NewVector::new(
            identity,
            embedding,
            content.map_err(|error| damaged(error.to_string()))?,
            metadata.map_err(|error| damaged(error.to_string()))?,
        );
        let moved = VectorMove {
            key: data_key(&row.key)?,
            from: row.model,
            stamp: row.stamp.clone(),
            new: new.map_err(|error| damaged(error.to_string()))?,
        };
        let Some(id) = self.change_key(row, self.target.fingerprint())? else {
            return Ok(false);
        };
        if let Some(problem) = self
            .ipc
            .shared
            .disk
            .refusal_for(heddle_core::pressure::Pressure::Refusing)
        {
            return Err(problem);
        }
        let applied = self
            .ipc
            .shared
            .store
            .move_vector::<Problem>(id, moved)
            .await;
        match applied.map_err(|error| store_problem(&error))? {
            Applied::Fresh(_) | Applied::Duplicate(_) => Ok(true),
            // It changed while its embedding was made; the next run sees it as it is then.
            Applied::Absent | Applied::Conflict { .. } => Ok(false),
            Applied::Refused(problem) => Err(problem),
        }
    }

    /// The same row to the same model is the same change, whoever asks how often. `None` for a row whose
    /// owner is nobody of this home.
    fn change_key(
        &self,
        row: &VectorRow,
        target: ModelFingerprint,
    ) -> Result<Option<ChangeKey>, Problem> {
        let owner = row
            .stamp
            .peer
            .as_str()
            .split_once('/')
            .and_then(|(member, agent)| {
                let member: MemberId = member.parse().ok()?;
                let agent = AgentName::parse(agent).ok()?;
                Some(Party { member, agent })
            });
        let Some(peer) = owner.filter(|owner| owner.member == self.mesh.mesh.member) else {
            return Ok(None);
        };
        let invalid = |error: String| from_wire::invalid(error);
        let id = format!("re-embed:{target}:{}:{}", row.model, row.stamp.op);
        let fields =
            json!({"key": row.key, "from": row.model.to_string(), "to": target.to_string()});
        Ok(Some(ChangeKey {
            mesh: self.mesh.mesh.mesh,
            peer,
            id: ClientMessageId::parse(&id).map_err(|error| invalid(error.to_string()))?,
            fingerprint: change_fingerprint("vector.re_embed", &fields)
                .map_err(|error| invalid(error.to_string()))?,
            op: OpId(self.ipc.shared.ids.uuid_v7()),
            now: self.ipc.shared.clock.wall(),
        }))
    }
}
