//! Reading memory: by key, by words, or all of it page by page.

use heddle_core::clock::WallMs;
use heddle_core::data::DataKey;
use heddle_core::ids::MeshId;
use heddle_core::lamport::{PeerId, Stamp};
use rusqlite::{Connection, Row, Rows, params};

use crate::cells::Cells;
use crate::data::seal::{MEMORY, memory_whole};
use crate::error::StoreError;
use crate::inbox::SearchQuery;
use crate::store::Store;
use crate::unreadable::{LeftOut, or_without};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRow {
    pub place: i64,
    pub key: String,
    /// Canonical JSON.
    pub value: String,
    pub tags: Vec<String>,
    pub stamp: Stamp,
    pub incarnation: u64,
    pub updated_at: WallMs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryMatch {
    /// Youngest stamp first.
    Key(DataKey),
    /// Best match first.
    Words(SearchQuery),
    /// In order of keys and peers, behind the row at this place.
    All { after: Option<i64> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFilter {
    pub mesh: MeshId,
    /// Whose; `None` for everybody's.
    pub peer: Option<PeerId>,
    pub matches: MemoryMatch,
    pub limit: usize,
    /// Bytes of values on one page, but at least one row.
    pub bytes_max: usize,
}

macro_rules! memory_columns {
    () => {
        concat!(
            "place, key, value, tags, lamport, peer, op_id, incarnation, updated_at, ",
            memory_whole!()
        )
    };
}

pub(crate) const BY_KEY: &str = concat!(
    "SELECT ",
    memory_columns!(),
    " FROM memory WHERE mesh_id = ?1 AND key = ?3 AND (?2 IS NULL OR peer = ?2)
      ORDER BY lamport DESC, peer"
);

// The reader stops at the end of a page: rows that cannot be read fill none.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    memory_columns!(),
    " FROM memory WHERE mesh_id = ?1 AND (key, peer) > (?3, ?4)
        AND (?2 IS NULL OR peer = ?2)
      ORDER BY key, peer"
);

pub(crate) const PLACE_OF: &str = "SELECT key, peer FROM memory WHERE place = ?1 AND mesh_id = ?2";

pub(crate) const SEARCH: &str = concat!(
    "SELECT ",
    memory_columns!(),
    " FROM (SELECT rowid AS found, rank AS score FROM memory_fts WHERE memory_fts MATCH ?3)
        CROSS JOIN memory ON place = found
      WHERE mesh_id = ?1 AND (?2 IS NULL OR peer = ?2)
      ORDER BY score, place DESC LIMIT ?4"
);

/// Where the key stands among them.
const KEY_AT: usize = 1;

/// Rows beyond those that were asked for which a search looks at, should some of them not be readable.
const SPARE_ROWS: i64 = 100;

/// Rows that one search by parts of a text reads, and how many bytes of them.
const SCAN_ROWS_MAX: i64 = 20_000;
const SCAN_BYTES_MAX: usize = 64 << 20;

pub(crate) const SCAN: &str = concat!(
    "SELECT ",
    memory_columns!(),
    " FROM memory WHERE ?3 = '' AND mesh_id = ?1 AND (?2 IS NULL OR peer = ?2)
      ORDER BY place DESC LIMIT ?4"
);

impl Store {
    /// The rows, and whether there are more behind the last of them.
    pub async fn recall(&self, filter: MemoryFilter) -> Result<(Vec<MemoryRow>, bool), StoreError> {
        let left_out = self.left_out.clone();
        self.read(move |connection| {
            let mesh = filter.mesh.0.to_bytes();
            let peer = filter.peer.as_ref().map(PeerId::as_str);
            // One more than asked for tells whether there are more.
            let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX - SPARE_ROWS - 1) + 1;
            match &filter.matches {
                MemoryMatch::Key(key) => {
                    let mut statement = connection.prepare_cached(BY_KEY)?;
                    let rows = statement.query(params![mesh, peer, key.as_str()])?;
                    take_of_key(rows, &filter, left_out.as_ref())
                }
                MemoryMatch::Words(words) if words.has_parts() => {
                    let sql = if words.has_words() { SEARCH } else { SCAN };
                    let mut statement = connection.prepare_cached(sql)?;
                    let rows =
                        statement.query(params![mesh, peer, words.as_str(), SCAN_ROWS_MAX])?;
                    take_with_parts(rows, &filter, words, left_out.as_ref())
                }
                MemoryMatch::Words(words) => {
                    let mut statement = connection.prepare_cached(SEARCH)?;
                    let rows =
                        statement.query(params![mesh, peer, words.as_str(), limit + SPARE_ROWS])?;
                    take(rows, &filter, left_out.as_ref())
                }
                MemoryMatch::All { after } => {
                    let (key, owner) = behind(connection, filter.mesh, *after)?;
                    let mut statement = connection.prepare_cached(LIST)?;
                    let rows = statement.query(params![mesh, peer, key, owner])?;
                    take(rows, &filter, left_out.as_ref())
                }
            }
        })
        .await
    }
}

/// Where a page goes on; a place that is not there any more begins anew.
fn behind(
    connection: &Connection,
    mesh: MeshId,
    after: Option<i64>,
) -> Result<(String, String), StoreError> {
    let mut statement = connection.prepare_cached(PLACE_OF)?;
    let mut rows = statement.query(params![after, mesh.0.to_bytes()])?;
    match rows.next()? {
        Some(row) => Ok((row.get(0)?, row.get(1)?)),
        None => Ok(Default::default()),
    }
}

fn take(
    mut rows: Rows<'_>,
    filter: &MemoryFilter,
    left_out: Option<&LeftOut>,
) -> Result<(Vec<MemoryRow>, bool), StoreError> {
    let mut found = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        if found.len() == filter.limit || bytes > filter.bytes_max {
            return Ok((found, true));
        }
        let read = or_without(read(row), left_out, ("memory", row, KEY_AT))?;
        let Some(row) = read.flatten() else {
            continue;
        };
        bytes += row.value.len();
        found.push(row);
    }
    Ok((found, false))
}

