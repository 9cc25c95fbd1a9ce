//! One-time effects: asking, approving, registering, running, verifying, compensating.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is to be approved. `artifact_hash` is a SHA-256 in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectRequestBody {
    pub key: String,
    pub op: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRequestAnswer {
    /// Empty while it waits for the broker of its mesh.
    pub request_id: String,
    /// `awaiting_approval` or `approved`; what stands, if this was asked for before. `waiting_for_broker`
    /// while the broker that decides cannot be reached.
    pub status: String,
    pub replay_key: String,
    pub duplicate: bool,
    pub expires_at: String,
    /// Who may approve it, as the policy says now: mailboxes of this home, `@member` or `@member/mailbox` elsewhere.
    /// Empty where only the broker knows, and where nobody is waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// The mesh's id, which every home takes behind `--mesh`, whatever it calls the mesh.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mesh_id: String,
}

/// Approve, or turn down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectApproveBody {
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_minutes: Option<u32>,
    /// The nonce is for the compensation of what failed its verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// The nonce is shown here and nowhere else; the same request once more is answered without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectApproveAnswer {
    pub request_id: String,
    pub nonce: Option<String>,
    pub expires_at: String,
    pub duplicate: bool,
    /// What was approved, and for whom.
    #[serde(default)]
    pub logical_request_key: String,
    #[serde(default)]
    pub operation: String,
    #[serde(default)]
    pub target: String,
    #[serde(default)]
    pub artifact_hash: String,
    #[serde(default)]
    pub run: String,
    #[serde(default)]
    pub requested_by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectRegisterBody {
    pub key: String,
    pub op: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// The approval that is meant, where the caller wants to be sure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// How it is to be verified: kept with the registration, so that no retry closes it with less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<EffectVerifyPlan>,
    /// SHA-256, in lower-case hex, of the JSON array of `heddle.command.v1` and the words of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Who verifies an effect: a command, a URL, or somebody later. Nobody runs another one's command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectVerifyPlan {
    #[serde(default)]
    pub command: Option<String>,
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub later: bool,
}

/// A key, and who speaks of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectStartBody {
    pub key: String,
    pub attempt_id: String,
    /// SHA-256, in lower-case hex, of the JSON array of `heddle.command.v1` and the words of the command: that of the
    /// registration, where it was registered with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// How a command ended: that of the effect, or that of its compensation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectEndBody {
    pub key: String,
    pub attempt_id: String,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub stdout: String,
    #[serde(default)]
    pub stderr: String,
    #[serde(default)]
    pub truncated: bool,
    /// Why the command could not be started at all; then it has neither exit code nor output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// A person's word about a run, or a compensation, that nobody ended. It names the whole effect that it is about: the
/// word of who means another one is refused where it would be recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectResolveBody {
    pub key: String,
    /// Mandatory, as `target` is; a home of an earlier version says neither, and is refused with a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// True: it did not happen and may run again. False: it happened.
    pub again: bool,
    /// It happened, and did not go well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// With `failed`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub note: String,
    /// It was run in another home, and whoever says this has made sure that nothing runs there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The run that is meant (`round` of its status); the one that the daemon finds gone by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectVerifyBody {
    pub key: String,
    pub passed: bool,
    #[serde(default)]
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectCompensateBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// One step of an effect's life, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectStep {
    pub step: String,
    pub attempt_id: String,
    pub by: String,
    pub at: String,
    pub detail: String,
}

/// One try to register an effect, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectAttempt {
    pub attempt_id: String,
    pub by: String,
    pub at: String,
    /// `S1` (left nothing behind: refused, where there is a code), `S2` (registered it) or `S4` (somebody else was
    /// faster).
    pub state: String,
    /// Of a refusal.
    pub code: String,
}

/// Those who came when it was registered and were answered with what stands. A retry writes nothing: they are counted
/// by the process that decides, since it has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRetries {
    pub count: u64,
    /// Of the first one that was counted.
    pub since: String,
    /// Of the last one, as are the fields behind it.
    pub at: String,
    pub by: String,
    pub attempt_id: String,
    pub code: String,
}

/// What somebody with the right said about a request, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectDecision {
    pub request_id: String,
    /// `approved`, `denied` or `revoked`.
    pub ruling: String,
    pub by: String,
    pub at: String,
    /// With an approval: `register` or `compensate`, and until when its nonce is good.
    pub purpose: Option<String>,
    pub expires_at: Option<String>,
}

/// One of several requests for the same key, each of its own owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectOpenRequest {
    pub request_id: String,
    pub requested_by: String,
    pub requested_at: String,
    /// `awaiting_approval` or `approved`.
    pub status: String,
}

