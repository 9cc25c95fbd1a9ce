//! How old a mesh certainly is, and what existed by when. Everything but the reading is done under the mesh's lock.

use std::time::Duration;

use deadpool_postgres::Transaction;
use heddle_core::age::AgeMark;
use heddle_core::clock::{BootTime, WallMs};
use heddle_core::ids::{HistoryId, MeshId};

use super::super::births::{cell, of_cell};
use super::columns::{Columns, integer, mesh_key};
use super::error::JobError;
use super::sql::{Params, count, execute, query_opt};

const READ: &str = "SELECT age_ms, boot_id, boot_ms FROM age_clock WHERE mesh_id = $1";

const WRITE: &str = "
INSERT INTO age_clock (mesh_id, age_ms, boot_id, boot_ms) VALUES ($1, $2, $3, $4)
ON CONFLICT (mesh_id) DO UPDATE SET age_ms = excluded.age_ms, boot_id = excluded.boot_id,
    boot_ms = excluded.boot_ms";

// The newest place of the mesh, unless a note stands there or behind it.
const NOTE: &str = "
INSERT INTO age_birth (mesh_id, epoch, seq, age_ms)
SELECT m.mesh_id, m.epoch, m.next_seq - 1, $2 FROM mesh m
WHERE m.mesh_id = $1 AND NOT EXISTS (
    SELECT 1 FROM age_birth b WHERE b.mesh_id = $1 AND (b.epoch, b.seq) >= (m.epoch, m.next_seq - 1))";

// Ages rise with places, so the newest note up to an age is found from the end.
const BORN_BY: &str = "
SELECT epoch, seq FROM age_birth WHERE mesh_id = $1 AND age_ms <= $2
ORDER BY epoch DESC, seq DESC LIMIT 1";

const FORGET: &str = "DELETE FROM age_birth WHERE mesh_id = $1 AND (epoch, seq) < ($2, $3)";

// How long ids are kept is a setting: there are a few lengths, and the index leads from one to the next.
const NEXT_LENGTH: &str = "
SELECT min(expires_at - first_seen_at) FROM client_message_dedupe
WHERE mesh_id = $1 AND expires_at IS NOT NULL AND expires_at - first_seen_at > $2";

// IMPORTANT: the mark and the deletion are one statement under the mesh's lock: an id is forgotten here, or
// answered as known, never both (C36).
const SWEEP: &str = "
WITH due AS (
    SELECT id_key, epoch, seq FROM client_message_dedupe
    WHERE mesh_id = $1 AND expires_at IS NOT NULL AND expires_at - first_seen_at = $2
        AND (epoch, seq) <= ($3, $4)
    ORDER BY epoch, seq LIMIT $5 FOR UPDATE),
marked AS (
    UPDATE message_history h SET is_expired = TRUE FROM due
    WHERE h.mesh_id = $1 AND h.epoch = due.epoch AND h.seq = due.seq)
DELETE FROM client_message_dedupe d USING due WHERE d.mesh_id = $1 AND d.id_key = due.id_key";

/// Rows forgotten in one step, which has to stay short for everybody else.
const SWEEP_ROWS_MAX: i64 = 500;

pub(super) async fn read(
    transaction: &Transaction<'_>,
    mesh: MeshId,
) -> Result<Option<AgeMark>, JobError> {
    let Some(row) = query_opt(transaction, READ, &[&mesh_key(mesh)]).await? else {
        return Ok(None);
    };
    let boot: Option<Vec<u8>> = row.try_get(1)?;
    let boot: Option<[u8; 16]> = boot.and_then(|bytes| bytes.try_into().ok());
    let since: Option<i64> = row.try_get(2)?;
    Ok(Some(AgeMark {
        age: of_cell(row.try_get(0)?),
        // Nothing goes by it: several machines keep this clock.
        wall: WallMs(0),
        boot: boot.zip(since).map(|(boot, since)| BootTime {
            boot: u128::from_be_bytes(boot),
            since: of_cell(since),
        }),
    }))
}

pub(super) async fn keep(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    mark: AgeMark,
    births_from: Duration,
) -> Result<Duration, JobError> {
    let key = mesh_key(mesh);
    let before = read(transaction, mesh).await?;
    let before = before.filter(|before| before.age > mark.age);
    if before.is_none() {
        let boot = mark.boot.map(|boot| boot.boot.to_be_bytes().to_vec());
        let since = mark.boot.map(|boot| cell(boot.since));
        let age = cell(mark.age);
        execute(transaction, WRITE, &[&key, &age, &boot, &since]).await?;
    }
    let age = before.unwrap_or(mark).age;
    execute(transaction, NOTE, &[&key, &cell(age)]).await?;
    if let Some(before) = births_from.checked_sub(Duration::from_millis(1))
        && let Some(last) = born_by(transaction, mesh, before).await?
    {
        let (epoch, seq) = (integer(last.epoch), integer(last.seq));
        execute(transaction, FORGET, &[&key, &epoch, &seq]).await?;
    }
    Ok(age)
}

/// The newest place of which it is known that everything up to it existed when the mesh was so old.
pub(super) async fn born_by(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    age: Duration,
) -> Result<Option<HistoryId>, JobError> {
    let row = query_opt(transaction, BORN_BY, &[&mesh_key(mesh), &cell(age)]).await?;
    row.map(|row| Columns::of(&row).history_id()).transpose()
}

/// The next longer time for which ids of this mesh are kept; `None` behind the longest.
pub(super) async fn next_length(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    after: i64,
) -> Result<Option<i64>, JobError> {
    let row = query_opt(transaction, NEXT_LENGTH, &[&mesh_key(mesh), &after]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
}

/// One step of the sweep over the ids that are kept for this long.
pub(super) async fn sweep(
    transaction: &Transaction<'_>,
    mesh: MeshId,
    length_ms: i64,
    age: Duration,
) -> Result<usize, JobError> {
    // For longer than they are kept, not as long.
    let length = of_cell(length_ms).saturating_add(Duration::from_millis(1));
    let Some(born) = age.checked_sub(length) else {
        return Ok(0);
    };
    let Some(through) = born_by(transaction, mesh, born).await? else {
        return Ok(0);
    };
    let (epoch, seq) = (integer(through.epoch), integer(through.seq));
    let key = mesh_key(mesh);
    let cells: Params<'_> = &[&key, &length_ms, &epoch, &seq, &SWEEP_ROWS_MAX];
    Ok(count(execute(transaction, SWEEP, cells).await?))
}
