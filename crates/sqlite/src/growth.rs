//! How long a database file may become: where little of a disk is left, a file is held back before it takes all of it.

use rusqlite::Connection;

/// As many pages as SQLite can count.
const PAGES_MAX: u32 = u32::MAX - 1;

/// From now on the file grows by no more than this: what would need more finds the disk full. `None` lets it grow
/// as it likes. It never shrinks. To be called as a job of the writer, whose connection is the one that grows it.
pub fn bound_growth(connection: &Connection, bytes: Option<u64>) -> rusqlite::Result<()> {
    let pages_max = match bytes {
        None => PAGES_MAX,
        Some(bytes) => pages_within(connection, bytes)?,
    };
    connection.pragma_update_and_check(None, "max_page_count", pages_max, |_| Ok(()))
}

/// Pages of a file that is so much longer than it is on the disk now. Its log may already hold more pages;
/// they have their place in it still before them.
fn pages_within(connection: &Connection, growth: u64) -> rusqlite::Result<u32> {
    let value = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let page_bytes = u64::try_from(value("page_size")?).unwrap_or(0).max(1);
    let length = connection
        .path()
        .and_then(|path| std::fs::metadata(path).ok());
    let pages = match length {
        Some(metadata) => metadata.len() / page_bytes,
        None => u64::try_from(value("page_count")?).unwrap_or(u64::MAX),
    };
    let pages = pages.saturating_add(growth / page_bytes);
    Ok(u32::try_from(pages)
        .unwrap_or(PAGES_MAX)
        .clamp(1, PAGES_MAX))
}
