//! Claims on jobs: a lock on a file beside the tables says who does one, a row says who that is.
//!
//! The kernel gives the lock of a process that dies back at once, so that a sweep that was killed keeps nobody waiting,
//! and one that takes longer than it meant to keeps it.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use heddle_core::clock::WallMs;
use heddle_core::ids::MeshId;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::error::StorageError;
use super::super::job_locks::{Here, JobLocks, Lock};
use super::super::upkeep::{Job, JobClaim, is_claimed};
use super::columns::{Columns, mesh_key};
use super::error::JobError;
use super::{Options, SqliteStorage};

const CLAIM: &str = "SELECT holder, claimed_until FROM job_claim WHERE mesh_id = ?1 AND job = ?2";

const TAKE_CLAIM: &str = "
INSERT INTO job_claim (mesh_id, job, holder, claimed_until) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (mesh_id, job) DO UPDATE SET holder = excluded.holder,
    claimed_until = excluded.claimed_until";

const RELEASE: &str = "DELETE FROM job_claim WHERE mesh_id = ?1 AND job = ?2 AND holder = ?3";

/// How often a file is looked for anew that its last holder has just removed.
const LOOKS_MAX: u32 = 16;

type Holder = (String, WallMs);

/// The claims of one store: where the files of its locks are, and those that are ours.
#[derive(Clone)]
pub(super) struct Claims {
    /// `None` on a simulated disk, whose files no other process sees.
    tables: Option<PathBuf>,
    locks: JobLocks<JobFile>,
}

/// A locked file with its path; it is removed with the lock, still under it.
struct JobFile(Option<(PathBuf, File)>);

impl Lock for JobFile {
    fn is_gone(&self) -> bool {
        false
    }

    async fn give_back(self) {
        drop(self);
    }
}

impl Drop for JobFile {
    fn drop(&mut self) {
        if let Some((path, _file)) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl JobFile {
    /// `None` where another process has it.
    fn take(path: &Path) -> std::io::Result<Option<Self>> {
        for _ in 0..LOOKS_MAX {
            // Whatever else lies there is no lock: a pipe would be waited for, a link leads out of the folder.
            if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
                let why = "it is no file; move it away";
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
            }
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Its last holder may have removed it between our look and our lock: that one locks nothing any more.
            let ours = file.metadata()?;
            match std::fs::metadata(path) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(Some(Self(Some((path.to_owned(), file)))));
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Claims {
    pub(super) fn of(options: &Options) -> Self {
        let is_simulated = options.vfs.is_some();
        Self {
            tables: (!is_simulated).then(|| options.path.clone()),
            locks: JobLocks::default(),
        }
    }

    /// `None` where another process has it.
    fn take(&self, wanted: &JobClaim) -> Result<Option<JobFile>, JobError> {
        let Some(tables) = &self.tables else {
            return Ok(Some(JobFile(None)));
        };
        let mut path = tables.clone().into_os_string();
        path.push(format!(".{}.{}.lock", wanted.job.as_str(), wanted.mesh));
        let path = PathBuf::from(path);
        JobFile::take(&path).map_err(|error| {
            let words = format!("{} cannot be locked: {error}", path.display());
            JobError::Storage(StorageError::Unavailable(words))
        })
    }

    /// Whoever has the job, if it is not ours now.
    fn claim(
        &self,
        connection: &Connection,
        wanted: &JobClaim,
    ) -> Result<Option<Holder>, JobError> {
        match self.locks.here(wanted) {
            Here::Own => {}
            Here::Other => {
                if let Some((holder, until)) = noted(connection, wanted)?
                    && holder != wanted.holder
                    && is_claimed(until, wanted.now)
                {
                    return Ok(Some((holder, until)));
                }
                self.locks.pass_on(wanted);
            }
            Here::Nobody => {
                let Some(file) = self.take(wanted)? else {
                    let nameless = || ("another process".to_owned(), wanted.until);
                    return Ok(Some(noted(connection, wanted)?.unwrap_or_else(nameless)));
                };
                self.locks.keep(wanted, file);
            }
        }
        let mut statement = connection.prepare_cached(TAKE_CLAIM)?;
        let key = (mesh_key(wanted.mesh), wanted.job.as_str());
        statement.execute(params![key.0, key.1, wanted.holder, wanted.until.0])?;
        Ok(None)
    }

    pub(super) fn give_all_back(&self) {
        self.locks.give_all_back();
    }
}

fn noted(connection: &Connection, wanted: &JobClaim) -> Result<Option<Holder>, JobError> {
    let key = params![mesh_key(wanted.mesh), wanted.job.as_str()];
    let found = connection
        .prepare_cached(CLAIM)?
        .query_row(key, |row| {
            let mut columns = Columns::of(row);
            Ok((columns.text()?, columns.wall()?))
        })
        .optional()?;
    Ok(found)
}

impl SqliteStorage {
    pub(super) async fn claim(&self, wanted: JobClaim) -> Result<Option<Holder>, StorageError> {
        let claims = self.claims.clone();
        self.write(wanted.mesh, move |c| claims.claim(c, &wanted))
            .await
    }

    pub(super) async fn release(
        &self,
        mesh: MeshId,
        job: Job,
        holder: &str,
    ) -> Result<(), StorageError> {
        let by = holder.to_owned();
        let forgotten = self.write(mesh, move |c| {
            let key = params![mesh_key(mesh), job.as_str(), by];
            c.prepare_cached(RELEASE)?.execute(key)?;
            Ok(())
        });
        let locks = &self.claims.locks;
        locks.release((mesh, job, holder), forgotten).await
    }
}
