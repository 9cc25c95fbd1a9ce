//! Rows of the outbox that do not fit their keys (`outbox/identity.rs`): each becomes again what its key proves, before anybody
//! is asked who this home is. No id that was ever taken is free by that.
//!
//! One of which nobody can tell what it was stays as a stand-in: it is not sent, and its key keeps its id.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use ulid::Ulid;

use super::Kept;
use crate::outbox::{Identity, Looked, look_at_identities};

const SET: &str = "
    UPDATE OR IGNORE outbox SET row_id = ?2, id_key = ?3, mesh_id = ?4, member_id = ?5, agent = ?6,
        client_message_id = ?7
    WHERE arrival = ?1";
const STAND_IN: &str = "
    UPDATE outbox SET client_message_id = ?2, member_id = ifnull(?3, member_id) WHERE arrival = ?1";
const NOT_SENT: &str = "
    UPDATE outbox SET status = 'dead', last_error = ?2
    WHERE arrival = ?1 AND (status = 'pending' OR status = 'inflight')";
const LOST: &str =
    "damaged: whose it is does not fit its key, so it is not sent; its broker may have it";

pub(super) fn settle(new: &Connection, kept: &mut [Kept]) -> rusqlite::Result<()> {
    let looked = look_at_identities(new, u64::MAX)?;
    let members = members(&looked);
    let mut mended = Vec::new();
    for one in &looked.changed {
        let row = Ulid::from_bytes(one.now.row);
        mended.push(format!("outbox {row}: {}", one.column()));
        match &one.was {
            Some(was) => put_back(new, one.arrival, was)?,
            None => {
                let member = members.get(&one.now.sender.0);
                new.execute(STAND_IN, params![one.arrival, row.to_string(), member])?;
                new.execute(NOT_SENT, params![one.arrival, LOST])?;
            }
        }
    }
    if let Some(outbox) = kept.iter_mut().find(|kept| kept.table == "outbox") {
        outbox.mended.extend(mended);
    }
    Ok(())
}

fn put_back(new: &Connection, arrival: i64, was: &Identity) -> rusqlite::Result<()> {
    let (mesh, member, agent) = &was.sender;
    let (agent, id) = (
        String::from_utf8_lossy(agent),
        String::from_utf8_lossy(&was.id),
    );
    new.execute(
        SET,
        params![arrival, was.row, was.key, mesh, member, agent, id],
    )?;
    Ok(())
}

/// As whom this home has sent in each mesh, as the keys prove it.
fn members(looked: &Looked) -> BTreeMap<[u8; 16], [u8; 16]> {
    let mut counts: BTreeMap<([u8; 16], [u8; 16]), u64> = BTreeMap::new();
    for ((mesh, member, _), count) in &looked.proven {
        *counts.entry((*mesh, *member)).or_default() += count;
    }
    let mut most: BTreeMap<[u8; 16], ([u8; 16], u64)> = BTreeMap::new();
    for ((mesh, member), count) in counts {
        let best = most.entry(mesh).or_insert((member, count));
        if count > best.1 {
            *best = (member, count);
        }
    }
    most.into_iter()
        .map(|(mesh, (member, _))| (mesh, member))
        .collect()
}

/// The same of a file whose rows fit their keys again.
pub(super) fn proven_members(new: &Connection) -> rusqlite::Result<BTreeMap<[u8; 16], [u8; 16]>> {
    Ok(members(&look_at_identities(new, u64::MAX)?))
}
