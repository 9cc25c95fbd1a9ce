//! Where a job by hand is done: on the file in a folder, or on a database. SQLite and PostgreSQL let a second
//! process in, so both work beside those who serve.

use std::path::{Path, PathBuf};

use heddle_broker::storage::postgres::Opening;
use heddle_broker::storage::sqlite::Options;
use heddle_broker::storage::{
    AnyStorage, PostgresOptions, SqliteStorage, StorageError, Upkeep as _,
};
use heddle_core::ids::MeshId;
use heddle_core::names::MeshName;

use super::engine::{open_database_for, said_later};
use super::jobs::{cannot_open, damaged};
use crate::cli::{CliError, Context, exit, note};
use crate::system::Runtime;

/// `--data FOLDER` or `--database URL`.
pub enum Place {
    Folder(PathBuf),
    Database(PostgresOptions),
}

/// A piece of work on whatever the tables are in.
pub trait Errand {
    type Answer;

    /// Whether it changes the tables; one that reads stands in nobody's way, and nobody in its.
    fn writes(&self) -> bool;

    /// Whether it may be the first that a database without tables sees; a name that was mistyped makes none otherwise.
    fn makes_tables(&self) -> bool {
        false
    }

    fn run(self, storage: &AnyStorage) -> impl Future<Output = Result<Self::Answer, StorageError>>;
}

pub fn send<E: Errand>(context: &Context, place: &Place, errand: E) -> Result<E::Answer, CliError> {
    let runtime =
        Runtime::single().map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
    match place {
        Place::Folder(data) => {
            let (storage, path) = open_file(context, data)?;
            let done = runtime.run(async {
                if errand.writes() && !is_let_in(&storage, &path).await {
                    return Err(StorageError::Held);
                }
                errand.run(&AnyStorage::Sqlite(storage.clone())).await
            });
            let damage = storage.is_poisoned();
            storage.stop();
            done.map_err(|error| match (damage, error) {
                (Some(why), _) => damaged(&path, &why),
                (None, StorageError::Held) => CliError::held(&path),
                (None, error) => {
                    CliError::new(exit::FAILED, format!("{}: {error}", path.display()))
                        .next("If a daemon or a broker is busy there, try again in a moment.")
                }
            })
        }
        Place::Database(options) => runtime.run(async {
            let opening = match (errand.makes_tables(), errand.writes()) {
                (true, _) => Opening::Make,
                (false, true) => Opening::Change,
                (false, false) => Opening::Look,
            };
            let storage = open_database_for(options, opening).await?;
            let done = errand.run(&AnyStorage::Postgres(storage.clone())).await;
            storage.stop().await;
            done.map_err(|error| {
                if let Some(known) = said_later(&error.to_string(), &options.schema) {
                    return known;
                }
                let next = match &error {
                    StorageError::Full => {
                        "Nothing is half done. Free some space where the database keeps its tables, then try again."
                    }
                    _ => "Nothing is half done. If the database is busy, try again in a moment.",
                };
                CliError::new(exit::FAILED, error.to_string()).next(next)
            })
        }),
    }
}

/// The mesh that is meant by `--mesh`, or all of them; `None` where none is called that.
pub async fn meshes(
    storage: &AnyStorage,
    wanted: Option<&str>,
) -> Result<Option<Vec<(MeshId, MeshName)>>, StorageError> {
    let mut meshes = storage.meshes().await?;
    if let Some(wanted) = wanted {
        meshes.retain(|(_, name)| name.as_str() == wanted);
    }
    Ok(Some(meshes).filter(|meshes| wanted.is_none() || !meshes.is_empty()))
}

/// What was asked about the mesh that is meant, if it is here.
pub fn found<T>(context: &Context, answer: Option<T>) -> Result<T, CliError> {
    answer.ok_or_else(|| {
        let name = context.mesh.as_deref().unwrap_or_default();
        CliError::new(exit::NOT_FOUND, format!("no mesh here is called {name:?}"))
            .next("`heddle broker epoch` without --mesh shows all of them.")
    })
}

/// How often the lock of a file is asked for; each time it is waited for as long as a write does, which is a second.
const LOOKS_MAX: u32 = 10;

/// Waits for a lock that another program holds, and says so. False where it was not given back in time.
async fn is_let_in(storage: &SqliteStorage, path: &Path) -> bool {
    for look in 0..LOOKS_MAX {
        if !storage.is_held().await {
            return true;
        }
        if look == 0 {
            note(&format!(
                "another program holds a lock on {}; waiting up to {LOOKS_MAX} s for it",
                path.display()
            ));
        }
    }
    false
}

fn open_file(context: &Context, data: &Path) -> Result<(SqliteStorage, PathBuf), CliError> {
    let path = data.join("broker.db");
    if !path.is_file() {
        return Err(CliError::new(
            exit::NOT_FOUND,
            format!("there is no broker.db in {}", data.display()),
        )
        .next(
            "Name the folder with --data: a home, or the data folder of `heddle broker serve`; or the database with \
             --database.",
        ));
    }
    let options = Options {
        durability: context.durability()?,
        keeps_copy_before_steps: true,
        ..Options::new(&path)
    };
    let storage = SqliteStorage::open(options).map_err(|error| cannot_open(&path, &error))?;
    Ok((storage, path))
}
