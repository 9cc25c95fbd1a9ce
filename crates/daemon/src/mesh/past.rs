//! Who was a member of a mesh and is none any more: what they wrote is shown under their names.

use std::collections::BTreeMap;

use heddle_core::ids::MemberId;
use heddle_core::names::MemberName;
use heddle_wire::broker::Roster;

use super::MeshState;
use crate::shared::write;

impl MeshState {
    /// Those who were members, with who is in the roster of before and not in the new one.
    pub(super) fn past_behind(
        &self,
        before: &Roster,
        now: &Roster,
    ) -> BTreeMap<MemberId, MemberName> {
        let mut past = write(&self.past);
        let were = before.members.iter().map(|m| (m.member, m.name.clone()));
        past.extend(were);
        past.retain(|member, _| now.members.iter().all(|m| m.member != *member));
        past.clone()
    }

    /// As its broker tells of its members, those of the past among them.
    pub(crate) fn note_past(&self, was: impl Iterator<Item = (MemberId, MemberName)>) {
        write(&self.past).extend(was);
    }
}
