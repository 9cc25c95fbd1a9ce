//! The pages of a file that SQLite does not open any more: which of them begin a table, and how a row looks.
//!
//! Only shapes are looked at here, and every number of a page is held against the page before it is used:
//! the bytes are damaged, or somebody else's.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// What this program's files have, and what is assumed where the file cannot say.
pub(super) const PAGE_BYTES: usize = 4096;
const LOG_HEAD_BYTES: usize = 32;
const FRAME_HEAD_BYTES: usize = 24;
/// Steps from a root to a leaf; real trees have a handful.
const DEPTH_MAX: usize = 20;
/// Columns of a row that are looked at.
const COLUMNS_MAX: usize = 200;

/// Rows by number, or rows by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Numbered,
    Keyed,
}

/// A cell of a row, by its kind alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    Number,
    Blob,
    Text,
}

/// Writes the pages that the log beside a file holds over those of its copy, up to its last commit.
pub(super) fn take_log_in(copy: &mut File, log: &Path) -> io::Result<()> {
    let mut log = match heddle_sqlite::open_plain(log) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut head = [0; LOG_HEAD_BYTES];
    if log.read_exact(&mut head).is_err() || number(&head, 8, 4) != PAGE_BYTES {
        return Ok(());
    }
    let salts = head[16..24].to_vec();
    let mut waiting: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut frame = vec![0; FRAME_HEAD_BYTES + PAGE_BYTES];
    // A frame of an earlier life of the log, or half of one, ends it.
    while log.read_exact(&mut frame).is_ok() && frame[8..16] == salts {
        waiting.push((number(&frame, 0, 4), frame[FRAME_HEAD_BYTES..].to_vec()));
        if number(&frame, 4, 4) == 0 {
            continue;
        }
        for (page, bytes) in waiting.drain(..) {
            write(copy, page, &bytes)?;
        }
    }
    Ok(())
}

pub(super) fn write(file: &mut File, page: usize, bytes: &[u8]) -> io::Result<()> {
    let at = page.saturating_sub(1).saturating_mul(PAGE_BYTES);
    file.seek(SeekFrom::Start(at as u64))?;
    file.write_all(bytes)
}

/// The first page of a file that lists no table yet; what it says of itself fits the rest of the file.
pub(super) fn empty_list(page_count: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..16].copy_from_slice(b"SQLite format 3\0");
    page[16..18].copy_from_slice(&u16::try_from(PAGE_BYTES).unwrap_or(4096).to_be_bytes());
    // A journal and no log; the payload fractions that every file has.
    page[18..24].copy_from_slice(&[1, 1, 0, 64, 32, 32]);
    page[24..28].copy_from_slice(&1_u32.to_be_bytes());
    page[28..32].copy_from_slice(&page_count.to_be_bytes());
    // The newest format of the list, and UTF-8.
    page[44..48].copy_from_slice(&4_u32.to_be_bytes());
    page[56..60].copy_from_slice(&1_u32.to_be_bytes());
    page[92..96].copy_from_slice(&1_u32.to_be_bytes());
    page[96..100].copy_from_slice(&3_045_000_u32.to_be_bytes());
    // An empty leaf, whose cells would begin at the page's end.
    page[100] = 0x0d;
    page[105..107].copy_from_slice(&u16::try_from(PAGE_BYTES).unwrap_or(4096).to_be_bytes());
    page
}

/// The first page of a file with the header of a whole one; its list of tables stays as it is.
pub(super) fn plain_header(mut first: Vec<u8>, page_count: u32) -> Vec<u8> {
    let plain = empty_list(page_count);
    // What the version counts and what the program left there stays.
    let kept = [40..44, 48..52, 60..72];
    let is_kept = |at: &usize| kept.iter().any(|range| range.contains(at));
    for at in (0..100).filter(|at| !is_kept(at)) {
        first[at] = plain[at];
    }
    first
}

/// Reads pages; what cannot be read is no page.
pub(super) struct Pages {
    file: File,
    pub(super) count: usize,
}

impl Pages {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = heddle_sqlite::open_plain(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        Ok(Self {
            file,
            count: bytes / PAGE_BYTES,
        })
    }

