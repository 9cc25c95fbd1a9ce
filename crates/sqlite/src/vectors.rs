//! sqlite-vec, linked into this program: its virtual tables keep vectors, its functions are not used.

use std::sync::OnceLock;

use rusqlite::auto_extension::{RawAutoExtension, register_auto_extension};

use crate::error::OpenError;

/// Makes `vec0` tables known to every connection that is opened from now on, in the whole process. To be
/// called before a file is opened that may hold some; again is nothing.
pub fn link_vectors() -> Result<(), OpenError> {
    static LINKED: OnceLock<Result<(), String>> = OnceLock::new();
    let linked = LINKED.get_or_init(|| link().map_err(|error| error.to_string()));
    linked.clone().map_err(OpenError::Vectors)
}

#[allow(
    unsafe_code,
    reason = "SQLite takes an extension as a C function, and the crate declares it without its arguments"
)]
fn link() -> rusqlite::Result<()> {
    let init: *const () = sqlite_vec::sqlite3_vec_init as *const ();
    // SAFETY: `sqlite3_vec_init` is SQLite's extension entry point, compiled with SQLITE_CORE against the
    // SQLite in this program; its C signature is that of `RawAutoExtension`. It opens and closes no
    // database and does not touch the list of extensions, which is what registering asks for.
    unsafe { register_auto_extension(std::mem::transmute::<*const (), RawAutoExtension>(init)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_opened_afterwards_knows_the_tables() {
        link_vectors().unwrap();
        link_vectors().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let version: String = connection
            .query_row("SELECT vec_version()", [], |row| row.get(0))
            .unwrap();
        assert_eq!(version, "v0.1.9");
    }
}
