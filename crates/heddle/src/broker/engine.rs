//! What a broker keeps its tables in: a file in its data folder, or a PostgreSQL that several brokers share.

use std::path::{Path, PathBuf};

use heddle_broker::storage::postgres::{OpenError, Opening};
use heddle_broker::storage::{
    AnyStorage, PostgresOptions, PostgresStorage, SqliteStorage, StorageError,
};
use heddle_daemon::upkeep::FullDisk;

use super::effects::{self, Decider, Sources};
use super::pages::{Asked, Probe, Waits};
use super::serve::{ServeOptions, poisoned, takes_nothing};
use crate::cli::{CliError, exit};

/// What a process that serves must know of its store, beyond its tables.
pub trait Engine {
    /// Waits for the moment from which on it can keep nothing: the process must not look alive then.
    fn broken(&self, data: &Path) -> impl Future<Output = CliError> + Send;

    /// Finishes what is queued.
    fn close(self) -> impl Future<Output = ()> + Send;

    /// What whoever starts it should know of who else can reach it.
    fn exposed(&self) -> Vec<&'static str>;

    /// What of it may be away while the process lives. `data`: the broker's folder.
    fn probes(&self, data: &Path) -> Vec<Box<dyn Probe>>;

    /// Who decides about effects, on tables beside these. An unfit store ends the start.
    fn decider(
        &self,
        options: &ServeOptions,
        folder: &Path,
        sources: Sources,
    ) -> impl Future<Output = Result<Decider, CliError>> + Send;
}

impl Engine for AnyStorage {
    async fn broken(&self, data: &Path) -> CliError {
        match self {
            Self::Sqlite(file) => takes_nothing(data, &poisoned(file).await),
            // Never: a database that is gone comes back, and until then everybody is told to try again.
            Self::Postgres(_) => std::future::pending().await,
        }
    }

    async fn close(self) {
        match self {
            Self::Sqlite(file) => {
                let _ = tokio::task::spawn_blocking(move || file.stop()).await;
            }
            Self::Postgres(database) => database.stop().await,
        }
    }

    fn exposed(&self) -> Vec<&'static str> {
        match self {
            Self::Sqlite(_) => Vec::new(),
            Self::Postgres(database) => database.exposed().to_vec(),
        }
    }

    fn probes(&self, data: &Path) -> Vec<Box<dyn Probe>> {
        match self {
            Self::Sqlite(file) => vec![
                Box::new(DiskProbe(data.to_owned())),
                Box::new(LockProbe(file.clone())),
            ],
            Self::Postgres(database) => vec![Box::new(DatabaseProbe(database.clone()))],
        }
    }

    async fn decider(
        &self,
        options: &ServeOptions,
        folder: &Path,
        sources: Sources,
    ) -> Result<Decider, CliError> {
        match self {
            Self::Sqlite(file) => effects::on_file(file.clone(), folder, sources).await,
            Self::Postgres(database) => {
                let named = options.database.as_ref();
                let schema = named.map_or(PostgresOptions::SCHEMA, |named| &named.schema);
                effects::on_database(database.clone(), schema, folder, sources).await
            }
        }
    }
}

/// The file of the tables: while its disk is full nothing new is accepted, and a load balancer sends work elsewhere.
struct DiskProbe(PathBuf);

impl Probe for DiskProbe {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn ask(&self) -> Asked<'_> {
        Box::pin(async {
            match FullDisk::of(&self.0, 0).filter(FullDisk::is_full) {
                Some(disk) => Err(self.waits(disk.to_string())),
                None => Ok(()),
            }
        })
    }
}

/// The same file: while another program holds a lock on it nothing is accepted.
struct LockProbe(SqliteStorage);

impl Probe for LockProbe {
    fn name(&self) -> &'static str {
        "lock"
    }

    fn ask(&self) -> Asked<'_> {
        Box::pin(async {
            if self.0.is_held().await {
                return Err(self.waits("another program holds a lock on broker.db"));
            }
            Ok(())
        })
    }
}

/// A database elsewhere: it is away, takes no writes, its disk is full, or somebody holds its tables.
struct DatabaseProbe(PostgresStorage);

impl Probe for DatabaseProbe {
    fn name(&self) -> &'static str {
        "database"
    }

    fn ask(&self) -> Asked<'_> {
        Box::pin(async {
            self.0.ping().await.map_err(|error| Waits {
                what: match &error {
                    StorageError::Full => "disk",
                    StorageError::Held => "lock",
                    _ => self.name(),
                },
                why: error.to_string(),
            })
        })
    }
}

/// Opens the database: looks at its settings and migrates before anybody is served.
pub async fn open_database(options: &PostgresOptions) -> Result<PostgresStorage, CliError> {
    open_database_for(options, Opening::Make).await
}

/// The same for a job by hand.
pub async fn open_database_for(
    options: &PostgresOptions,
    opening: Opening,
) -> Result<PostgresStorage, CliError> {
    PostgresStorage::open_for(options, opening)
        .await
        .map_err(|error| cannot_use(&error))
}

