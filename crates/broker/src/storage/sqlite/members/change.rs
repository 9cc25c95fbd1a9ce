//! Blocking a member, and giving it a role: decided and written in one transaction.

use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::{Change, ChangeVerdict, decide_change};
use rusqlite::{Connection, params};

use super::super::columns::{member_key, mesh_key};
use super::super::error::JobError;
use super::keys;
use super::revoke::SEEN;
use crate::members::Standing;

const BLOCK: &str = "
UPDATE member_standing SET blocked_at = ?3 WHERE mesh_id = ?1 AND member_id = ?2";

const GRANT: &str = "
UPDATE member_standing SET role = ?3, blocked_at = NULL WHERE mesh_id = ?1 AND member_id = ?2";

const END_SESSIONS: &str = "DELETE FROM member_session WHERE mesh_id = ?1 AND member_id = ?2";

pub(super) fn change(
    connection: &Connection,
    mesh: MeshId,
    (by, member): (MemberId, MemberId),
    change: Change,
    at: WallMs,
) -> Result<ChangeVerdict, JobError> {
    let standings = keys::standings(connection, mesh)?;
    let facts = |wanted: MemberId| {
        let mut found = standings.iter().filter(|one| one.member == wanted);
        found.next().map(Standing::facts)
    };
    let others = standings
        .iter()
        .filter(|one| one.member != member && one.is_owner());
    let verdict = decide_change(facts(by), facts(member), others.count(), change);
    if verdict != ChangeVerdict::Changed {
        return Ok(verdict);
    }
    let (mesh, member) = (mesh_key(mesh), member_key(member));
    match change {
        Change::Block => {
            connection
                .prepare_cached(BLOCK)?
                .execute(params![mesh, member, at.0])?;
            connection
                .prepare_cached(END_SESSIONS)?
                .execute(params![mesh, member])?;
            connection
                .prepare_cached(SEEN)?
                .execute(params![mesh, member, at.0])?;
        }
        Change::Grant(role) => {
            connection
                .prepare_cached(GRANT)?
                .execute(params![mesh, member, role.as_str()])?;
        }
    }
    Ok(verdict)
}
