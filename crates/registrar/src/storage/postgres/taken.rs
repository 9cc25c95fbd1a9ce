//! Taking over what another authority has written about a mesh.

use heddle_core::ids::MeshId;

use super::links::{self, Linked};
use super::tx::Tx;
use super::{load, write};
use crate::carry::{Part, Taken, Unit};
use crate::chain::Link;
use crate::kept::Bound;
use crate::rows::Row;
use crate::storage::error::StorageError;
use crate::tally::Tally;

type Answer<T> = Result<T, StorageError>;

/// Two brokers may be told by one home at once.
const LINE_UP: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7264517))";
const TAKEN: &str = "
    SELECT coalesce(max(through), 0), coalesce(bool_or(is_whole), false) FROM effect_taken WHERE mesh_id = $1";
const TAKE: &str = "
    INSERT INTO effect_taken (mesh_id, through, is_whole, noted_at) VALUES ($1, $2, $3, $4)";
const BOUND: &str =
    "SELECT replay_key FROM effect_consume WHERE mesh_id = $1 AND logical_request_key = $2";

pub(super) async fn taken(transaction: &Tx<'_>, mesh: MeshId) -> Answer<Taken> {
    let id = mesh.0.to_bytes().to_vec();
    let row = transaction.query_one(TAKEN, &[&id]).await?;
    let through: i64 = row.try_get(0)?;
    Ok(Taken {
        through: u64::try_from(through).unwrap_or(0),
        is_whole: row.try_get(1)?,
        skipped: 0,
    })
}

/// With the link that stands for it, where it was the next one.
pub(super) async fn take(
    transaction: &Tx<'_>,
    mesh: MeshId,
    part: &Part,
    expected: Option<Link>,
) -> Answer<(Taken, Option<Link>)> {
    let line = format!("taking over {mesh}");
    transaction.execute(LINE_UP, &[&line]).await?;
    let before = taken(transaction, mesh).await?;
    if !part.is_next(&before) {
        return Ok((before, None));
    }
    let (mut rows, mut skipped, mut tally) = (Vec::new(), 0, Tally::default());
    for unit in &part.units {
        if let Unit::Damaged { .. } = unit {
            if let Some((key, line)) = unit.lost(part.at)
                && tally.lose(&key)
            {
                write::audit(transaction, mesh, &line).await?;
            }
            continue;
        }
        let is_written = write_unit(transaction, mesh, unit, &mut tally).await?;
        skipped += u64::from(!is_written);
        rows.extend(unit.rows().into_iter().filter(|_| is_written));
    }
    let id = mesh.0.to_bytes().to_vec();
    let through = i64::try_from(part.through()).unwrap_or(i64::MAX);
    transaction
        .execute(TAKE, &[&id, &through, &part.is_last, &part.at.0])
        .await?;
    let said = part.said();
    let linked = Linked {
        mesh: Some(mesh),
        rows: &rows,
        more: said.as_bytes(),
        seal: None,
        tally,
    };
    let link = links::append(transaction, expected, &linked).await?;
    let taken = Taken {
        through: part.through(),
        is_whole: part.is_last,
        skipped,
    };
    Ok((taken, Some(link)))
}

/// False where something else stands in its place.
async fn write_unit(
    transaction: &Tx<'_>,
    mesh: MeshId,
    unit: &Unit,
    tally: &mut Tally,
) -> Answer<bool> {
    match unit {
        Unit::Audit(row) => write::audit(transaction, mesh, row).await.map(|()| true),
        Unit::Step { of, row, .. } => {
            let id = mesh.0.to_bytes().to_vec();
            let bound = transaction
                .query_opt(BOUND, &[&id, &row.key.as_str()])
                .await?;
            let bound: Option<Vec<u8>> = bound.map(|row| row.try_get(0)).transpose()?;
            if bound.as_deref() != Some(&of.0[..]) {
                return Ok(false);
            }
            let row = Row::Step(row.clone());
            insert(transaction, mesh, (&row, unit.bound()), tally).await
        }
        unit => {
            for row in unit.rows() {
                if !insert(transaction, mesh, (&row, unit.bound()), tally).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

async fn insert(
    transaction: &Tx<'_>,
    mesh: MeshId,
    (row, bound): (&Row, Bound),
    tally: &mut Tally,
) -> Answer<bool> {
    if !write::insert(transaction, mesh, row, bound).await? {
        return Ok(false);
    }
    // A decision knows its envelope only, which came before it.
    let key = match row.key() {
        Ok(key) => Some(key.clone()),
        Err(envelope) => load::key_of_envelope(transaction, mesh, envelope).await?,
    };
    if let Some(key) = key {
        tally.add(&key, row);
    }
    Ok(true)
}