/// An effect as it stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one thing that is so of an effect, or not"
)]
pub struct EffectView {
    pub logical_request_key: String,
    /// S0 to S4 of the specification; S4 is told to who lost a race.
    pub state: String,
    /// The same in words.
    #[serde(default)]
    pub state_means: String,
    /// `registered`, `running`, `unknown`, `finished`, `closed`, `verify_failed`, `compensating`,
    /// `compensation_unknown`, `compensation_failed` or `compensated`. Before the registration (S0) the state
    /// of its approval: `awaiting_approval`, `approved`, `expired`, `denied`, `revoked`; `waiting_for_broker`
    /// while the request has not left this home.
    pub status: String,
    /// True when this call found it done.
    pub duplicate: bool,
    /// Why a duplicate is one.
    pub code: Option<String>,
    pub operation: String,
    pub target: String,
    pub artifact_hash: String,
    pub run: String,
    pub request_id: Option<String>,
    pub replay_key: Option<String>,
    #[serde(default)]
    pub requested_by: Option<String>,
    #[serde(default)]
    pub requested_at: Option<String>,
    /// Who approved or turned it down, oldest first.
    #[serde(default)]
    pub decisions: Vec<EffectDecision>,
    /// The attempt that registered it.
    pub attempt_id: Option<String>,
    /// The answer of the registration, as it was given the first time.
    pub registration: Option<Value>,
    /// Of the command that it was registered, or last run, with.
    #[serde(default)]
    pub command_hash: Option<String>,
    /// The attempt that has, or had, the run.
    pub runner: Option<String>,
    /// Who took the run, or began the compensation: `@member/agent` where that is another home's.
    #[serde(default)]
    pub runs_at: Option<String>,
    /// Which run it is: one more for each that was given back.
    #[serde(default)]
    pub round: i64,
    /// Why the last command could not be started, until another one was.
    #[serde(default)]
    pub not_started: Option<String>,
    pub exit_code: Option<i32>,
    /// What a person said of a run that nobody ended: `done` or `failed`.
    #[serde(default)]
    pub resolved: Option<String>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    pub truncated: bool,
    /// The verifier's verdict.
    pub verified: Option<bool>,
    pub verify_detail: Option<String>,
    pub compensation: Option<Value>,
    pub steps: Vec<EffectStep>,
    /// Those who tried to register or to begin it, newest first; of the status and the story.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<EffectAttempt>,
    /// Those who came again; of the status and the story.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<EffectRetries>,
    /// Who may approve it, as the policy says now; as with the answer to a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// As with the answer to a request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mesh_id: String,
    /// It is under way in another home, and only that one knows whether its command still lives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub runs_elsewhere: bool,
    /// Why nothing would begin now, whatever was approved before: what the policy says since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Before the registration, where more than one request is live: all of them, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<EffectOpenRequest>,
    /// The request itself is too old: nobody can grant it once more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub request_over: bool,
    /// What the authority said to what waited here for it, where that was a refusal; or why it was told to nobody.
    #[serde(default)]
    pub waited: Option<String>,
    /// Held by whoever runs it, and by the kernel's word released when that process is gone.
    pub lock: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectList {
    pub effects: Vec<EffectView>,
    /// Hand it back as `cursor` for what is older; null at the end.
    #[serde(default)]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectLogLine {
    pub at: String,
    pub key: String,
    pub event: String,
    pub code: String,
    pub attempt_id: String,
    pub by: String,
    pub detail: String,
}

/// Attempts, refusals and failures, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectLog {
    pub lines: Vec<EffectLogLine>,
    /// Hand it back as `cursor` for what is older; null at the end.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// One thing that happened to an effect, from whichever table tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectEvent {
    pub at: String,
    /// `requested`, `approved`, `registered`, `started`, …, or what was tried and refused.
    pub what: String,
    pub by: String,
    pub code: String,
    pub attempt_id: String,
    pub detail: String,
}

/// The whole story of an effect, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectStory {
    pub id: String,
    /// `effect`.
    pub kind: String,
    pub mesh: String,
    pub effect: EffectView,
    pub story: Vec<EffectEvent>,
    /// Attempts and refusals beyond the newest that are told.
    pub left_off: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectCriterion {
    pub letter: String,
    pub asks: String,
    pub met: bool,
    /// Triggers and indexes that are not there, by name.
    #[serde(default)]
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectSurface {
    pub fit: bool,
    pub criteria: Vec<EffectCriterion>,
    /// Effects whose rows were changed after they were written, each in a sentence.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Rows of before there were digests: nobody can say whether they are as they were written.
    #[serde(default)]
    pub without_digest: u64,
}
