//! Status, health and version.

use serde::{Deserialize, Serialize};

use super::sync::SyncView;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxFigures {
    pub pending: u64,
    pub inflight: u64,
    pub done: u64,
    pub dead: u64,
    pub aborted: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxFigures {
    pub items: u64,
    pub unread: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshStatus {
    pub mesh: String,
    pub mesh_id: String,
    pub member: String,
    /// `embedded` or the broker's URL.
    pub broker: String,
    pub connected: bool,
    /// When the broker was last heard of.
    pub as_of: Option<String>,
    /// Why it is not connected, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What the limiter of its broker says while it lets nothing more in; what was accepted waits, and goes out by
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<String>,
    /// Whether its broker leaves messages waiting, for so long that it is told in `degraded`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_up: bool,
    /// Why its broker does not let this home in, where it does not: waiting would not change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// That the store is an earlier copy of itself, where its broker shows that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<String>,
    /// That its broker is an earlier copy of itself, and what became of the messages that it had lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgot: Option<String>,
    /// Members that this home has seen and that its own broker does not know any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members_lost: Vec<String>,
    /// Unread messages in this home's mailboxes of this mesh.
    #[serde(default)]
    pub unread: u64,
    /// How its data is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncView>,
}

/// How short of room this home is, where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskView {
    /// `high`, `refusing` or `inbound_only`.
    pub pressure: String,
    /// `disk`, or `budget` where `disk_budget_mb` is what is used up.
    pub by: String,
    /// Whether a prune would give something back.
    pub can_prune: bool,
    /// Whether delivered messages hold it, which give it back by themselves.
    #[serde(default)]
    pub gives_back: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    pub running: bool,
    pub connected: bool,
    pub meshes: Vec<MeshStatus>,
    pub outbox: OutboxFigures,
    pub inbox: InboxFigures,
    /// `full`, or `normal` where the operator opted out of syncing every commit.
    pub durability: String,
    /// What is wrong, in sentences; empty when all is well.
    pub degraded: Vec<String>,
    /// What has happened and needs nobody, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Files of this home that another program holds a lock on: nothing can be written there until it lets go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskView>,
    /// Rows of a broker of this home's own that did not fit together at its last check.
    #[serde(default)]
    pub orphans: usize,
    /// Meshes whose data is in the store and that `config.toml` does not name: they are not served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<String>,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// How long the start took, from the process's first step to its open doors; 400 should do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start_ms: Option<u64>,
    /// True where the doctor has found something in the files that nobody has seen mended since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_doctor: bool,
    /// `ok`, `degraded` or `down`.
    #[serde(default)]
    pub verdict: String,
    /// The one command to run next.
    #[serde(default)]
    pub next: String,
}

/// Everything in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// It works, but not everything, or not for everybody.
    Degraded,
    /// Nobody answers.
    Down,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }
}

impl MeshStatus {
    /// Whether something about it does not mend itself.
    fn needs_a_person(&self) -> bool {
        self.refused.is_some()
            || self.older.is_some()
            || self.forgot.is_some()
            || !self.members_lost.is_empty()
    }
}

/// Shares a mesh again that others share already.
const PUBLISH: &str = "heddle mesh publish";
/// Lists the mailboxes of a mesh, with what is unread in each.
const UNREAD: &str = "heddle agent list";
/// Says of each message what it waits for.
const OUTBOX_LIST: &str = "heddle daemon outbox list";

impl StatusView {
    /// The verdict, and the one command to run next. The first row that fits counts.
    pub fn judge(&self) -> (Verdict, &'static str) {
        let disk = |holds: fn(&DiskView) -> bool| self.disk.as_ref().is_some_and(holds);
        let table = [
            // What does not mend itself has its own sentences.
            (
                self.needs_doctor
                    || !self.held.is_empty()
                    || !self.unserved.is_empty()
                    || self.meshes.iter().any(MeshStatus::needs_a_person),
                Verdict::Degraded,
                "heddle doctor",
            ),
            (self.split().is_some(), Verdict::Degraded, PUBLISH),
            (
                disk(|disk| disk.can_prune),
                Verdict::Degraded,
                "heddle daemon outbox prune --older-than 0s",
            ),
            // The doctor says what holds the room of the disk, the list what a message waits for.
            (
                disk(|disk| disk.by == "disk"),
                Verdict::Degraded,
                "heddle doctor",
            ),
            (
                disk(|disk| disk.gives_back),
                Verdict::Degraded,
                "heddle status",
            ),
            (disk(|_| true), Verdict::Degraded, OUTBOX_LIST),
            (
                self.meshes
                    .iter()
                    .any(|mesh| mesh.sync.as_ref().is_some_and(SyncView::needs_a_look)),
                Verdict::Degraded,
                "heddle doctor",
            ),
            (
                self.orphans > 0,
                Verdict::Degraded,
                "heddle broker orphan-check",
            ),
            // Nothing else is wrong: the list says what each of them waits for.
            (
                !self.degraded.is_empty()
                    && self.degraded.len()
                        == self.meshes.iter().filter(|mesh| mesh.held_up).count(),
                Verdict::Degraded,
                OUTBOX_LIST,
            ),
            (
                !self.degraded.is_empty(),
                Verdict::Degraded,
                "heddle logs --level warn",
            ),
            // A message that will not arrive by itself.
            (
                self.outbox.dead > 0,
                Verdict::Degraded,
                "heddle daemon outbox --failed",
            ),
            (self.inbox.unread > 0, Verdict::Ok, UNREAD),
        ];
        let row = table.into_iter().find(|(fits, ..)| *fits);
        row.map_or((Verdict::Ok, "heddle peers"), |(_, verdict, next)| {
            (verdict, next)
        })
    }