const ADDRESS: &str = "Write --database postgres://USER:PASSWORD@HOST:PORT/DATABASE, or put it into \
    HEDDLE_BROKER_DATABASE; a database elsewhere needs TLS, and its certificate is verified without any sslmode \
    (--database-ca FILE where it is your own); or write sslmode=disable behind the address if the way is protected otherwise.";

const NO_PLACE: &str = "If it says so for long, look into the log of its server: it may have no connection left (max_connections, 22 \
    for each broker; CONNECTION LIMIT of the role) or no disk. Then start again.";

/// What somebody who may not use the tables needs.
fn rights(schema: &str) -> String {
    format!(
        "Nothing was changed. A broker, `migrate` and jobs that write come as the owner of the tables: name that role in the address, or, as \
         a superuser, ALTER SCHEMA {schema} OWNER TO …, and ALTER TABLE … OWNER TO … for each table in it (and so for {schema}_effects). For \
         a role that only looks: GRANT USAGE ON SCHEMA {schema} TO …; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO …."
    )
}

/// What a database said once it was open, by the code at the end of its words, where that tells more than that it failed:
/// somebody may not, or there is no place, or no disk.
pub fn said_later(words: &str, schema: &str) -> Option<CliError> {
    let has = |code: &str| words.contains(&format!("({code})"));
    if has("42501") || has("3F000") {
        return Some(CliError::new(exit::REFUSED, words).next(format!(
            "{} Where there is no such schema yet: GRANT CREATE ON DATABASE … TO ….",
            rights(schema)
        )));
    }
    if has("53100") {
        let next = "Free some space where the database keeps its tables, then start again.";
        return Some(CliError::new(exit::FAILED, words).next(next));
    }
    // Too many connections, of all or of a role, and a server that starts or stops.
    if ["53300", "57P01", "57P03"].into_iter().any(has) {
        let busy = OpenError::Busy(words.to_owned());
        return Some(CliError::new(exit::UNREACHABLE, busy.to_string()).next(NO_PLACE));
    }
    None
}

/// Why the database cannot be used, and what helps.
fn cannot_use(error: &OpenError) -> CliError {
    let (code, next) = match error {
        OpenError::Address(_) => (exit::USAGE, ADDRESS),
        OpenError::Option { .. } => (
            exit::USAGE,
            "Correct the option and start again; nothing was changed.",
        ),
        OpenError::Busy(_) => (exit::UNREACHABLE, NO_PLACE),
        OpenError::NoTls(_) => (
            exit::REFUSED,
            "Give its server a certificate (ssl = on, ssl_cert_file and ssl_key_file in postgresql.conf); or write sslmode=disable \
             behind the address if the way is protected otherwise.",
        ),
        OpenError::Unreachable(_) => (
            exit::UNREACHABLE,
            "Start the database, or correct host and port (--database-ca FILE names a certificate of your own); then start again.",
        ),
        OpenError::Held(_) => (
            exit::UNREACHABLE,
            "Nothing was changed. See who it is (SELECT * FROM pg_stat_activity, pg_locks) and let that session end, or end it \
             (pg_terminate_backend); then start again.",
        ),
        OpenError::Refused(_) => (
            exit::REFUSED,
            "The database answers: correct user and password in --database or HEDDLE_BROKER_DATABASE, or let this user in there \
             (ALTER ROLE … LOGIN PASSWORD …, GRANT CONNECT, pg_hba.conf); trying again as it is helps nothing.",
        ),
        OpenError::NoDatabase { name, .. } => return no_database(error, name),
        OpenError::NoTables { .. } => (
            exit::NOT_FOUND,
            "Correct the database or --database-schema; `heddle broker migrate` makes the tables where they are meant to be. \
             Nothing was changed.",
        ),
        OpenError::Older { .. } => (
            exit::REFUSED,
            "`heddle broker migrate` with the same options brings them up to date, as a start of this version does; a look \
             changes nothing.",
        ),
        OpenError::Unfit(_) => (
            exit::REFUSED,
            "Nothing was changed. Correct the setting and start again: with it, accepted messages could be lost.",
        ),
        OpenError::Denied { schema, .. } => {
            return CliError::new(exit::REFUSED, error.to_string()).next(rights(schema));
        }
        OpenError::NoSchema { .. } => (
            exit::REFUSED,
            "Nothing was changed. The user must be allowed to create a schema in the database: GRANT CREATE ON \
             DATABASE … TO …; then start again.",
        ),
        OpenError::Full(_) => (
            exit::FAILED,
            "Nothing was changed. Free some space where the database keeps its tables, then start again.",
        ),
        OpenError::Migration(_) => (
            exit::FAILED,
            "Nothing was changed. See what the database says, and its log; then start again.",
        ),
        OpenError::Newer { .. } => (
            exit::REFUSED,
            "Nothing was changed. A newer heddle has served this database: use that version, or a newer one.",
        ),
    };
    CliError::new(code, error.to_string()).next(next)
}

fn no_database(error: &OpenError, name: &str) -> CliError {
    CliError::new(exit::NOT_FOUND, error.to_string()).next(format!(
        "Correct the name at the end of the address, or make it there: CREATE DATABASE \"{}\" ENCODING 'UTF8' TEMPLATE \
         template0.",
        name.replace('"', "\"\"")
    ))
}
