//! A second connection that moves the log into the file while others commit.
//!
//! It runs no statement and begins no transaction, so there is still one connection that writes. SQLite lets a
//! log be moved while it grows: what is committed meanwhile stays for the writer itself, which moves that little
//! between two transactions and can then begin the log anew. Without it every caller waits for the whole log.

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME};

use crate::connection::Site;
use crate::fault::Fault;

pub(crate) struct Mover {
    site: Site,
    /// Made when it is first needed: most files never have so long a log.
    kept: Option<Connection>,
}

impl Mover {
    pub(crate) fn new(site: Site) -> Mover {
        Mover { site, kept: None }
    }

    /// Moves what was committed before the call and no reader needs. A log that somebody else is moving is left to them.
    pub(crate) fn run(&mut self) -> Result<(), Fault> {
        let connection = match self.kept.take() {
            Some(connection) => connection,
            None => self.site.mover().map_err(|error| Fault::of(&error))?,
        };
        let moved = connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE);
        match moved.map_err(|error| Fault::of(&error)) {
            Ok(_) | Err(Fault::Held) => {
                self.kept = Some(connection);
                Ok(())
            }
            // Its connection goes as well: nothing is kept that has met a fault.
            Err(fault) => Err(fault),
        }
    }
}
