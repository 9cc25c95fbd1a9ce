//! The gate of calls that change no data: a topic, a mailbox, work that is settled, what a mesh or the doctor does. One key, one
//! request, one answer, under the same rows as every change of data, so that a key stands for one request whatever it is about.
//!
//! Most of them are done by a broker, or in more steps than one transaction holds. So a key is consumed in two: that the call has
//! begun, before it runs, and its answer behind it. Between the two nobody knows how it ended. Each of these calls says what shall be
//! so: the same request under that key is run again, and another one is refused all the same.

use heddle_core::clock::WallMs;
use heddle_core::fingerprint::Fingerprint;
use heddle_core::gate::{Outcome, outcome};
use heddle_core::lamport::{PeerId, Stamp};
use rusqlite::params;
use serde_json::{Value, json};

use super::request::{CONSUME, ChangeKey, Receipt, answer_of, consumed};
use crate::error::StoreError;
use crate::store::Store;

/// What a key says to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Called {
    /// It was free, and stands for this call from now on.
    Fresh,
    /// This very call has begun before, and nobody knows how it ended.
    Unknown,
    /// This very call was answered before.
    Duplicate(Value),
    /// The key belongs to another request.
    Conflict { stored: Fingerprint, at: WallMs },
}

/// In the note of a receipt: which no change of data has.
const CALL: &str = "call";

pub(crate) const ANSWER: &str = "
    UPDATE applied_request SET answer = ?5
    WHERE mesh_id = ?1 AND agent = ?2 AND request_key = ?3 AND fingerprint = ?4";

/// Only one that has no answer: a key once consumed is never free again.
pub(crate) const TAKE_BACK: &str = "
    DELETE FROM applied_request
    WHERE mesh_id = ?1 AND agent = ?2 AND request_key = ?3 AND fingerprint = ?4
        AND json_extract(answer, '$.note.call') = 'begun'";

impl Store {
    /// Asks the gate; a free key stands for this call, whatever becomes of it.
    pub async fn begin_call(&self, key: ChangeKey) -> Result<Called, StoreError> {
        self.write(move |connection| {
            let known = consumed(connection, key.mesh, &key.peer, &key.id)?;
            let print = known.as_ref().map(|known| known.fingerprint);
            match (outcome(print, key.fingerprint), known) {
                (Outcome::Duplicate, Some(known)) => {
                    let note = known.receipt.note;
                    Ok(match note[CALL].as_str() {
                        Some("ended") => Called::Duplicate(note["answer"].clone()),
                        _ => Called::Unknown,
                    })
                }
                (Outcome::Conflict, Some(known)) => Ok(Called::Conflict {
                    stored: known.fingerprint,
                    at: known.receipt.at,
                }),
                (Outcome::Fresh | Outcome::Duplicate | Outcome::Conflict, _) => {
                    connection.prepare_cached(CONSUME)?.execute(params![
                        key.mesh.0.to_bytes(),
                        key.peer.agent.as_str(),
                        key.id.as_str(),
                        key.fingerprint.0,
                        key.now.0,
                        answer_of(&receipt(&key, json!({CALL: "begun"}))),
                    ])?;
                    Ok(Called::Fresh)
                }
            }
        })
        .await
    }

    /// The answer that the call got, for everybody who asks again.
    pub async fn end_call(&self, key: ChangeKey, answer: Value) -> Result<(), StoreError> {
        self.write(move |connection| {
            let note = json!({CALL: "ended", "answer": answer});
            connection.prepare_cached(ANSWER)?.execute(params![
                key.mesh.0.to_bytes(),
                key.peer.agent.as_str(),
                key.id.as_str(),
                key.fingerprint.0,
                answer_of(&receipt(&key, note)),
            ])?;
            Ok(())
        })
        .await
    }

    /// It was refused and nothing happened: a refusal consumes no key.
    pub async fn take_back_call(&self, key: ChangeKey) -> Result<(), StoreError> {
        self.write(move |connection| {
            connection.prepare_cached(TAKE_BACK)?.execute(params![
                key.mesh.0.to_bytes(),
                key.peer.agent.as_str(),
                key.id.as_str(),
                key.fingerprint.0,
            ])?;
            Ok(())
        })
        .await
    }
}

/// As a change of data has it; no op was made.
fn receipt(key: &ChangeKey, note: Value) -> Receipt {
    Receipt {
        stamp: Stamp {
            lamport: 0,
            peer: PeerId::new(&key.peer.to_string()),
            op: key.op,
        },
        incarnation: 0,
        at: key.now,
        note,
    }
}
