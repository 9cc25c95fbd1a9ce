//! SQLite's result codes sorted by what the writer has to do about them.

use rusqlite::{Connection, ffi};

/// A failure that concerns the whole transaction, not one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No space: roll back and go on.
    DiskFull,
    /// A read, write or sync failed: what the file holds is unknown, poison.
    Device(String),
    /// The file's content is wrong: poison.
    Damage(String),
    /// Another process holds the lock that writes need: nothing was begun, the caller may try again.
    Held,
    /// Nothing happened and nothing is broken: roll back, the caller may try again.
    Passing(String),
}

impl Fault {
    /// The fault behind a failed `BEGIN`, `COMMIT`, savepoint or checkpoint.
    pub(crate) fn of(error: &rusqlite::Error) -> Fault {
        let code = error
            .sqlite_error()
            .map_or(ffi::SQLITE_ERROR, |inner| inner.extended_code);
        // Not in the table: inside a transaction the same code is a job's own affair.
        if code & 0xff == ffi::SQLITE_BUSY {
            return Fault::Held;
        }
        Fault::of_code(code, &error.to_string())
            .unwrap_or_else(|| Fault::Passing(error.to_string()))
    }

    /// The fault that the connection's last call met, if it is one that no single job may keep to itself.
    ///
    /// A job's error type is opaque to us and may have lost SQLite's code on its way up, so the code is
    /// asked of the connection. Call it before any other statement runs. A job that has a second
    /// statement open can hide a damaged page from this look, but not a failed read, write or sync:
    /// those end the transaction, which the writer sees by itself.
    pub(crate) fn last_of(connection: &Connection) -> Option<Fault> {
        let code = last_code(connection);
        Fault::of_code(code, &ffi::Error::new(code).to_string())
    }

    /// The table. `None`: the job's own affair (a constraint, a syntax error, …).
    fn of_code(code: i32, text: &str) -> Option<Fault> {
        // A database file that was moved or unlinked would take writes that nobody ever finds again.
        if code == ffi::SQLITE_READONLY_DBMOVED {
            return Some(Fault::Device(text.to_owned()));
        }
        match code & 0xff {
            ffi::SQLITE_FULL => Some(Fault::DiskFull),
            ffi::SQLITE_IOERR => Some(Fault::Device(text.to_owned())),
            ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => Some(Fault::Damage(text.to_owned())),
            ffi::SQLITE_NOMEM | ffi::SQLITE_INTERRUPT => Some(Fault::Passing(text.to_owned())),
            _ => None,
        }
    }
}

#[expect(
    unsafe_code,
    reason = "rusqlite has no safe door to sqlite3_extended_errcode"
)]
fn last_code(connection: &Connection) -> i32 {
    // SAFETY: the handle is that of an open connection, borrowed for the length of this call, and the
    // function only reads a field of it.
    unsafe { ffi::sqlite3_extended_errcode(connection.handle()) }
}

/// Whether an error means that the file's content is wrong.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|inner| {
        matches!(
            inner.extended_code & 0xff,
            ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB
        )
    })
}

#[cfg(test)]
mod tests {
    use super::Fault;
    use rusqlite::ffi;

    #[test]
    fn every_code_that_means_a_broken_disk_poisons_and_no_ordinary_one_does() {
        let device = Some(Fault::Device("x".to_owned()));
        let damage = Some(Fault::Damage("x".to_owned()));
        let passing = Some(Fault::Passing("x".to_owned()));
        let table = [
            (ffi::SQLITE_IOERR, &device),
            (ffi::SQLITE_IOERR_FSYNC, &device),
            (ffi::SQLITE_IOERR_WRITE, &device),
            (ffi::SQLITE_IOERR_READ, &device),
            (ffi::SQLITE_IOERR_SHORT_READ, &device),
            (ffi::SQLITE_READONLY_DBMOVED, &device),
            (ffi::SQLITE_CORRUPT, &damage),
            (ffi::SQLITE_CORRUPT_INDEX, &damage),
            (ffi::SQLITE_NOTADB, &damage),
            (ffi::SQLITE_FULL, &Some(Fault::DiskFull)),
            (ffi::SQLITE_NOMEM, &passing),
            (ffi::SQLITE_INTERRUPT, &passing),
            (ffi::SQLITE_OK, &None),
            (ffi::SQLITE_ROW, &None),
            (ffi::SQLITE_DONE, &None),
            (ffi::SQLITE_ERROR, &None),
            (ffi::SQLITE_CONSTRAINT_UNIQUE, &None),
            (ffi::SQLITE_READONLY, &None),
            (ffi::SQLITE_TOOBIG, &None),
            (ffi::SQLITE_BUSY, &None),
        ];
        for (code, expected) in table {
            assert_eq!(&Fault::of_code(code, "x"), expected, "{code}");
        }
    }

    #[test]
    fn a_transaction_that_cannot_begin_because_another_has_the_lock_is_told_apart() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_TIMEOUT] {
            let busy = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(Fault::of(&busy), Fault::Held, "{code}");
        }
    }
}
