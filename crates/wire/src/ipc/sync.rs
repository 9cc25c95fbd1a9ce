//! The sync of a mesh's data, as the doctor, the status and `mesh clock` show it.

use serde::{Deserialize, Serialize};

/// How the data of a mesh and its log stand to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncView {
    /// `local`, `idle`, `active`, `reconnecting` or `paused`.
    pub state: String,
    /// `personal`, `shared_owner` or `shared_guest`.
    pub kind: String,
    /// The mesh is shared at its broker, and personal in this home's file, which is from before it was published: what is
    /// written here reaches nobody, and what others write does not come here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub split: bool,
    pub paused: bool,
    /// An op of the log was missed and could not be read again.
    pub needs_resync: bool,
    pub broker_epoch: u64,
    /// The log was received through this place.
    pub log: String,
    /// Own ops that the broker has not confirmed.
    pub out_waiting: u64,
    /// Of them, those that it refused: each is tried again by itself; after ten refusals the sync pauses.
    #[serde(default)]
    pub out_refused: u64,
    /// Ops from elsewhere that are not applied yet.
    pub in_waiting: u64,
    pub in_parked: u64,
    pub in_quarantined: u64,
    /// Of those, the ones that this home made itself while its clock was far ahead: no home takes them, now or later.
    #[serde(default)]
    pub in_own_refused: u64,
    /// Changes of others that this home has and the log has not, since its broker was put back.
    #[serde(default)]
    pub kept: u64,
    pub last_sync_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl SyncView {
    /// Whether the data here and elsewhere differ until a person looks: the doctor has the verbs.
    pub(crate) fn needs_a_look(&self) -> bool {
        let ops = [self.kept, self.in_quarantined, self.out_refused];
        self.paused || self.needs_resync || ops.iter().any(|count| *count > 0)
    }
}

/// `GET /v1/mesh/clock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockView {
    pub mesh: String,
    pub lamport: u64,
    pub incarnation: u64,
    /// `offline` where a shared mesh has no connection; else the state of its sync.
    pub sync_state: String,
    pub last_sync_at: Option<String>,
    pub sync: SyncView,
}

/// An op that waits for somebody to look at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckOp {
    pub id: String,
    pub mesh: String,
    /// `outgoing` or `incoming`.
    pub way: String,
    /// `refused`, `parked` or `quarantined`.
    pub state: String,
    pub attempts: u32,
    pub reason: String,
    /// Who sent it, where it came from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    pub ok: bool,
    /// A sentence.
    pub says: String,
    /// What to do about it; empty when all is well.
    pub next: String,
}

/// `GET /v1/doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorView {
    pub ok: bool,
    pub findings: Vec<Finding>,
    /// The first hundred of each mesh.
    pub ops: Vec<StuckOp>,
}

/// The body of `POST /v1/doctor/retry` and `/v1/doctor/drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpBody {
    /// The id of the op.
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    /// Who sent it, where several agents of this home used the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The body of `POST /v1/doctor/resume-sync`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    pub mesh: String,
}

/// What a verb of the doctor has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorAnswer {
    pub mesh: String,
    /// False where there was nothing to do.
    pub changed: bool,
    /// A sentence.
    pub says: String,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// `GET /v1/mesh/dump`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpView {
    pub mesh: String,
    /// RFC 8785 JSON each, in order.
    pub lines: Vec<String>,
    /// Where the next page begins; absent at the end.
    pub cursor: Option<String>,
    /// Rows that cannot be read and are therefore not among them, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// `GET /v1/mesh/kept`: what others made, this home has, and the log has lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPage {
    pub mesh: String,
    pub mesh_id: String,
    /// RFC 8785 JSON each: the ops that would make the rows anew, under their own stamps.
    pub ops: Vec<String>,
    /// Where the next page begins; absent at the end.
    pub cursor: Option<String>,
}

/// The body of `POST /v1/mesh/take-back`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeBackBody {
    /// Which mesh they were kept for.
    pub mesh_id: String,
    /// As `GET /v1/mesh/kept` gave them.
    pub ops: Vec<String>,
}

/// What became of ops that were given back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeBackAnswer {
    pub mesh: String,
    /// They go to the log again, as what this home had made.
    pub taken: u64,
    /// The log has them, or they are on their way.
    pub known: u64,
    /// Made by others: their homes have to take them back.
    pub of_others: u64,
    /// This very call was answered before, under its `Idempotency-Key`; this is that answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_doctor_has_verbs_for_needs_a_look() {
        let well: SyncView = serde_json::from_str(
            r#"{"state":"idle","kind":"shared","paused":false,"needs_resync":false,"broker_epoch":1,"log":"1.2",
            "out_waiting":3,"out_refused":0,"in_waiting":1,"in_parked":1,"in_quarantined":0,"last_sync_at":null}"#,
        )
        .unwrap();
        assert!(!well.needs_a_look());
        let ill: [fn(&mut SyncView); 5] = [
            |sync| sync.paused = true,
            |sync| sync.needs_resync = true,
            |sync| sync.kept = 1,
            |sync| sync.in_quarantined = 1,
            |sync| sync.out_refused = 1,
        ];
        for make_ill in ill {
            let mut sync = well.clone();
            make_ill(&mut sync);
            assert!(sync.needs_a_look(), "{sync:?}");
        }
    }
}
