//! `heddle broker invite`: a link by which others join a mesh of a broker, made at its tables.

use std::path::Path;
use std::sync::Arc;

use heddle_broker::storage::{AnyStorage, StorageError};
use heddle_core::clock::{Clock, Ids, WallMs};
use heddle_core::error_code::ErrorCode;

use super::invites::{InviteError, InviteSpec, MadeInvite, Source, make};
use super::jobs_place::{Errand, Place, send};
use crate::cli::{CliError, Context, exit};
use crate::system::{SystemClock, SystemIds};

struct Making {
    spec: InviteSpec,
    ids: SystemIds,
    now: WallMs,
}

impl Errand for Making {
    type Answer = Result<MadeInvite, InviteError>;

    fn writes(&self) -> bool {
        true
    }

    /// It makes a mesh where there is none, also before the first start of a broker.
    fn makes_tables(&self) -> bool {
        true
    }

    async fn run(self, storage: &AnyStorage) -> Result<Self::Answer, StorageError> {
        let sources: (&dyn Ids, WallMs) = (&self.ids, self.now);
        match make(storage, sources, &self.spec, Source::Fresh).await {
            Err(InviteError::Storage(error)) => Err(error),
            other => Ok(other),
        }
    }
}

pub fn invite(context: &Context, place: &Place, spec: InviteSpec) -> Result<(), CliError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let now = clock.wall();
    let making = Making {
        spec,
        ids: SystemIds::new(clock),
        now,
    };
    let made = send(context, place, making)?.map_err(|error| match error {
        InviteError::Refused(code, why) => CliError::new(code.exit_code(), why).next(next(code)),
        InviteError::Storage(error) => CliError::new(exit::FAILED, error.to_string()),
    })?;
    context.print(&made, describe)
}

fn next(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NameTaken => "Name another mesh with --mesh; nothing was changed.",
        _ => "Correct it and run the command again; nothing was changed.",
    }
}

/// Where a broker that serves this folder is reached from this machine.
pub fn local_url(place: &Place) -> Option<String> {
    let Place::Folder(folder) = place else {
        return None;
    };
    let text = heddle_daemon::home::read_plain(&Path::new(folder).join("broker.port")).ok()?;
    let port: u16 = text.trim().parse().ok()?;
    Some(format!("ws://127.0.0.1:{port}/"))
}

fn describe(made: &MadeInvite) -> String {
    let who = match made.uses {
        1 => "one home".to_owned(),
        uses => format!("{uses} homes"),
    };
    let began = if made.created {
        format!("\nMesh {} is new.", made.mesh)
    } else {
        String::new()
    };
    format!(
        "{}\n{began}\nLets {who} join mesh {} as {} until {}. Whoever has the link may use it: pass it on in private,\n\
         and join with `heddle mesh join -`, which reads it from standard input. An owner invites others with\n\
         `heddle --mesh {} mesh invite`.\n",
        made.link, made.mesh, made.role, made.expires_at, made.mesh
    )
}