    #[must_use]
    pub fn judged(self) -> Self {
        self.judged_for(None)
    }

    /// The same for somebody who means this mesh where a command names none; by itself it is the first one.
    #[must_use]
    pub fn judged_for(mut self, meant: Option<&str>) -> Self {
        let (verdict, next) = self.judge();
        verdict.as_str().clone_into(&mut self.verdict);
        next.clone_into(&mut self.next);
        if next == PUBLISH
            && let Some(mesh) = self.split()
        {
            self.next = format!("{PUBLISH} {mesh}");
        }
        if next == UNREAD
            && let Some(mesh) = self.unread_elsewhere(meant)
        {
            self.next = format!("{UNREAD} --mesh {mesh}");
        }
        self
    }

    /// A mesh that others share and that is personal in this home's file.
    fn split(&self) -> Option<&str> {
        let is_split = |mesh: &&MeshStatus| mesh.sync.as_ref().is_some_and(|sync| sync.split);
        self.meshes
            .iter()
            .find(is_split)
            .map(|mesh| mesh.mesh.as_str())
    }

    /// The mesh that must be named, because the one that is meant has nothing unread and another has.
    fn unread_elsewhere(&self, meant: Option<&str>) -> Option<&str> {
        let meant = meant.or(self.meshes.first().map(|mesh| mesh.mesh.as_str()))?;
        let is_unread = |mesh: &&MeshStatus| mesh.unread > 0;
        let here = self.meshes.iter().find(|mesh| mesh.mesh == meant);
        if here.as_ref().is_some_and(is_unread) {
            return None;
        }
        let elsewhere = self.meshes.iter().find(is_unread)?;
        Some(elsewhere.mesh.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, `degraded` or `stopping`.
    pub status: String,
    pub degraded: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub name: String,
    pub version: String,
    /// The version of these routes.
    pub ipc: u32,
    /// The version of the frames between daemon and broker.
    pub broker_protocol: u32,
}

/// The versions from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub min: u32,
    pub max: u32,
}

/// What a daemon speaks, and what it asks of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compat {
    pub version: String,
    /// The oldest client that is served.
    pub client_version_min: String,
    /// Versions of the `/v1` routes.
    pub ipc: Span,
    /// Versions of the frames between daemon and broker.
    pub broker_protocol: Span,
    /// What a caller can rely on, by name.
    pub features: Vec<String>,
    /// What a broker must advertise to be used.
    pub required_of_broker: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRUNE: &str = "heddle daemon outbox prune --older-than 0s";

    #[test]
    fn the_verdict_is_the_worst_that_holds() {
        let well: StatusView = serde_json::from_str(
            r#"{"running":true,"connected":true,"meshes":[],"outbox":{"pending":1,"inflight":0,
            "done":9,"dead":0,"aborted":2},"inbox":{"items":3,"unread":0},"durability":"full",
            "degraded":[],"version":"1"}"#,
        )
        .unwrap();
        assert_eq!(well.judge(), (Verdict::Ok, "heddle peers"));
        let mut unread = well.clone();
        unread.inbox.unread = 1;
        assert_eq!(unread.judge(), (Verdict::Ok, "heddle agent list"));
        let mut dead = unread;
        dead.outbox.dead = 1;
        assert_eq!(
            dead.judge(),
            (Verdict::Degraded, "heddle daemon outbox --failed")
        );
        let mut degraded = dead;
        degraded.degraded.push("no broker".to_owned());
        assert_eq!(
            degraded.judge(),
            (Verdict::Degraded, "heddle logs --level warn")
        );
        let held = StatusView {
            held: vec!["data.db".to_owned()],
            ..degraded.clone()
        };
        assert_eq!(held.judge(), (Verdict::Degraded, "heddle doctor"));
        for (by, can_prune, gives_back, next) in [
            ("disk", false, false, "heddle doctor"),
            ("disk", false, true, "heddle doctor"),
            ("budget", false, false, "heddle daemon outbox list"),
            ("budget", false, true, "heddle status"),
            ("disk", true, false, PRUNE),
            ("budget", true, true, PRUNE),
        ] {
            degraded.disk = Some(DiskView {
                pressure: "refusing".to_owned(),
                by: by.to_owned(),
                can_prune,
                gives_back,
            });
            assert_eq!(degraded.judge(), (Verdict::Degraded, next), "{by}");
        }
        assert_eq!(well.judged().verdict, "ok");
    }
}
