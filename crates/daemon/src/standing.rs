//! What is wrong now: the one list that `status`, `health` and the doctor draw on, so that none of them calls well what
//! another does not.
//!
//! The doctor may say more about the same thing: a finding of its own under the same name stands for the one here.

use heddle_wire::ipc::Finding;

use crate::mesh::MeshState;
use crate::shared::{Shared, lock};
use crate::sync::split;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// What it is about, as the doctor calls it.
    pub(crate) check: String,
    /// A sentence that stands alone.
    pub(crate) says: String,
    /// What helps, for whoever asks the doctor.
    pub(crate) next: String,
}

impl Wrong {
    pub(crate) fn new(
        check: impl Into<String>,
        says: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            check: check.into(),
            says: says.into(),
            next: next.into(),
        }
    }
}

const LINK_NEXT: &str = "What was accepted waits and goes out by itself; `heddle logs --level warn` shows the tries. Where \
    it says that another home has the same identity, stop one of the two.";
const WAITS_NEXT: &str =
    "Nothing: what was accepted goes out by itself. `heddle daemon outbox list` shows what waits.";
const WORK_NEXT: &str = "`heddle broker orphan-check` names them where the broker lies; whoever pushed them can push them \
    again under another id.";
/// Of what the doctor finds in the files, what nobody else follows.
const FILES: [&str; 6] = [
    "data.db",
    "broker.db",
    "effects.db",
    "rows of data.db",
    "blobs",
    "modes",
];

impl Shared {
    /// What is wrong, as far as this process knows without asking its store.
    pub(crate) fn wrong(&self) -> Vec<Wrong> {
        let mut found = Vec::new();
        if let Some(why) = self.store.poisoned() {
            let says = format!(
                "the store takes no writes since a sync failed ({why}); restart the daemon"
            );
            found.push(Wrong::new("store", says, "Check the disk, then restart."));
        }
        let disk = self.disk.degraded().into_iter();
        let next = "`heddle daemon outbox list` shows what waits; free some space, or raise disk_budget_mb.";
        found.extend(disk.map(|says| Wrong::new("disk", says, next)));
        // Until somebody has taken it away: an inbox that was lost is not to be overlooked.
        for parked in self.parked.iter().filter(|parked| parked.exists()) {
            let says = format!(
                "the inbox was damaged and began anew; the old file lies at {}: move it away when you have looked at it",
                parked.display()
            );
            found.push(Wrong::new("inbox that was set aside", says, ""));
        }
        let damaged = self.damage.degraded();
        found.extend(damaged.map(|says| Wrong::new("inbox", says, "")));
        let work = self.damage.degraded_work();
        found.extend(work.map(|says| Wrong::new("queues", says, WORK_NEXT)));
        for mesh in &self.meshes {
            self.wrong_with(mesh, &mut found);
        }
        found.extend(self.wrong_files());
        found
    }

    fn wrong_with(&self, mesh: &MeshState, found: &mut Vec<Wrong>) {
        let name = &mesh.mesh.name;
        let sync = format!("sync of mesh {name}");
        let view = mesh.sync.view();
        if view.split {
            let (says, next) = (split::says(name.as_str()), split::next(name.as_str()));
            found.push(Wrong::new(sync.as_str(), says, next));
        }
        let view = view.head;
        if view.paused {
            let says = format!(
                "the data of mesh {name} is not sent to the others since one op was refused too often; everything goes on here. `heddle doctor` lists it, `heddle doctor --resume-sync {name}` goes on"
            );
            found.push(Wrong::new(sync.as_str(), says, ""));
        }
        if view.needs_resync {
            let says = format!(
                "the broker's log of mesh {name} has a gap; some data of the others may be missing here. `heddle doctor --resume-sync {name}` reads it again"
            );
            found.push(Wrong::new(sync.as_str(), says, ""));
        }
        let kept = mesh.kept_in_words();
        found.extend(kept.map(|says| Wrong::new(sync.as_str(), says, "")));
        let trouble = mesh.trouble();
        let door = format!("door of mesh {name}");
        found.extend(trouble.map(|says| Wrong::new(door, says, "")));
        let link = format!("link of mesh {name}");
        if let Some(why) = mesh.out_of_reach() {
            found.push(Wrong::new(link, why, LINK_NEXT));
        } else if let Some((why, takes_some)) = mesh.refusals.told(self.clock.mono()) {
            let takes = if takes_some {
                "less than is sent"
            } else {
                "nothing for now"
            };
            let says = format!(
                "the broker of mesh {name} takes {takes} ({why}); what was accepted waits and is tried again"
            );
            found.push(Wrong::new(link, says, WAITS_NEXT));
        }
    }

    /// What the doctor has found and nobody has seen mended since.
    fn wrong_files(&self) -> Vec<Wrong> {
        let looked = lock(&self.looked);
        let Some((at, findings)) = looked.as_ref() else {
            return Vec::new();
        };
        let at = at.to_rfc3339();
        let wrong = findings.iter().map(|finding| {
            let Finding {
                check, says, next, ..
            } = finding;
            let says = format!(
                "{check}: {} (found by `heddle doctor` at {at}; it looks again when it is run)",
                says.replace('\n', " ")
            );
            Wrong::new(check.as_str(), says, next.as_str())
        });
        wrong.collect()
    }

    /// Whether the doctor's last look is among what is wrong.
    pub(crate) fn has_wrong_files(&self) -> bool {
        lock(&self.looked).is_some()
    }

    /// Keeps what a look at the files has found, in place of what the one before had.
    pub(crate) fn keep_looked(&self, findings: &[Finding]) {
        let is_kept = |one: &&Finding| !one.ok && FILES.contains(&one.check.as_str());
        let kept: Vec<Finding> = findings.iter().filter(is_kept).cloned().collect();
        *lock(&self.looked) = (!kept.is_empty()).then(|| (self.clock.wall(), kept));
    }
}

/// The doctor's findings with everything of the list that they do not tell yet.
pub(crate) fn with_all(mut findings: Vec<Finding>, wrong: Vec<Wrong>) -> Vec<Finding> {
    for one in wrong {
        if findings
            .iter()
            .any(|found| found.check == one.check && !found.ok)
        {
            continue;
        }
        findings.retain(|found| found.check != one.check);
        findings.push(Finding {
            check: one.check,
            ok: false,
            says: one.says,
            next: one.next,
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: &str, ok: bool) -> Finding {
        Finding {
            check: check.to_owned(),
            ok,
            says: "of the doctor".to_owned(),
            next: String::new(),
        }
    }

    #[test]
    fn whatever_is_wrong_is_told_by_the_doctor_once_and_in_its_own_words_where_it_has_some() {
        let findings = vec![
            finding("disk", true),
            finding("inbox", false),
            finding("modes", true),
        ];
        let wrong = |check: &str| Wrong::new(check, "of the list", "do");
        let all = with_all(
            findings,
            vec![wrong("disk"), wrong("inbox"), wrong("queues")],
        );
        let told: Vec<(&str, bool, &str)> = all
            .iter()
            .map(|one| (one.check.as_str(), one.ok, one.says.as_str()))
            .collect();
        let expected = [
            ("inbox", false, "of the doctor"),
            ("modes", true, "of the doctor"),
            ("disk", false, "of the list"),
            ("queues", false, "of the list"),
        ];
        assert_eq!(told, expected);
    }
}
