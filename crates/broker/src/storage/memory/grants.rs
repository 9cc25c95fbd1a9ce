//! What the oracle's members let each other send them.

use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::{Capabilities, GrantChange};

use super::super::error::StorageError;
use super::MemoryStorage;
use super::tables::Tables;
use crate::members::{Granted, Grants};

impl Tables {
    /// What this recipient lets the sender send it.
    pub(super) fn granted(&self, sender: MemberId, recipient: MemberId) -> Capabilities {
        let row = self.grants.get(&(sender, recipient));
        row.copied().unwrap_or(Capabilities::ALL)
    }
}

impl Grants for MemoryStorage {
    async fn change_grant(
        &self,
        mesh: MeshId,
        member: MemberId,
        peer: MemberId,
        change: GrantChange,
    ) -> Result<Granted, StorageError> {
        self.on(mesh, |tables| {
            for one in [member, peer] {
                if !tables.members.contains_key(&one) {
                    return Err(StorageError::UnknownMember(one));
                }
            }
            let before = tables.granted(peer, member);
            let capabilities = change.apply(before);
            if capabilities == Capabilities::ALL {
                tables.grants.remove(&(peer, member));
            } else {
                tables.grants.insert((peer, member), capabilities);
            }
            Ok(Granted {
                capabilities,
                changed: capabilities != before,
            })
        })
    }

    async fn grants(
        &self,
        mesh: MeshId,
        member: MemberId,
    ) -> Result<Vec<(MemberId, Capabilities)>, StorageError> {
        self.on(mesh, |tables| {
            let rows = tables.grants.iter();
            let mine = rows.filter(|((_, recipient), _)| *recipient == member);
            Ok(mine.map(|((peer, _), granted)| (*peer, *granted)).collect())
        })
    }
}