/// Whoever asks for this very key is told that it cannot be read, and not that there is none. Of several owners those that
/// can be read are shown.
fn take_of_key(
    mut rows: Rows<'_>,
    filter: &MemoryFilter,
    left_out: Option<&LeftOut>,
) -> Result<(Vec<MemoryRow>, bool), StoreError> {
    let (mut found, mut bytes, mut damage) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        if found.len() == filter.limit || bytes > filter.bytes_max {
            return Ok((found, true));
        }
        match (read(row), left_out) {
            (Ok(row), _) => {
                bytes += row.as_ref().map_or(0, |row| row.value.len());
                found.extend(row);
            }
            (Err(StoreError::Corrupt(why)), Some(left_out)) => {
                let key = row.get_ref(KEY_AT)?.as_bytes().unwrap_or_default();
                left_out.note("memory", key);
                damage.get_or_insert(why);
            }
            (Err(error), _) => return Err(error),
        }
    }
    match damage {
        Some(why) if found.is_empty() => Err(StoreError::Corrupt(why)),
        _ => Ok((found, false)),
    }
}

/// Those in which every part of the query stands. What no bound lets be read may be more.
fn take_with_parts(
    mut rows: Rows<'_>,
    filter: &MemoryFilter,
    query: &SearchQuery,
    left_out: Option<&LeftOut>,
) -> Result<(Vec<MemoryRow>, bool), StoreError> {
    let mut found = Vec::new();
    let (mut count, mut scanned, mut bytes) = (0, 0, 0);
    while let Some(row) = rows.next()? {
        count += 1;
        let (cells, of) = (row, ("memory", row, KEY_AT));
        let Some(row) = or_without(read_text(cells), left_out, of)?.flatten() else {
            continue;
        };
        scanned += row.value.len();
        // Canonical JSON has such letters as they are.
        if query.is_in(&format!(
            "{}\n{}\n{}",
            row.key,
            row.value,
            row.tags.join(" ")
        )) {
            if found.len() == filter.limit || bytes > filter.bytes_max {
                return Ok((found, true));
            }
            let read = or_without(read(cells), left_out, of)?.flatten();
            bytes += read.as_ref().map_or(0, |row| row.value.len());
            found.extend(read);
        }
        if scanned > SCAN_BYTES_MAX || count == SCAN_ROWS_MAX {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

/// None for the mark of a forgotten one.
fn read(row: &Row<'_>) -> Result<Option<MemoryRow>, StoreError> {
    read_with(row, Cells::value_or_null)
}

/// Whatever text its value is: for what looks at many rows and shows few.
fn read_text(row: &Row<'_>) -> Result<Option<MemoryRow>, StoreError> {
    read_with(row, Cells::get)
}

fn read_with<'r, 's>(
    row: &'r Row<'s>,
    value: impl FnOnce(&mut Cells<'r, 's>) -> Result<Option<String>, StoreError>,
) -> Result<Option<MemoryRow>, StoreError> {
    MEMORY.check(row)?;
    let mut cells = Cells::of("memory", row).known_by(KEY_AT);
    let (place, key) = (cells.get()?, cells.get()?);
    let Some(value) = value(&mut cells)? else {
        return Ok(None);
    };
    Ok(Some(MemoryRow {
        place,
        key,
        value,
        tags: cells.parsed(|text| serde_json::from_str(text))?,
        stamp: cells.stamp()?,
        incarnation: cells.count()?,
        updated_at: cells.wall()?,
    }))
}
