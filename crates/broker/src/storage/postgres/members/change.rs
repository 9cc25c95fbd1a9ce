//! Blocking a member, and giving it a role: decided and written in one transaction.

use deadpool_postgres::Transaction;
use heddle_core::clock::WallMs;
use heddle_core::ids::{MemberId, MeshId};
use heddle_core::membership::{Change, ChangeVerdict, decide_change};

use super::super::columns::{member_key, mesh_key};
use super::super::error::JobError;
use super::super::sql::execute;
use super::keys;
use super::revoke::SEEN;
use crate::members::Standing;

const BLOCK: &str = "
UPDATE member_standing SET blocked_at = $3 WHERE mesh_id = $1 AND member_id = $2";

const GRANT: &str = "
UPDATE member_standing SET role = $3, blocked_at = NULL WHERE mesh_id = $1 AND member_id = $2";

const END_SESSIONS: &str = "DELETE FROM member_session WHERE mesh_id = $1 AND member_id = $2";

pub(super) async fn change(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    (by, member): (MemberId, MemberId),
    change: Change,
    at: WallMs,
) -> Result<ChangeVerdict, JobError> {
    let standings = keys::standings(transaction, mesh).await?;
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
            execute(transaction, BLOCK, &[&mesh, &member, &at.0]).await?;
            execute(transaction, END_SESSIONS, &[&mesh, &member]).await?;
            execute(transaction, SEEN, &[&mesh, &member, &at.0]).await?;
        }
        Change::Grant(role) => {
            execute(transaction, GRANT, &[&mesh, &member, &role.as_str()]).await?;
        }
    }
    Ok(verdict)
}