    fn read(&mut self, page: usize) -> Option<Vec<u8>> {
        if page < 2 || page > self.count {
            return None;
        }
        let mut bytes = vec![0; PAGE_BYTES];
        let at = (page - 1).checked_mul(PAGE_BYTES)?;
        self.file.seek(SeekFrom::Start(at as u64)).ok()?;
        self.file.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Every page that begins a tree: a page of a tree that no other page leads to.
    pub(super) fn roots(&mut self) -> Vec<usize> {
        let (mut trees, mut children) = (Vec::new(), BTreeSet::new());
        for page in 2..=self.count {
            let Some(bytes) = self.read(page) else {
                continue;
            };
            if shape(&bytes).is_some() {
                trees.push(page);
                children.extend(children_of(&bytes));
            }
        }
        trees.retain(|page| !children.contains(page));
        trees
    }

    /// The kind of the tree that begins here, and the cells of a row of it where it has one.
    pub(super) fn look(&mut self, root: usize) -> Option<(Kind, Option<Vec<Cell>>)> {
        let mut page = root;
        let mut found = None;
        for _ in 0..DEPTH_MAX {
            let bytes = self.read(page)?;
            let (kind, is_leaf) = shape(&bytes)?;
            if found.is_some_and(|found| found != kind) {
                return None;
            }
            found = Some(kind);
            if is_leaf || kind == Kind::Keyed && cell_count(&bytes) > 0 {
                return Some((kind, row_of(&bytes, kind, is_leaf)));
            }
            page = *children_of(&bytes).first()?;
        }
        None
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    let part = bytes.get(at..at + len).unwrap_or_default();
    part.iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn cell_count(page: &[u8]) -> usize {
    number(page, 3, 2)
}

/// What a page of a tree says of itself, if all of its cells lie in it.
fn shape(page: &[u8]) -> Option<(Kind, bool)> {
    let (kind, is_leaf) = match page.first()? {
        0x0d => (Kind::Numbered, true),
        0x05 => (Kind::Numbered, false),
        0x0a => (Kind::Keyed, true),
        0x02 => (Kind::Keyed, false),
        _ => return None,
    };
    let (head, cells) = (if is_leaf { 8 } else { 12 }, cell_count(page));
    let end = head + 2 * cells;
    let lies_in = |cell: usize| {
        let at = number(page, head + 2 * cell, 2);
        at >= end && at < page.len()
    };
    let fits = end <= page.len() && (is_leaf || cells > 0 || number(page, 8, 4) > 1);
    (fits && page[7] <= 60 && (0..cells).all(lies_in)).then_some((kind, is_leaf))
}

fn children_of(page: &[u8]) -> Vec<usize> {
    match shape(page) {
        Some((_, false)) => {
            let cells = (0..cell_count(page)).map(|cell| number(page, 12 + 2 * cell, 2));
            let mut children: Vec<usize> = cells.map(|at| number(page, at, 4)).collect();
            children.push(number(page, 8, 4));
            children
        }
        _ => Vec::new(),
    }
}

/// The cells of the first row of a page.
fn row_of(page: &[u8], kind: Kind, is_leaf: bool) -> Option<Vec<Cell>> {
    if cell_count(page) == 0 {
        return None;
    }
    let head = if is_leaf { 8 } else { 12 };
    let mut at = number(page, head, 2) + if is_leaf { 0 } else { 4 };
    let _bytes = varint(page, &mut at)?;
    if kind == Kind::Numbered {
        varint(page, &mut at)?;
    }
    let start = at;
    let head_bytes = usize::try_from(varint(page, &mut at)?).ok()?;
    let end = start
        .checked_add(head_bytes)
        .filter(|end| *end <= page.len())?;
    let mut cells = Vec::new();
    while at < end && cells.len() < COLUMNS_MAX {
        cells.push(match varint(page, &mut at)? {
            0 => Cell::Null,
            1..=9 => Cell::Number,
            10 | 11 => return None,
            other if other % 2 == 0 => Cell::Blob,
            _ => Cell::Text,
        });
    }
    Some(cells)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for place in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if place == 8 {
            return Some(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_under_an_empty_list_is_one_that_sqlite_opens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let mut bytes = empty_list(3);
        bytes.resize(3 * PAGE_BYTES, 0xa5);
        std::fs::write(&path, bytes).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = "SELECT count(*) FROM sqlite_schema";
        let count: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0);
    }

    #[test]
    fn roots_are_found_by_their_shape_and_rows_by_their_cells() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        let made = "CREATE TABLE many (n INTEGER PRIMARY KEY, t TEXT, b BLOB);
            CREATE TABLE keyed (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID;
            CREATE TABLE hollow (x TEXT);
            INSERT INTO keyed VALUES ('a', 7), ('b', NULL);
            WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 500)
            INSERT INTO many SELECT n, 'text', zeroblob(100) FROM up;";
        connection.execute_batch(made).unwrap();
        let root = |name: &str| {
            let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            let page: i64 = connection.query_row(sql, [name], |row| row.get(0)).unwrap();
            usize::try_from(page).unwrap()
        };
        let (many, keyed, hollow) = (root("many"), root("keyed"), root("hollow"));
        drop(connection);
        let mut pages = Pages::open(&path).unwrap();
        let mut roots = vec![many, keyed, hollow];
        roots.sort_unstable();
        assert_eq!(pages.roots(), roots);
        let row = vec![Cell::Null, Cell::Text, Cell::Blob];
        assert_eq!(pages.look(many), Some((Kind::Numbered, Some(row))));
        let row = vec![Cell::Text, Cell::Number];
        assert_eq!(pages.look(keyed), Some((Kind::Keyed, Some(row))));
        assert_eq!(pages.look(hollow), Some((Kind::Numbered, None)));
        assert_eq!(pages.look(1), None);
        assert_eq!(pages.look(9_999), None);
    }

    #[test]
    fn no_bytes_make_it_read_beyond_a_page() {
        let mut state = 0x9e37_79b9_u32;
        for first in [0x0d, 0x05, 0x0a, 0x02] {
            for _ in 0..2_000 {
                let mut page = vec![0; PAGE_BYTES];
                for byte in page.iter_mut().take(64) {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    *byte = u8::try_from(state & 0xff).unwrap();
                }
                page[0] = first;
                page[3] = 0;
                if let Some((kind, is_leaf)) = shape(&page) {
                    let _ = (row_of(&page, kind, is_leaf), children_of(&page));
                }
            }
        }
    }
}
